"""Connections to ClickHouse, always over HTTP: to the embedded engine and to any server.

No session: ClickHouse locks a session for one query at a time, and nothing here needs temporary tables. No default
database: a connection must succeed before the database exists, so every statement names its database.
"""

import logging
import time
from collections.abc import Callable

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.stores.clickhouse import tls
from glassflow_dagster.stores.clickhouse.errors import (
    AccessDenied,
    ClickHouseRefused,
    ClickHouseUnreachable,
    error_code,
    explain,
    is_access_denied,
    root_cause,
)

CONNECT_TIMEOUT = 10  # seconds; a server that is up accepts at once, a dead address must not hold a batch for long
# Time without any data after which a request counts as lost. During a long query the server sends progress headers.
ANSWER_TIMEOUT = 120  # seconds
RETRY_INTERVAL = 1.0  # seconds between attempts to reach a server that is starting

# With it a replica that lacks quorum inserts reports an error instead of reading stale rows. Tables that are not
# replicated ignore it.
_SEQUENTIAL_CONSISTENCY = "select_sequential_consistency"

# Both libraries log every failed attempt and raise it as well; only the raised error is shown.
for _logger_name in ("clickhouse_connect", "urllib3.connectionpool"):
    logging.getLogger(_logger_name).setLevel(logging.ERROR)


def address(connection: ClickHouseConnection) -> str:
    """Return the server's address as `host:port`."""
    return f"{connection.host}:{connection.http}"


def connect(connection: ClickHouseConnection) -> Client:
    """Open a client over HTTP or HTTPS; raises `ClickHouseUnreachable`, `ClickHouseRefused` or `AccessDenied`.

    Its queries are sequentially consistent on a replica, unless the user's profile forbids that setting.
    """
    try:
        client = clickhouse_connect.get_client(
            interface="https" if connection.secure else "http",
            host=connection.host,
            port=connection.http,
            username=connection.username,
            password=connection.password.get_secret_value(),
            verify=not connection.skip_certificate_verification,
            pool_mgr=tls.https_pool(connection),  # None without certificates: the library's own pool
            connect_timeout=CONNECT_TIMEOUT,
            send_receive_timeout=ANSWER_TIMEOUT,
            autogenerate_session_id=False,
            client_name="glassflow-dagster",
            # Callers decide about retries: an insert may be repeated only under its token and before its deadline.
            query_retries=0,
        )
    except (ClickHouseError, OSError) as error:
        raise _connection_error(connection, error) from error
    setting = client.server_settings.get(_SEQUENTIAL_CONSISTENCY)
    if setting is not None and not setting.readonly:
        client.set_client_setting(_SEQUENTIAL_CONSISTENCY, 1)
    return client


def wait_for_clickhouse(
    connection: ClickHouseConnection, timeout_seconds: float, report: Callable[[str], None]
) -> Client:
    """Open a client, and retry for `timeout_seconds` while the server cannot be reached; raises what `connect` raises.

    report: receives the first failure, not those of later attempts. A rejected user, password or certificate is raised
    at once: waiting does not fix it.
    """
    deadline = time.monotonic() + timeout_seconds
    reported = False
    while True:
        try:
            return connect(connection)
        except ClickHouseUnreachable as error:
            if time.monotonic() >= deadline:
                raise
            if not reported:
                report(f"{error}; retrying for {timeout_seconds:.0f} s")
                reported = True
        time.sleep(min(RETRY_INTERVAL, max(0.0, deadline - time.monotonic())))


def _connection_error(
    connection: ClickHouseConnection, error: BaseException
) -> AccessDenied | ClickHouseRefused | ClickHouseUnreachable:
    """Return the error to raise for a failed connection: rejected user, TLS failure, not HTTP, or unreachable.

    Not HTTP: there is an answer (no network error as the cause), but without an error code of ClickHouse.
    """
    where = f"ClickHouse at {address(connection)}"
    if is_access_denied(error):
        return AccessDenied(
            f"{where} refuses user {connection.username!r}: wrong user or password; correct "
            "sink.connection_params.username and password (or GLASSFLOW_CLICKHOUSE_URL)"
        )
    if error.__cause__ is not None and (remedy := tls.tls_remedy(root_cause(error.__cause__))):
        return ClickHouseRefused(f"{where}: TLS failed ({explain(error)}); {remedy}")
    if error_code(error) is None and error.__cause__ is None:
        return ClickHouseUnreachable(
            f"{where} does not answer as ClickHouse's HTTP interface: {explain(error)}; "
            "set sink.connection_params.http_port to the HTTP port (8123, or 8443 with secure: true)"
        )
    return ClickHouseUnreachable(
        f"{where} cannot be reached ({explain(error)}); start it (glassflow-dagster stack up starts an embedded one) "
        "or correct sink.connection_params (host, http_port, secure)"
    )
