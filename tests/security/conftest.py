"""A Kafka broker with TLS and SASL, and the authority that signs its certificate."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from glassflow_dagster.config.model.connections import KafkaConnection
from glassflow_dagster.local.broker import broker_answers, prepare_broker
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.runtime.process import start_process
from tests.security.certificates import Authority, Certificate
from tests.waiting import wait_until

USER = "etl"
# A password that a JAAS configuration or a shell would misread without quoting.
PASSWORD = "Kafka-s3cret p\"\\;$ {}='ä"

_LISTENERS = """
listeners=PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{controller},SSL://localhost:{mutual},\
SASL_SSL://localhost:{sasl},BOTH://localhost:{both}
advertised.listeners=PLAINTEXT://127.0.0.1:{plain},SSL://localhost:{mutual},SASL_SSL://localhost:{sasl},\
BOTH://localhost:{both}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,BOTH:SASL_SSL
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
"""


@dataclass(frozen=True)
class SecureBroker:
    """A broker with four listeners: one without encryption, for the tests' own use, and three with TLS.

    mutual requires a client certificate, sasl a password, both requires both. Its certificate is for localhost.
    """

    plain: int
    mutual: int
    sasl: int
    both: int
    authority: Authority
    client: Certificate

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

    def _connection(self, port: int, parts: dict[str, Any]) -> KafkaConnection:
        given = {"brokers": (f"localhost:{port}",), "root_ca": self.authority.certificate, **parts}
        return KafkaConnection.model_validate(given)


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority("the tests' authority")


@pytest.fixture(scope="session")
def secure_broker(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    folder: Path = tmp_path_factory.mktemp("secure-broker")
    found = SecureBroker(*(free_port() for _ in range(4)), authority, authority.sign("client"))
    broker = prepare_broker(folder, found.plain, print)
    _add_listeners(folder, found)
    process = start_process(broker.command, found.plain, folder / "log", broker.variables)
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
        folder=folder,
        scram=f"{security}.scram.ScramLoginModule",
        plain_module=f"{security}.plain.PlainLoginModule",
        user=USER,
        password=password.encode("ascii", "backslashreplace").decode().replace("\\xe4", "\\u00e4"),
    )
    properties.write_text(text + listeners)


def _add_user(broker: SecureBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        wanted = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        admin.alter_user_scram_credentials([wanted])[USER].result(30)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "security" in item.path.parts:
            item.add_marker(pytest.mark.servers)
