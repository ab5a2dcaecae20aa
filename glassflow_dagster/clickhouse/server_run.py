"""Which run of which server answers.

A server that is not replicated writes an insert's token down before it puts the rows in place. One that is killed in
between knows the token and has no rows: what it says of a repeated insert is worth nothing after a restart. So a batch
notes which run of the server it began with, and an insert whose outcome is open is compared with that.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

from datetime import UTC, datetime

from clickhouse_connect.driver.client import Client
from pydantic import BaseModel

from glassflow_dagster.clickhouse.errors import ClickHouseRefused

# Two readings of one start differ by a second, as uptime() counts whole ones, and by how a clock is kept right
# meanwhile.
_SAME_START_MS = 2_000  # milliseconds

# So many connections are opened to find out whether they lead to several servers; a load balancer that chooses between
# two at random hides it once in 32 times.
_CONNECTIONS = 6
_ONE_CONNECTION = {"Connection": "close"}

# What tells runs apart, as columns of a query that every user may ask. Every start draws the UUIDs of the system tables
# anew (attach() in ClickHouse's src/Storages/System/attachSystemTablesImpl.h), where the user may see them; the
# embedded server draws a display name. Elsewhere the start alone tells.
RUN_COLUMNS = (
    "toString(serverUUID()), concat(displayName(), ' ', "
    "ifNull((SELECT toString(uuid) FROM system.tables WHERE database = 'system' AND name = 'one'), '')), "
    "toUnixTimestamp64Milli(now64(3)) - uptime() * 1000"
)


class ServerRun(BaseModel):
    """One run of one server: the server's UUID, an id of the process, and its start, ms since 1970 by its clock."""

    server: str
    process: str
    started_ms: int

    @classmethod
    def of(cls, server: str, process: str, started_ms: int) -> "ServerRun":
        """Read the values of `RUN_COLUMNS`."""
        return cls(server=server, process=process, started_ms=started_ms)

    def is_same(self, other: "ServerRun") -> bool:
        """Whether both were read of one run, so that nothing that it knew is in doubt.

        A server's clock that was set in between makes it another run, which costs a look at the table.
        """
        started = abs(self.started_ms - other.started_ms)
        return (self.server, self.process) == (other.server, other.process) and started < _SAME_START_MS


def read_server_run(client: Client) -> ServerRun:
    """Ask which run of the server answers; errors of the client are its own."""
    return ServerRun.of(*client.query(f"SELECT {RUN_COLUMNS}").result_rows[0])


def require_same_server(client: Client, before: ServerRun, now: ServerRun, what: str) -> None:
    """Raise `ClickHouseRefused` where two servers answer at one address, of which each has `what` for itself."""
    if now.server != before.server:
        raise ClickHouseRefused(_two_servers(client, before, now, what))


def require_one_server(client: Client, what: str) -> None:
    """Ask on connections of their own, and raise `ClickHouseRefused` where several servers answer.

    Each of them has `what` for itself. A load balancer that leads every connection to the same server is not found
    out. Errors of the client are its own.
    """
    seen: list[ServerRun] = []
    for _ in range(_CONNECTIONS):
        run = ServerRun.of(*client.query(f"SELECT {RUN_COLUMNS}", transport_settings=_ONE_CONNECTION).result_rows[0])
        if seen and _is_another(run, seen):
            raise ClickHouseRefused(_two_servers(client, seen[-1], run, what))
        seen.append(run)


def _is_another(run: ServerRun, seen: list[ServerRun]) -> bool:
    """Tell another server from one that was started anew: that one does not come back as it was."""
    if run.is_same(seen[-1]):
        return False
    return run.server != seen[-1].server or any(run.is_same(earlier) for earlier in seen[:-1])


def _two_servers(client: Client, one: ServerRun, other: ServerRun, what: str) -> str:
    return (
        f"ClickHouse at {client.uri} is several servers ({one.server}, started at {_time(one)}, and {other.server}, "
        f"started at {_time(other)}), but {what} is not replicated: each server has its own. Name one server in "
        "sink.connection_params.host, or use replicated engines (sink.bookkeeping_engine for the project's own tables)"
    )


def _time(run: ServerRun) -> str:
    return f"{datetime.fromtimestamp(run.started_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
