"""The identity of the running ClickHouse process, to detect restarts and several servers behind one address.

A table that is not replicated stores an insert's token before it commits the rows. A server that is killed in between
knows the token without having the rows, so after a restart it may wrongly drop the repeated insert. So a batch notes
the run of the server that it began with, and an insert with an uncertain outcome compares it with the current run.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

from datetime import UTC, datetime
from hashlib import sha256

from clickhouse_connect.driver.client import Client
from pydantic import BaseModel

from glassflow_dagster.stores.clickhouse.errors import ClickHouseRefused

# Two readings of one start differ by up to a second, as uptime() counts whole seconds, and by corrections of the clock.
_SAME_START_MS = 2_000  # milliseconds
_MINUTE_MS = 60_000

# Number of connections that are opened to detect several servers behind one address; a load balancer that chooses
# between two servers at random stays undetected once in 32 times.
_CONNECTIONS = 6
# The request uses a connection of its own.
_OWN_CONNECTION = {"Connection": "close"}

# SELECT columns that identify a run, and that every user may query: server UUID, process id, start. Every start draws
# new UUIDs of the system tables (attach() in ClickHouse's src/Storages/System/attachSystemTablesImpl.h), where the user
# may see them; the embedded server draws a display name. Otherwise only the start identifies the run.
RUN_COLUMNS = (
    "toString(serverUUID()), concat(displayName(), ' ', "
    "ifNull((SELECT toString(uuid) FROM system.tables WHERE database = 'system' AND name = 'one'), '')), "
    "toUnixTimestamp64Milli(now64(3)) - uptime() * 1000"
)

# The table whose UUID is in them, and the columns of system.tables that identify the run together with its row: for a
# query of other tables' rows, too, which then needs no query within it.
MARKED_TABLE = ("system", "one")
MARKED_RUN_COLUMNS = (
    "toString(serverUUID()), displayName(), toString(uuid), toUnixTimestamp64Milli(now64(3)) - uptime() * 1000"
)


class ServerRun(BaseModel):
    """One run of one server: the server's UUID, an id of the process, and its start in ms since 1970 by its clock."""

    server: str
    process: str
    started_ms: int

    @classmethod
    def of(cls, server: str, process: str, started_ms: int) -> "ServerRun":
        """Return the run from a row of `RUN_COLUMNS`."""
        return cls(server=server, process=process, started_ms=started_ms)

    @classmethod
    def of_marked(cls, server: str, name: str, uuid: str, started_ms: int) -> "ServerRun":
        """Return the run from `MARKED_RUN_COLUMNS` of the row of `MARKED_TABLE`; uuid: empty if it is not visible."""
        return cls.of(server, f"{name} {uuid}", started_ms)

    @property
    def key(self) -> str:
        """A short text that no other run has; nearly always the same for two readings of one run, whose starts differ.

        The start is part of it for users who may not see what each start draws anew.
        """
        return sha256(f"{self.server} {self.process} {self.started_ms // _MINUTE_MS}".encode()).hexdigest()[:16]

    def is_same(self, other: "ServerRun") -> bool:
        """Return True when both are the same run of the same server, so that insert tokens are reliable.

        A server's clock that was set in between makes it look like another run; then the table is searched for rows
        without need, which does no harm.
        """
        difference_ms = abs(self.started_ms - other.started_ms)
        return (self.server, self.process) == (other.server, other.process) and difference_ms < _SAME_START_MS


def read_server_run(client: Client) -> ServerRun:
    """Return the run of the server that answers; raises the client's own errors."""
    return ServerRun.of(*client.query(f"SELECT {RUN_COLUMNS}").result_rows[0])


def require_same_server(client: Client, before: ServerRun, now: ServerRun, table: str) -> None:
    """Raise `ClickHouseRefused` when the runs are of two servers, which have then answered at one address.

    before, now: the runs that answered earlier and now.
    table: the one to name in the error, as not replicated.
    """
    if now.server != before.server:
        raise ClickHouseRefused(_two_servers(client, before, now, table))


def require_one_server(client: Client, table: str) -> None:
    """Raise `ClickHouseRefused` when several servers answer at the client's address, as behind a load balancer.

    A table that is not replicated would then have other rows on each of them. table: the one to name in the error. Each
    of `_CONNECTIONS` connections asks for the run of the server that answers. A restart between two of them counts as
    the same server. A load balancer that sends every connection to the same server is not detected. Raises the client's
    own errors.
    """
    seen: list[ServerRun] = []
    for _ in range(_CONNECTIONS):
        run = ServerRun.of(*client.query(f"SELECT {RUN_COLUMNS}", transport_settings=_OWN_CONNECTION).result_rows[0])
        if seen and _is_another(run, seen):
            raise ClickHouseRefused(_two_servers(client, seen[-1], run, table))
        seen.append(run)


def _is_another(run: ServerRun, seen: list[ServerRun]) -> bool:
    """Return True when `run` is of another server than the last seen run, rather than a restart of the same server.

    Copies of one server share a UUID: a run that was seen before and comes back is another server, since a restarted
    server does not return to an earlier run.
    """
    if run.is_same(seen[-1]):
        return False
    return run.server != seen[-1].server or any(run.is_same(earlier) for earlier in seen[:-1])


def _two_servers(client: Client, one: ServerRun, other: ServerRun, table: str) -> str:
    """Return the message for two servers at one address, each with a table of its own."""
    return (
        f"ClickHouse at {client.uri} leads to several servers ({one.server}, started at {_time(one)}, and "
        f"{other.server}, started at {_time(other)}), but {table} is not replicated: each server has its own. Name "
        "one server in sink.connection_params.host, or use replicated engines (sink.bookkeeping_engine for the "
        "project's own tables)"
    )


def _time(run: ServerRun) -> str:
    return f"{datetime.fromtimestamp(run.started_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
