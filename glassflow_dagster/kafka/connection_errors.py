"""Why brokers refuse a connection for good: credentials and certificates, which waiting does not fix.

librdkafka tries again whatever the reason is, and tells the reason as text. What is final is found in it here, and said
with what to do about it. Why a certificate is not trusted librdkafka does not say, so that is asked of it once more.
"""

import re
import socket
import ssl
from collections.abc import Sequence

from confluent_kafka import KafkaError

from glassflow_dagster.config.certificates import read_pem
from glassflow_dagster.config.model.connections import KafkaConnection
from glassflow_dagster.kafka.errors import KafkaRefused

# A broker that goes away while it looks at a password is no broker that refuses it.
_BROKEN_OFF = re.compile(r"disconnected|timed out|transport failure", re.IGNORECASE)
_NOT_VERIFIED = "certificate verify failed"
# What TLS names what a broker holds against the certificate that it was shown, or not shown.
_CERTIFICATE_REFUSED = re.compile(
    r"alert (?:bad certificate|unsupported certificate|certificate revoked|certificate expired|certificate unknown|"
    r"unknown ca|certificate required|access denied)",
    re.IGNORECASE,
)
_BROKER = re.compile(r"(?:sasl_)?ssl://(?P<host>[^/]+):(?P<port>\d+)/")
# Times and places differ from one attempt to the next.
_CIRCUMSTANCES = re.compile(r"^(?:\w+://\S+: )|\s*\(after [^)]*\)\s*$")

# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_OTHER_NAME = frozenset({62, 64})

_LOOK_TIMEOUT = 3.0  # seconds; the broker has just answered


def find_refusal(connection: KafkaConnection, errors: Sequence[KafkaError]) -> KafkaRefused | None:
    """Give the newest of librdkafka's errors that is final, as it is to be shown; None where all may pass."""
    for error in reversed(errors):
        text = error.str()
        if error.code() == KafkaError._AUTHENTICATION and not _BROKEN_OFF.search(text):
            return _credentials(connection, text)
        if _NOT_VERIFIED in text:
            return _brokers_certificate(connection, text)
        if _CERTIFICATE_REFUSED.search(text):
            return _clients_certificate(connection, text)
    return None


def _credentials(connection: KafkaConnection, text: str) -> KafkaRefused:
    return KafkaRefused(
        f"Kafka's brokers at {', '.join(connection.brokers)} refuse user {connection.username!r} "
        f"({_bare(text)}); correct connection_params.username, password and mechanism"
    )


def _clients_certificate(connection: KafkaConnection, text: str) -> KafkaRefused:
    brokers = ", ".join(connection.brokers)
    if not connection.client_cert:
        return KafkaRefused(
            f"Kafka's brokers at {brokers} ask for a client's certificate ({_bare(text)}); add "
            "connection_params.client_cert and client_key"
        )
    return KafkaRefused(
        f"Kafka's brokers at {brokers} refuse the client's certificate ({_bare(text)}); set "
        "connection_params.client_cert and client_key to a certificate that is valid and signed by an authority they "
        "trust"
    )


def _brokers_certificate(connection: KafkaConnection, text: str) -> KafkaRefused:
    found = _BROKER.search(text)
    host, port = (found["host"], int(found["port"])) if found else ("", 0)
    where = f"Kafka's broker at {host}:{port}" if found else f"Kafka's brokers at {', '.join(connection.brokers)}"
    reason = _why_not_verified(connection, host, port) if found else None
    why = reason.verify_message.rstrip(".") if reason else _bare(text)
    if reason and reason.verify_code in _OTHER_NAME:
        return KafkaRefused(
            f"{where}: {why}; write the broker in connection_params.brokers by a name that its "
            "certificate is for (of another broker: correct its advertised.listeners)"
        )
    return KafkaRefused(
        f"{where} shows a certificate that cannot be verified ({why}); set connection_params.root_ca to the "
        "certificate of the authority that signed it"
    )


def _why_not_verified(connection: KafkaConnection, host: str, port: int) -> ssl.SSLCertVerificationError | None:
    """Look at the broker's certificate ourselves; None when there is nothing wrong with it, or nobody there."""
    authorities = read_pem("root_ca", connection.root_ca) if connection.root_ca else None
    try:
        context = ssl.create_default_context(cadata=authorities)
        with socket.create_connection((host, port), _LOOK_TIMEOUT) as raw:
            context.wrap_socket(raw, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return error
    except OSError:
        return None
    return None


def _bare(text: str) -> str:
    return _CIRCUMSTANCES.sub("", text)
