"""Recognizes connection errors that waiting does not fix: wrong credentials and certificates.

librdkafka retries after every error and reports the reason only as text. This module finds the permanent errors in that
text and adds what to do. librdkafka does not report why a broker's certificate is invalid, so a second TLS handshake
finds the reason.
"""

import re
import socket
import ssl
from collections.abc import Sequence

from confluent_kafka import KafkaError

from glassflow_dagster.definition.certificates import read_pem
from glassflow_dagster.definition.model.connections import TOKEN_KEYS, KafkaConnection, OAuthClient
from glassflow_dagster.stores.kafka.errors import KafkaRefused, KafkaUnreachable

# A connection that is lost during authentication does not mean that the credentials are wrong.
_CONNECTION_LOST = re.compile(r"disconnected|timed out|transport failure", re.IGNORECASE)
# Begins an error of the provider of tokens, not of a broker. What follows is the text of its answer without the HTTP
# status, so only an answer with an error code of the standard is known to be permanent. Source: RFC 6749, 5.2.
_NO_TOKEN = "Failed to acquire SASL OAUTHBEARER token: "  # noqa: S105 - the text of an error
_PROVIDER_CERTIFICATE = "SSL certificate"
_PROVIDER_REFUSES = re.compile(
    "invalid_request|invalid_client|invalid_grant|unauthorized_client|unsupported_grant_type|invalid_scope|"
    f"{_PROVIDER_CERTIFICATE}"
)
_NOT_VERIFIED = "certificate verify failed"
# TLS alerts with which a broker rejects the client's certificate, or the lack of one.
_CLIENT_CERTIFICATE_REJECTED = re.compile(
    r"alert (?:bad certificate|unsupported certificate|certificate revoked|certificate expired|certificate unknown|"
    r"unknown ca|certificate required|access denied)",
    re.IGNORECASE,
)
_BROKER = re.compile(r"(?:sasl_)?ssl://(?P<host>[^/]+):(?P<port>\d+)/")
# The broker's address in front and the elapsed time at the end, which differ between attempts.
_VARYING_PARTS = re.compile(r"^(?:\w+://\S+: )|\s*\(after [^)]*\)\s*$")

# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_NAME_MISMATCH = frozenset({62, 64})

_HANDSHAKE_TIMEOUT = 3.0  # seconds; short, as the broker has just answered


def find_permanent_error(connection: KafkaConnection, errors: Sequence[KafkaError]) -> KafkaRefused | None:
    """Return the newest of librdkafka's errors that waiting does not fix, with what to do; None when there is none."""
    for error in reversed(errors):
        text = error.str()
        if _NO_TOKEN in text and not _PROVIDER_REFUSES.search(text):
            continue
        if error.code() == KafkaError._AUTHENTICATION and not _CONNECTION_LOST.search(text):
            return _credentials_error(connection, text)
        if _NOT_VERIFIED in text:
            return _broker_certificate_error(connection, text)
        if _CLIENT_CERTIFICATE_REJECTED.search(text):
            return _client_certificate_error(connection, text)
    return None


def token_error(connection: KafkaConnection, text: str) -> KafkaUnreachable | None:
    """Return the error for a provider of tokens that does not answer; None if `text`, librdkafka's, is of a broker."""
    if connection.oauth is None or _NO_TOKEN not in text:
        return None
    url, reason = connection.oauth.token_url, _reason(text.partition(_NO_TOKEN)[2])
    return KafkaUnreachable(f"{url} gives no token ({reason}); start it, or correct connection_params.oauth.token_url")


def _credentials_error(connection: KafkaConnection, text: str) -> KafkaRefused:
    """Build the error for a failed SASL login; `text` is librdkafka's."""
    if connection.oauth and _NO_TOKEN in text:
        return _no_token_error(connection.oauth, text.partition(_NO_TOKEN)[2])
    if connection.mechanism in TOKEN_KEYS:
        return KafkaRefused(
            f"Kafka's brokers at {', '.join(connection.brokers)} refuse the token ({_reason(text)}); correct "
            f"connection_params.{TOKEN_KEYS[connection.mechanism]}, or grant its client access to the cluster"
        )
    return KafkaRefused(
        f"Kafka's brokers at {', '.join(connection.brokers)} refuse user {connection.username!r} "
        f"({_reason(text)}); correct connection_params.username, password and mechanism"
    )


def _no_token_error(client: OAuthClient, text: str) -> KafkaRefused:
    """Build the error for an OpenID provider that gives no token; `text` is its answer, or what was wrong with it."""
    remedy = "correct connection_params.oauth (client_id, client_secret, scope, token_url)"
    if _PROVIDER_CERTIFICATE in text:
        remedy = "set connection_params.oauth.root_ca to the certificate of the authority that signed the provider's"
    return KafkaRefused(f"{client.token_url} gives no token ({_reason(text)}); {remedy}")


def _client_certificate_error(connection: KafkaConnection, text: str) -> KafkaRefused:
    """Build the error for a client certificate that is missing or that the brokers reject."""
    brokers = ", ".join(connection.brokers)
    if not connection.client_cert:
        return KafkaRefused(
            f"Kafka's brokers at {brokers} ask for a client's certificate ({_reason(text)}); add "
            "connection_params.client_cert and client_key"
        )
    return KafkaRefused(
        f"Kafka's brokers at {brokers} reject the client's certificate ({_reason(text)}); set "
        "connection_params.client_cert and client_key to a certificate that is valid and signed by an authority they "
        "trust"
    )


def _broker_certificate_error(connection: KafkaConnection, text: str) -> KafkaRefused:
    """Build the error for a broker's certificate that cannot be verified, or is for another host name.

    text: librdkafka's, usually with the broker's address. The reason is that of a second TLS handshake with the broker;
    where that fails otherwise or there is no address, it is `text`.
    """
    broker = _BROKER.search(text)
    host, port = (broker["host"], int(broker["port"])) if broker else ("", 0)  # not used without an address
    where = f"Kafka's broker at {host}:{port}" if broker else f"Kafka's brokers at {', '.join(connection.brokers)}"
    tls_error = _verification_error(connection, host, port) if broker else None
    why = tls_error.verify_message.rstrip(".") if tls_error else _reason(text)
    if tls_error and tls_error.verify_code in _NAME_MISMATCH:
        return KafkaRefused(
            f"{where}: {why}; write the broker in connection_params.brokers with a name that its certificate is for "
            "(for another broker: correct its advertised.listeners)"
        )
    return KafkaRefused(
        f"{where} shows a certificate that cannot be verified ({why}); set connection_params.root_ca to the "
        "certificate of the authority that signed it"
    )


def _verification_error(connection: KafkaConnection, host: str, port: int) -> ssl.SSLCertVerificationError | None:
    """Repeat the TLS handshake with Python's ssl and return its verification error.

    None if the handshake succeeds, or fails for another reason: no connection, or another TLS error.
    """
    authorities = read_pem("connection_params.root_ca", connection.root_ca) if connection.root_ca else None
    try:
        context = ssl.create_default_context(cadata=authorities)
        with socket.create_connection((host, port), _HANDSHAKE_TIMEOUT) as raw:
            context.wrap_socket(raw, server_hostname=host).close()
    except ssl.SSLCertVerificationError as error:
        return error
    except OSError:
        return None
    return None


def _reason(text: str) -> str:
    """Remove the broker's address and the elapsed time from an error text of librdkafka."""
    return _VARYING_PARTS.sub("", text)
