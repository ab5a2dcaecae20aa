"""A Kafka broker with TLS and SASL, and the authority that signs its certificate."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.local.broker import Broker, broker_answers, prepare_broker
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.runtime.process import start_process
from glassflow_dagster.runtime.spark_home import pyspark_folder
from tests.security.certificates import Authority, Certificate
from tests.security.token_issuer import AUDIENCE, CLIENT, ISSUER, SCOPE, SECRET, TokenIssuer, token_issuer
from tests.support.waiting import wait_until

USER = "etl"
# A password that a JAAS configuration or a shell would misread without quoting.
PASSWORD = "Kafka-s3cret p\"\\;$ {}='ä"

_LISTENERS = """
listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SSL://localhost:{mutual},\
SASL_SSL://localhost:{sasl},BOTH://localhost:{both},TOKEN://localhost:{token},MSK://localhost:{msk}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SSL://localhost:{mutual},SASL_SSL://localhost:{sasl},\
BOTH://localhost:{both},TOKEN://localhost:{token},MSK://localhost:{msk}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,BOTH:SASL_SSL,\
TOKEN:SASL_SSL,MSK:SASL_SSL
ssl.keystore.type=PEM
ssl.keystore.location={folder}/broker.pem
ssl.truststore.type=PEM
ssl.truststore.location={folder}/authority.pem
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS
listener.name.ssl.ssl.client.auth=required
listener.name.both.ssl.client.auth=required
listener.name.sasl_ssl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.both.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={scram} required;
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={scram} required;
listener.name.both.scram-sha-512.sasl.jaas.config={scram} required;
listener.name.sasl_ssl.plain.sasl.jaas.config={plain_module} required user_{user}="{password}";
listener.name.token.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.token.oauthbearer.sasl.jaas.config={oauth}.OAuthBearerLoginModule required;
listener.name.token.oauthbearer.sasl.server.callback.handler.class={oauth}.OAuthBearerValidatorCallbackHandler
listener.name.token.sasl.oauthbearer.jwks.endpoint.url=file:{folder}/keys.json
listener.name.token.sasl.oauthbearer.expected.audience={audience}
listener.name.token.sasl.oauthbearer.expected.issuer={issuer}
listener.name.msk.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.msk.oauthbearer.sasl.jaas.config={oauth}.OAuthBearerLoginModule required;
listener.name.msk.oauthbearer.sasl.server.callback.handler.class=glassflow.tests.MskTokens
"""


@dataclass(frozen=True)
class SecureBroker:
    """A broker with listeners: one without encryption, for the tests' own use, and others with TLS.

    mutual requires a client certificate, sasl a password, both requires both, token a token of the issuer. msk takes
    any token, and writes it to the file `tokens`. Its certificate is for localhost.
    """

    plain: int
    mutual: int
    sasl: int
    both: int
    token: int
    msk: int
    authority: Authority
    client: Certificate
    issuer: TokenIssuer
    tokens: Path

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.plain}"

    def over_tls(self, **parts: Any) -> KafkaConnection:
        """Return a connection with a client certificate."""
        return self._connection(
            self.mutual,
            {"protocol": "SSL", "client_cert": self.client.certificate, "client_key": self.client.key, **parts},
        )

    def over_sasl(self, mechanism: str, **parts: Any) -> KafkaConnection:
        """Return a connection with a password, over TLS."""
        return self._connection(
            self.sasl,
            {"protocol": "SASL_SSL", "mechanism": mechanism, "username": USER, "password": PASSWORD, **parts},
        )

    def over_both(self, **parts: Any) -> KafkaConnection:
        """Return a connection with a client certificate and a password."""
        return self._connection(
            self.both,
            {
                "protocol": "SASL_SSL",
                "mechanism": "SCRAM-SHA-512",
                "username": USER,
                "password": PASSWORD,
                "client_cert": self.client.certificate,
                "client_key": self.client.key,
                **parts,
            },
        )

    def over_token(self, **oauth: Any) -> KafkaConnection:
        """Return a connection with tokens of the issuer. oauth: other values of its keys."""
        client = {
            "token_url": self.issuer.url, "client_id": CLIENT, "client_secret": SECRET, "scope": SCOPE,
            "extensions": {"logicalCluster": "lkc-1"}, "root_ca": self.authority.certificate, **oauth,
        }  # fmt: skip
        return self._connection(self.token, {"protocol": "SASL_SSL", "mechanism": "OAUTHBEARER", "oauth": client})

    def as_msk(self) -> KafkaConnection:
        """Return a connection with tokens that AWS's libraries sign."""
        aws = {"region": "eu-central-1"}
        return self._connection(self.msk, {"protocol": "SASL_SSL", "mechanism": "AWS_MSK_IAM", "aws": aws})

    def _connection(self, port: int, parts: dict[str, Any]) -> KafkaConnection:
        given = {"brokers": (f"localhost:{port}",), "root_ca": self.authority.certificate, **parts}
        return KafkaConnection.model_validate(given)


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority("the tests' authority")


@pytest.fixture(scope="session")
def issuer(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenIssuer]:
    with token_issuer(authority, tmp_path_factory.mktemp("issuer")) as found:
        yield found


@pytest.fixture(scope="session")
def secure_broker(
    authority: Authority, issuer: TokenIssuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SecureBroker]:
    folder: Path = tmp_path_factory.mktemp("secure-broker")
    ports = (free_port() for _ in range(6))
    found = SecureBroker(*ports, authority, authority.sign("client"), issuer, folder / "tokens")
    broker = prepare_broker(folder, found.plain, print)
    _add_listeners(folder, found)
    process = start_process(_with_handlers(broker, folder, found), found.plain, folder / "log", broker.variables)
    try:
        wait_until(lambda: broker_answers(found.plain, folder) or not process.alive(), "the broker answers")
        assert process.alive(), (folder / "log").read_text()
        _add_user(found)
        yield found
    finally:
        process.end(30)


def _add_listeners(folder: Path, broker: SecureBroker) -> None:
    """Add listeners to the properties file, in which the last occurrence of a property counts."""
    properties = folder / "server.properties"
    text = properties.read_text()
    controller = re.search(r"CONTROLLER://127.0.0.1:(\d+)", text)
    assert controller
    (folder / "keys.json").write_text(broker.issuer.public_keys)
    (folder / "authority.pem").write_text(broker.authority.certificate)
    (folder / "broker.pem").write_text(broker.authority.sign("broker", "localhost").both)
    security = "org.apache.kafka.common.security"
    # A JAAS value within a properties file: both formats unescape backslashes.
    password = PASSWORD.replace("\\", "\\\\\\\\").replace('"', '\\\\"')
    listeners = _LISTENERS.format(
        plain=broker.plain,
        controller=controller[1],
        mutual=broker.mutual,
        sasl=broker.sasl,
        both=broker.both,
        token=broker.token,
        msk=broker.msk,
        oauth=f"{security}.oauthbearer",
        audience=AUDIENCE,
        issuer=ISSUER,
        folder=folder,
        scram=f"{security}.scram.ScramLoginModule",
        plain_module=f"{security}.plain.PlainLoginModule",
        user=USER,
        password=password.encode("ascii", "backslashreplace").decode().replace("\\xe4", "\\u00e4"),
    )
    properties.write_text(text + listeners)


def _with_handlers(broker: Broker, folder: Path, secure: SecureBroker) -> list[str]:
    """Return the broker's command with the handler of the listener for MSK, and the right to read the issuer's keys."""
    command = list(broker.command)
    place = command.index("-cp") + 1
    compiler = ["-cp", f"{pyspark_folder() / 'jars'}/*:{command[place]}", "scala.tools.nsc.Main", "-usejavacp"]
    jar = folder / "handler.jar"
    subprocess.run([command[0], *compiler, "-d", jar, Path(__file__).with_name("MskTokens.scala")], check=True)
    command[place] += f":{jar}"
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file:{folder}/keys.json"
    return [command[0], allowed, f"-Dtests.tokens={secure.tokens}", *command[1:]]


def _add_user(broker: SecureBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        admin.alter_user_scram_credentials([wanted])[USER].result(30)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "security" in item.path.parts:
            item.add_marker(pytest.mark.servers)
