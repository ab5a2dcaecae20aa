"""TLS to ClickHouse: the definition's certificates, and the remedies for failures that a retry does not fix."""

import os
import ssl
import tempfile
from functools import cache
from pathlib import Path

from clickhouse_connect.driver.httputil import check_env_proxy, get_pool_manager
from urllib3 import PoolManager

from glassflow_dagster.definition.certificates import read_pem, read_private_key
from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.errors import GlassflowError


def https_pool(connection: ClickHouseConnection) -> PoolManager | None:
    """Return a pool of HTTPS connections that uses the definition's certificates; None when it names none.

    Raises `GlassflowError` for a certificate or key that cannot be used.
    """
    has_certificates = connection.root_ca or connection.client_cert
    return _pool(connection) if connection.secure and has_certificates else None


@cache
def _pool(connection: ClickHouseConnection) -> PoolManager:
    """Return the one pool of all clients of a connection: the client library never closes a pool that it creates."""
    proxy = check_env_proxy("https", connection.host, connection.http)
    verify = not connection.skip_certificate_verification
    pool: PoolManager = get_pool_manager(https_proxy=proxy, verify=verify, ssl_context=_context(connection))
    return pool


# A forked process must not use the connections of its parent.
os.register_at_fork(after_in_child=_pool.cache_clear)


def _context(connection: ClickHouseConnection) -> ssl.SSLContext:
    """Return the TLS context with the definition's CA and client certificate; raises `GlassflowError` for bad ones."""
    authorities = read_pem("connection_params.root_ca", connection.root_ca) if connection.root_ca else None
    try:
        context = ssl.create_default_context(cadata=authorities)
    except ssl.SSLError as error:
        raise GlassflowError(
            f"sink.connection_params.root_ca: contains no readable certificate ({error}); paste it again"
        ) from error
    if connection.skip_certificate_verification:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if connection.client_cert and connection.client_key:
        key = read_private_key("connection_params.client_key", connection.client_key)
        _load_client_certificate(context, key, read_pem("connection_params.client_cert", connection.client_cert))
    return context


def _load_client_certificate(context: ssl.SSLContext, key: str, certificate: str) -> None:
    """Add a client certificate to a TLS context; raises `GlassflowError` when it does not fit the key."""
    # Python loads certificates from files only: a private file that is deleted at once.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "client.pem"
        file.touch(0o600)
        file.write_text(f"{key}\n{certificate}", encoding="ascii")
        try:
            context.load_cert_chain(file)
        except ssl.SSLError as error:
            raise GlassflowError(
                f"sink.connection_params.client_cert: cannot be used with client_key ({error}); both must belong to "
                "the same client"
            ) from error


def tls_remedy(cause: BaseException) -> str | None:
    """Return what to do about a TLS failure that a retry does not fix; None for any other failure.

    Three cases: the server's certificate is not trusted, it rejects the client's, or its port does not speak TLS.
    """
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            "set sink.connection_params.root_ca to the certificate of the authority that signed the server's, and "
            "host to a name that the certificate is for"
        )
    reason = getattr(cause, "reason", None) or ""  # OpenSSL's name of the error, such as TLSV1_ALERT_UNKNOWN_CA
    if not isinstance(cause, ssl.SSLError):
        return None
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return (
            "set sink.connection_params.client_cert and client_key to a certificate that is valid and signed by an "
            "authority the server trusts"
        )
    if reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST"}:
        return "set sink.connection_params.http_port to the port of HTTPS (8443), or secure: false"
    return None
