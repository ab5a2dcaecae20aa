"""Whether inserted rows survive the loss of one replica, and whether there are the replicas that they wait for.

ClickHouse answers an insert into a replicated table when one replica has the rows, unless the user's setting
`insert_quorum` asks for more; the others fetch them afterwards. Rows that were on one replica alone are lost with its
disk, and their insert token stays in Keeper, so that a repeated insert is dropped.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.clickhouse.errors import AccessDenied, TableProblem
from glassflow_dagster.stores.clickhouse.identifiers import quote_text
from glassflow_dagster.stores.clickhouse.queries import fetch
from glassflow_dagster.stores.clickhouse.table import Table
from glassflow_dagster.stores.clickhouse.tables.distributed import parse_distributed
from glassflow_dagster.stores.clickhouse.tables.views import TableId, find_written_tables

_SETTING = "insert_quorum"
# Values with which an insert waits for no second replica.
_ALONE = frozenset({"0", "1"})
_MAJORITY = "auto"
# How to continue with one server.
_OF_BOOKKEEPING = (
    "with one server leave out sink.bookkeeping_engine, and convert the tables that there are (DETACH TABLE t; ATTACH "
    "TABLE t AS NOT REPLICATED)"
)
_OF_SINK = f"with one server run ALTER USER ... SETTINGS {_SETTING} = 0 for the pipeline's user, or use a MergeTree"


def rows_on_one_replica(client: Client, tables: Sequence[Table]) -> str:
    """Return a warning, '' if there is none, where the rows of inserts into the tables may be on one replica alone.

    Tables of SharedMergeTree keep their rows in a shared store.
    """
    replicated = [table.full_name for table in tables if table.engine.startswith("Replicated")]
    setting = client.server_settings.get(_SETTING)
    if not replicated or setting is None or setting.value not in _ALONE:
        return ""
    return (
        f"inserts into {', '.join(replicated)} wait for one replica only ({_SETTING} is {setting.value}): if its disk "
        "is lost before another replica has fetched the rows, they are lost, although the ledger counts them as "
        f"written; run ALTER USER ... SETTINGS {_SETTING} = 'auto' for the pipeline's user, or set it in its profile"
    )


def require_replicas(client: Client, bookkeeping: Sequence[TableId], tables: Sequence[Table]) -> None:
    """Raise `TableProblem` for replicated tables with fewer replicas than an insert waits for.

    ClickHouse takes one replica for the majority of one (`auto`), and then waits for it without end; for a number of
    replicas that there are not it refuses each insert.

    bookkeeping: tables whose rows are always written by `auto`.
    tables: the sink's, whose rows are written as the user's setting says, as are those of their views.
    """
    problems = [*_lacking(client, bookkeeping, _MAJORITY, _OF_BOOKKEEPING)]
    setting = client.server_settings.get(_SETTING)
    if setting is not None and setting.value not in _ALONE:
        for table in tables:
            problems += _lacking_target(client, table, setting.value)
    if problems:
        raise TableProblem("\n".join(problems))


def _lacking_target(client: Client, table: Table, quorum: str) -> Iterator[str]:
    """Yield a line for each table that an insert into a table of the sink writes to, and that lacks replicas."""
    if table.engine != "Distributed":
        written = find_written_tables(client, table.database, table.name).table_ids
        yield from _lacking(client, written, quorum, _OF_SINK)
        return
    local = parse_distributed(table.engine_full)
    source = f"clusterAllReplicas({quote_text(local.cluster)}, system.replicas)"
    yield from _lacking(client, [(local.database, local.table)], quorum, _OF_SINK, source)


def _lacking(
    client: Client, tables: Iterable[TableId], quorum: str, with_one: str, source: str = "system.replicas"
) -> Iterator[str]:
    """Yield a line with the remedy if some of the tables have fewer replicas than the quorum. source: of rows."""
    needed = 2 if quorum == _MAJORITY else int(quorum)
    names = ", ".join(f"({quote_text(database)}, {quote_text(name)})" for database, name in tables)
    query = (
        f"SELECT database, table, min(total_replicas) AS replicas FROM {source} WHERE (database, table) IN ({names}) "
        f"GROUP BY database, table HAVING replicas < {needed} ORDER BY database, table"
    )
    # Without the right to read it the replicas are not known.
    with suppress(AccessDenied):
        if found := fetch(client, query):
            has = min(replicas for _, _, replicas in found)
            yield (
                f"{', '.join(f'{database}.{name}' for database, name, _ in found)}: {has} replica{'s' * (has != 1)}, "
                f"and inserts wait for {needed} ({_SETTING} = {quorum}), without end; create what lacks on more "
                "replicas (SYSTEM SYNC REPLICA and SYSTEM RESTART REPLICA there, if anything was written before), or "
                f"{with_one}"
            )
