"""A definition's Kafka connection as settings for librdkafka and for Spark's Kafka source (a Java client).

Both read committed records only, unless a source sets `isolation`, so that both count the same records.
The Java client cannot skip the verification of the certificate chain: `skip_tls_verification` skips only the check of
the host name there, so a private certificate authority must be set in `root_ca`.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from glassflow_dagster.definition.certificates import read_pem, read_private_key
from glassflow_dagster.definition.model.connections import KafkaConnection, SchemaRegistry
from glassflow_dagster.definition.model.kafka_settings import PASSED_ON
from glassflow_dagster.stores.kafka import iam, kerberos, oauth
from glassflow_dagster.stores.kafka.jaas import login_module

ISOLATION = "read_committed"

_JAAS_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
# Mechanism -> the module with its settings; all others have a username and a password.
_MECHANISMS = {"GSSAPI": kerberos, "OAUTHBEARER": oauth, "AWS_MSK_IAM": iam}

# librdkafka also logs its errors to stderr; they are already reported through the error callback.
_silent = logging.getLogger("glassflow_dagster.stores.kafka.librdkafka")
_silent.addHandler(logging.NullHandler())
_silent.propagate = False


def client_settings(connection: KafkaConnection) -> dict[str, Any]:
    """Return confluent-kafka's settings for a connection; raises `GlassflowError` for a certificate that is no PEM."""
    settings: dict[str, Any] = {
        "bootstrap.servers": ",".join(connection.brokers),
        "security.protocol": _protocol(connection),
        "client.id": "glassflow-dagster",
        "logger": _silent,
        **{name: value for key, value in connection.settings.items() if (name := PASSED_ON[key].librdkafka)},
    }
    if _authenticates(connection):
        mechanism = _MECHANISMS.get(connection.mechanism)
        settings |= mechanism.client_settings(connection) if mechanism else _password_settings(connection)
    if _encrypts(connection):
        if connection.root_ca:
            settings["ssl.ca.pem"] = read_pem("connection_params.root_ca", connection.root_ca)
        if connection.client_cert and connection.client_key:
            settings |= {
                "ssl.certificate.pem": read_pem("connection_params.client_cert", connection.client_cert),
                "ssl.key.pem": read_private_key("connection_params.client_key", connection.client_key),
            }
        if connection.skip_tls_verification:
            settings |= {"enable.ssl.certificate.verification": False, "ssl.endpoint.identification.algorithm": "none"}
    return settings


def spark_options(connection: KafkaConnection) -> dict[str, str]:
    """Return Spark's `kafka.*` options for a connection; raises `GlassflowError` for a certificate that is no PEM."""
    options = {
        "kafka.bootstrap.servers": ",".join(connection.brokers),
        "kafka.security.protocol": _protocol(connection),
        "kafka.isolation.level": ISOLATION,
        **{f"kafka.{name}": value for name, value in connection.settings.items()},
    }
    if _authenticates(connection):
        mechanism = _MECHANISMS.get(connection.mechanism)
        options |= mechanism.spark_options(connection) if mechanism else _password_options(connection)
    if _encrypts(connection):
        certificates = java_certificates("connection_params", connection)
        options |= {f"kafka.{name}": value for name, value in certificates.items()}
        if connection.skip_tls_verification:
            options["kafka.ssl.endpoint.identification.algorithm"] = ""
    return options


def java_options(connection: KafkaConnection) -> str:
    """Return the options that every JVM of a pipeline needs; empty for most mechanisms."""
    if not _authenticates(connection):
        return ""
    if connection.mechanism == "GSSAPI":
        return kerberos.java_options(connection)
    return iam.java_options(connection) if connection.mechanism == "AWS_MSK_IAM" else ""


def java_libraries(connection: KafkaConnection, report: Callable[[str], None]) -> list[Path]:
    """Return the jars that every JVM of a pipeline needs besides a driver's own; fetch those that are missing.

    Raises `GlassflowError` where one cannot be fetched.
    """
    needed = connection.mechanism == "AWS_MSK_IAM" and _authenticates(connection)
    return iam.jars(report) if needed else []


def java_certificates(place: str, access: KafkaConnection | SchemaRegistry) -> dict[str, str]:
    """Return the settings of Kafka's Java clients for the certificates of a server and of this client.

    place: the key in a definition that holds them, for errors. Raises `GlassflowError` for one not in PEM format.
    """
    settings: dict[str, str] = {}
    if access.root_ca:
        settings |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": read_pem(f"{place}.root_ca", access.root_ca),
        }
    if access.client_cert and access.client_key:
        settings |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": read_pem(f"{place}.client_cert", access.client_cert),
            "ssl.keystore.key": read_private_key(f"{place}.client_key", access.client_key),
        }
    return settings


def _authenticates(connection: KafkaConnection) -> bool:
    return connection.mechanism != "NO_AUTH" and not connection.skip_auth


def _encrypts(connection: KafkaConnection) -> bool:
    return connection.protocol.endswith("SSL")


def _protocol(connection: KafkaConnection) -> str:
    """Return the security protocol: without credentials the definition's, less its SASL_ prefix."""
    return connection.protocol if _authenticates(connection) else connection.protocol.removeprefix("SASL_")


def _password_settings(connection: KafkaConnection) -> dict[str, Any]:
    """Return confluent-kafka's settings for PLAIN and SCRAM."""
    return {
        "sasl.mechanism": connection.mechanism,
        "sasl.username": connection.username or "",
        "sasl.password": _password(connection),
    }


def _password_options(connection: KafkaConnection) -> dict[str, str]:
    """Return the options of Spark's Kafka source for PLAIN and SCRAM."""
    credentials = {"username": connection.username or "", "password": _password(connection)}
    return {
        "kafka.sasl.mechanism": connection.mechanism,
        "kafka.sasl.jaas.config": login_module(_JAAS_MODULES[connection.mechanism], credentials),
    }


def _password(connection: KafkaConnection) -> str:
    return connection.password.get_secret_value() if connection.password else ""
