"""The connection to Kafka."""

from typing import Any

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.definition import default_brokers
from glassflow_dagster.inference.servers import broker_addresses
from glassflow_dagster.server.api.api_error import ApiError
from glassflow_dagster.server.api.connections import parsed
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.questions import (
    AnswerRefused,
    Answers,
    Option,
    Question,
    When,
    given,
    refused,
    required,
)
from glassflow_dagster.server.wizard.secret_answers import is_same, kept_help, secret
from glassflow_dagster.server.wizard.steps.step import Step
from glassflow_dagster.stores.kafka.topic_list import list_topics

_PROTOCOLS = (
    Option("PLAINTEXT", remark="no encryption, no login"),
    Option("SASL_PLAINTEXT", remark="login without encryption"),
    Option("SSL", remark="encryption"),
    Option("SASL_SSL", remark="encryption and login"),
)
_MECHANISMS = (
    Option("PLAIN", remark="user and password"),
    Option("SCRAM-SHA-256", remark="user and password"),
    Option("SCRAM-SHA-512", remark="user and password"),
    Option("OAUTHBEARER", remark="tokens of an OpenID provider"),
    Option("AWS_MSK_IAM", remark="Amazon MSK, by an identity of AWS"),
    Option("GSSAPI", remark="Kerberos"),
)
_WITH_LOGIN = When("protocol", ("SASL_PLAINTEXT", "SASL_SSL"))
_WITH_TLS = When("protocol", ("SSL", "SASL_SSL"))
_WITH_PASSWORD = When("mechanism", ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"))
_WITH_USER = When("mechanism", (*_WITH_PASSWORD.answers, "GSSAPI"))
_WITH_OAUTH = When("mechanism", ("OAUTHBEARER",))
_WITH_AWS = When("mechanism", ("AWS_MSK_IAM",))
_WITH_KERBEROS = When("mechanism", ("GSSAPI",))
# A secret is sent to these, in this way.
_ADDRESS = ("brokers", "protocol")
_KERBEROS = {
    "kerberos_service_name": "the name that brokers have in Kerberos, such as kafka",
    "kerberos_realm": "such as EXAMPLE.COM",
    "kerberos_config": "the text of krb5.conf",
}
_PEM = "PEM, or base64 of PEM"


def _ask(draft: Draft) -> list[Question]:
    kafka = draft.kafka or {}
    return [
        Question(
            "brokers", "Brokers", value=", ".join(kafka.get("brokers", ())) or default_brokers(),
            help="HOST:PORT, several with commas between them",
        ),
        Question("protocol", "Protocol", "choice", kafka.get("protocol", "PLAINTEXT"), _PROTOCOLS, advanced=True),
        Question(
            "mechanism", "Login", "choice", kafka.get("mechanism", "PLAIN"), _MECHANISMS, advanced=True,
            when=_WITH_LOGIN,
        ),
        *_login_questions(kafka),
        *_tls_questions(kafka),
    ]  # fmt: skip


def _login_questions(kafka: dict[str, Any]) -> list[Question]:
    oauth, aws = kafka.get("oauth") or {}, kafka.get("aws") or {}
    return [
        Question(
            "username", "User", value=kafka.get("username", ""), help="with Kerberos: the principal", advanced=True,
            when=_WITH_USER,
        ),
        Question(
            "password", "Password", "password", help=kept_help(kafka.get("password")), advanced=True,
            when=_WITH_PASSWORD,
        ),
        Question(
            "token_url", "Token URL", value=oauth.get("token_url", ""), help="the provider's token endpoint, https://…",
            advanced=True, when=_WITH_OAUTH,
        ),
        Question("client_id", "Client", value=oauth.get("client_id", ""), advanced=True, when=_WITH_OAUTH),
        Question(
            "client_secret", "Client secret", "password", help=kept_help(oauth.get("client_secret")), advanced=True,
            when=_WITH_OAUTH,
        ),
        Question(
            "scope", "Scope", value=oauth.get("scope", ""), help="may be empty", advanced=True, when=_WITH_OAUTH
        ),
        Question(
            "region", "Region", value=aws.get("region", ""), help="empty: the one in the brokers' names", advanced=True,
            when=_WITH_AWS,
        ),
        Question(
            "role_arn", "Role", value=aws.get("role_arn", ""), advanced=True, when=_WITH_AWS,
            help="ARN of a role to assume; empty: this machine's identity (environment, profile or role)",
        ),
        Question(
            "kerberos_service_name", "Service", value=kafka.get("kerberos_service_name", "kafka"),
            help=_KERBEROS["kerberos_service_name"], advanced=True, when=_WITH_KERBEROS,
        ),
        Question(
            "kerberos_realm", "Realm", value=kafka.get("kerberos_realm", ""), help=_KERBEROS["kerberos_realm"],
            advanced=True, when=_WITH_KERBEROS,
        ),
        Question(
            "kerberos_keytab", "Keytab", "secret_lines", advanced=True, when=_WITH_KERBEROS,
            help=kept_help(kafka.get("kerberos_keytab"), "in base64: base64 -w0 FILE"),
        ),
        Question(
            "kerberos_config", "Kerberos configuration", "lines", kafka.get("kerberos_config", ""),
            help=_KERBEROS["kerberos_config"], advanced=True, when=_WITH_KERBEROS,
        ),
    ]  # fmt: skip


def _tls_questions(kafka: dict[str, Any]) -> list[Question]:
    return [
        Question(
            "root_ca", "Certificate authority", "lines", kafka.get("root_ca", ""), advanced=True, when=_WITH_TLS,
            help=f"{_PEM}, where the brokers' is not one that this machine trusts",
        ),
        Question(
            "client_cert", "Certificate of this client", "lines", kafka.get("client_cert", ""), advanced=True,
            when=_WITH_TLS, help=f"{_PEM}, where the brokers ask for one",
        ),
        Question(
            "client_key", "Its private key", "secret_lines", advanced=True, when=_WITH_TLS,
            help=kept_help(kafka.get("client_key"), f"{_PEM}; PKCS #8, unencrypted"),
        ),
    ]  # fmt: skip


def _answer(draft: Draft, answers: Answers) -> str:
    connection = _connection(draft.kafka or {}, answers)
    try:
        topics = list_topics(parsed(KafkaConnection, connection))
    except ApiError as error:
        raise AnswerRefused(error.problems) from None
    except GlassflowError as error:
        raise refused("brokers", str(error)) from None
    if draft.kafka is not None and draft.kafka != connection:
        draft.left, draft.right, draft.join = None, None, None
        draft.forget("topic", "key", "transform", "partner", "join", "columns")
    draft.kafka, draft.topics = connection, topics
    draft.answered("kafka")
    return f"Connected: {len(topics):,} topic{'s' if len(topics) != 1 else ''}."


def _connection(known: dict[str, Any], answers: Answers) -> dict[str, Any]:
    """Return the `connection_params` that the answers mean; raises `AnswerRefused`."""
    brokers = broker_addresses(required(answers, "brokers", "write HOST:PORT"))
    protocol = given(answers, "protocol") or "PLAINTEXT"
    connection: dict[str, Any] = {"brokers": [*brokers], "protocol": protocol}
    if protocol in _WITH_LOGIN.answers:
        connection |= _login(known, answers, connection)
    if protocol in _WITH_TLS.answers:
        certificates = {name: given(answers, name) for name in ("root_ca", "client_cert")}
        connection |= {name: text for name, text in certificates.items() if text}
        if "client_cert" in connection:
            key = secret(
                answers, "client_key", known.get("client_key"), same_server=is_same(known, connection, _ADDRESS)
            )
            if not key:
                raise refused("client_key", "is missing; the certificate of this client needs it")
            connection["client_key"] = key
        elif given(answers, "client_key"):
            raise refused("client_cert", "is missing; the private key belongs to it")
    return connection


def _login(known: dict[str, Any], answers: Answers, connection: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a login; raises `AnswerRefused` for one that is incomplete."""
    mechanism = given(answers, "mechanism") or "PLAIN"
    login: dict[str, Any] = {"mechanism": mechanism}
    if mechanism in _WITH_USER.answers:
        login["username"] = required(answers, "username", f"{connection['protocol']} with {mechanism} needs it")
    if mechanism in _WITH_PASSWORD.answers:
        login["password"] = _needed(answers, "password", known, connection)
    elif mechanism in _WITH_KERBEROS.answers:
        login |= {name: required(answers, name, f"give {text}") for name, text in _KERBEROS.items()}
        # Base64 is folded by some tools.
        login["kerberos_keytab"] = "".join(_needed(answers, "kerberos_keytab", known, connection).split())
    elif mechanism in _WITH_OAUTH.answers:
        login["oauth"] = _oauth(known, answers, connection)
    else:
        identity = {name: given(answers, name) for name in ("region", "role_arn")}
        login |= {"aws": found} if (found := {name: text for name, text in identity.items() if text}) else {}
    return login


def _oauth(known: dict[str, Any], answers: Answers, connection: dict[str, Any]) -> dict[str, str]:
    before = known.get("oauth") or {}
    client = {
        "token_url": required(answers, "token_url", "write https://HOST/PATH"),
        "client_id": required(answers, "client_id", "OAUTHBEARER needs it"),
        **({"scope": text} if (text := given(answers, "scope")) else {}),
    }
    # The secret is sent to the provider only.
    found = secret(
        answers, "client_secret", before.get("client_secret"), same_server=is_same(before, client, ("token_url",))
    )
    if not found:
        raise refused("client_secret", f"is missing; {connection['protocol']} with OAUTHBEARER needs it")
    return {**client, "client_secret": found}


def _needed(answers: Answers, name: str, known: dict[str, Any], connection: dict[str, Any]) -> str:
    """Return a secret that must be there; raises `AnswerRefused` without one."""
    found = secret(answers, name, known.get(name), same_server=is_same(known, connection, _ADDRESS))
    if not found:
        raise refused(name, "is missing; give it")
    return found


STEP = Step("kafka", "Kafka", "Where the events come from.", _ask, _answer)
