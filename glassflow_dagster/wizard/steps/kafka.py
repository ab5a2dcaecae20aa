"""The connection to Kafka."""

from typing import Any

from glassflow_dagster.api.connections import parsed
from glassflow_dagster.api.errors import ApiError
from glassflow_dagster.config.model.connections import KafkaConnection
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.servers import broker_addresses
from glassflow_dagster.kafka.topic_list import list_topics
from glassflow_dagster.wizard.definition import default_brokers
from glassflow_dagster.wizard.draft import Draft
from glassflow_dagster.wizard.questions import AnswerRefused, Answers, Option, Question, given, refused, required
from glassflow_dagster.wizard.steps.step import Step

_PROTOCOLS = (
    Option("PLAINTEXT", remark="no encryption, no login"),
    Option("SASL_PLAINTEXT", remark="login without encryption"),
    Option("SSL", remark="encryption"),
    Option("SASL_SSL", remark="encryption and login"),
)
_MECHANISMS = (Option("PLAIN"), Option("SCRAM-SHA-256"), Option("SCRAM-SHA-512"))


def _ask(draft: Draft) -> list[Question]:
    kafka = draft.kafka or {}
    has_password = bool(kafka.get("password"))
    return [
        Question(
            "brokers", "Brokers", value=", ".join(kafka.get("brokers", ())) or default_brokers(),
            help="HOST:PORT, several with commas between them",
        ),
        Question("protocol", "Protocol", "choice", kafka.get("protocol", "PLAINTEXT"), _PROTOCOLS, advanced=True),
        Question(
            "mechanism", "Login", "choice", kafka.get("mechanism", "PLAIN"), _MECHANISMS,
            "of the protocols with SASL; others can be written in the last step", advanced=True,
        ),
        Question("username", "User", value=kafka.get("username", ""), advanced=True),
        Question(
            "password", "Password", "password", advanced=True,
            help="empty: the one that was given before" if has_password else "",
        ),
        Question(
            "root_ca", "Certificate authority", "lines", kafka.get("root_ca", ""), advanced=True,
            help="PEM certificate, where the brokers' is not one that this machine trusts",
        ),
    ]  # fmt: skip


def _answer(draft: Draft, answers: Answers) -> str:
    brokers = broker_addresses(required(answers, "brokers", "write HOST:PORT"))
    protocol = given(answers, "protocol") or "PLAINTEXT"
    connection: dict[str, Any] = {"brokers": [*brokers], "protocol": protocol}
    if protocol.startswith("SASL"):
        connection["mechanism"] = given(answers, "mechanism") or "PLAIN"
        connection["username"] = required(answers, "username", f"{protocol} needs it")
        connection["password"] = _password(draft, answers, connection)
    if given(answers, "root_ca"):
        connection["root_ca"] = given(answers, "root_ca")
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


def _password(draft: Draft, answers: Answers, connection: dict[str, Any]) -> str:
    """Return the password: a new one, or the one before, as long as it goes to the same brokers."""
    new = answers.get("password", "")
    if new:
        return new
    known = draft.kafka or {}
    if not known.get("password"):
        raise refused("password", "is missing; give it")
    if any(known.get(name) != connection.get(name) for name in ("brokers", "protocol")):
        raise refused("password", "was given for other brokers; give it again")
    return str(known["password"])


STEP = Step("kafka", "Kafka", "Where the events come from.", _ask, _answer)
