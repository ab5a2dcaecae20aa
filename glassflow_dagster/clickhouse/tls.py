"""Certificates of a definition on the way to ClickHouse, and which failures of TLS are final."""

import os
import ssl
import tempfile
from functools import cache
from pathlib import Path

from clickhouse_connect.driver.httputil import check_env_proxy, get_pool_manager
from urllib3 import PoolManager

from glassflow_dagster.config.certificates import read_pem, read_private_key
from glassflow_dagster.config.model.connections import ClickHouseConnection
from glassflow_dagster.errors import GlassflowError


def connections(connection: ClickHouseConnection) -> PoolManager | None:
    """Give the pool of HTTPS connections that uses the definition's certificates; None where it has none.

    Raises `GlassflowError` for a certificate or key that cannot be used.
    """
    named = connection.root_ca or connection.client_cert
    return _pool(connection) if connection.secure and named else None


# One for all clients of a connection: the client library never lets go of one that it made itself.
@cache
def _pool(connection: ClickHouseConnection) -> PoolManager:
    proxy = check_env_proxy("https", connection.host, connection.http)
    verify = not connection.skip_certificate_verification
    pool: PoolManager = get_pool_manager(https_proxy=proxy, verify=verify, ssl_context=_context(connection))
    return pool


# A connection belongs to the process that opened it.
os.register_at_fork(after_in_child=_pool.cache_clear)


def _context(connection: ClickHouseConnection) -> ssl.SSLContext:
    authorities = read_pem("root_ca", connection.root_ca) if connection.root_ca else None
    try:
        context = ssl.create_default_context(cadata=authorities)
    except ssl.SSLError as error:
        raise GlassflowError(
            f"sink.connection_params.root_ca: holds no certificate that can be read ({error}); paste it anew"
        ) from error
    if connection.skip_certificate_verification:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if connection.client_cert and connection.client_key:
        key = read_private_key("client_key", connection.client_key)
        _show(context, key, read_pem("client_cert", connection.client_cert))
    return context


def _show(context: ssl.SSLContext, key: str, certificate: str) -> None:
    """Let a context show a client's certificate."""
    # Python reads them from files only: one that nobody else may read, gone as soon as it is read.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "client.pem"
        file.touch(0o600)
        file.write_text(f"{key}\n{certificate}", encoding="ascii")
        try:
            context.load_cert_chain(file)
        except ssl.SSLError as error:
            raise GlassflowError(
                f"sink.connection_params.client_cert: cannot be used with client_key ({error}); both must be of the "
                "same client"
            ) from error


def refusal(cause: BaseException) -> str | None:
    """Say what a failure of TLS needs, where waiting does not fix it; None for any other failure."""
    if isinstance(cause, ssl.SSLCertVerificationError):
        return (
            "set sink.connection_params.root_ca to the certificate of the authority that signed the server's, and host "
            "to a name that it is for"
        )
    reason = getattr(cause, "reason", None) or ""
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
