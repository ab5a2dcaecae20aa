"""Whether a key has two rows of one deduplication window: `no_residual_duplicates`.

The same key may lawfully come again once its window is over, so rows are compared by the time they came, or on the
event clock by the time of their events. Where no column tells, only whole-table figures can be given, as a warning. Raw
rows count, also for ReplacingMergeTree: it would hide a doubled row some day, but every query without FINAL sees it
until then.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.client import connect
from glassflow_dagster.clickhouse.ddl import LEDGER
from glassflow_dagster.clickhouse.identifiers import full_name, quote_text
from glassflow_dagster.clickhouse.ledger import require_books
from glassflow_dagster.clickhouse.queries import fetch
from glassflow_dagster.clickhouse.tables import Table, require_table
from glassflow_dagster.config.durations import format_duration, milliseconds
from glassflow_dagster.config.model import DedupConfig, PipelineConfig
from glassflow_dagster.verification.arrival import RowTime, arrival_column
from glassflow_dagster.verification.event_time import event_time_column
from glassflow_dagster.verification.keys import MAX_DISTINCT_ROWS, key_columns, key_expression

Figures = dict[str, int | float | str]

# Of a table too large to be looked through as a whole: what came lately, or within two windows if that is longer.
RECENT = timedelta(days=1)
_EXAMPLES = 3  # keys named in the report


@dataclass(frozen=True)
class DuplicatesReport:
    """What was found; `severity` is `warn` where the figures cannot tell duplicates from lawful repetitions."""

    passed: bool
    severity: Literal["error", "warn"]
    description: str
    figures: Figures = field(default_factory=dict)


@dataclass(frozen=True)
class Search:
    """Where and how duplicates are looked for; `since` is a condition on the rows, or `1`."""

    table: Table
    key: str
    since: str
    window_ms: int
    time: RowTime
    ledger: str
    pipeline_id: str


def find_residual_duplicates(config: PipelineConfig, report: Callable[[str], None]) -> DuplicatesReport:
    """Look for keys with rows of one window; raises `GlassflowError` when ClickHouse or the table is not there."""
    client = connect(config.sink.connection_params)
    name = config.sink.full_table
    table = require_table(client, *name)
    if config.dedup is None:
        return DuplicatesReport(
            passed=True, severity="warn", description="The definition asks for no deduplication; equal keys are lawful."
        )
    columns = key_columns(config, table)
    if columns is None:
        return DuplicatesReport(
            passed=False,
            severity="warn",
            description="Cannot be checked: a key field has no column that keeps its values apart; "
            "map each key field to a column such as String or an integer.",
        )
    key = key_expression(columns)
    on_event_clock = config.dedup.clock == "event"
    time = event_time_column(config, config.dedup, table) if on_event_clock else arrival_column(config, table)
    if time is None:
        return _no_event_time(config.dedup) if on_event_clock else _whole_table(client, table, key)
    since = _since(time, config.dedup.time_window) if table.rows > MAX_DISTINCT_ROWS else "1"
    if since != "1":
        report(f"{'.'.join(name)} is large; looking at the rows of the last {format_duration(RECENT)} or two windows")
    books = config.sink.connection_params.database
    require_books(client, books)
    search = Search(
        table=table,
        key=key,
        since=since,
        # Within the clock's resolution, rows may be nearer to each other than they came.
        window_ms=max(1, milliseconds(config.dedup.time_window) - time.resolution_ms),
        time=time,
        ledger=full_name(books, LEDGER),
        pipeline_id=config.pipeline_id,
    )
    return _within_window(client, search, config.dedup)


def duplicates_query(search: Search, *, final: bool) -> str:
    """Write the query for duplicate rows, the keys that have them, and a few of these keys.

    Keys that occur more than once are found by their hash first, which needs 8 bytes a row; only their rows are then
    ordered by time and compared with their neighbours.
    """
    source = full_name(search.table.database, search.table.name) + (" FINAL" if final else "")
    hashed = f"sipHash64({search.key})"
    repeated = f"SELECT {hashed} FROM {source} WHERE {search.since} GROUP BY 1 HAVING count() > 1"  # noqa: S608 - quoted
    rows = (
        f"SELECT {search.key} AS key, {search.time.milliseconds} AS came FROM {source} "  # noqa: S608 - quoted
        f"WHERE {search.since} AND {hashed} IN ({repeated})"
    )
    near = f"(times[i + 1].1 - times[i].1 < {search.window_ms}) AND (times[i + 1].2 - times[i].2 < {search.window_ms})"
    by_key = (
        f"SELECT key, arraySort(groupArray((batch, came))) AS times, "  # noqa: S608 - quoted
        f"arrayCount(i -> {near}, range(1, length(times))) AS extra "
        f"FROM ({_with_batch_time(search, rows)}) GROUP BY key"
    )
    return (
        f"SELECT sum(extra), count(), arrayStringConcat(groupArray({_EXAMPLES})(toString(key)), ' ') "  # noqa: S608
        f"FROM ({by_key}) WHERE extra > 0"
    )


def _with_batch_time(search: Search, rows: str) -> str:
    """Add the time by which deduplication went: the row's own, or that of the batch whose ledger row came next."""
    if search.time.is_clock:
        return f"SELECT key, came, came AS batch FROM ({rows})"  # noqa: S608 - quoted
    batches = (
        "SELECT 1 AS one, toUnixTimestamp64Milli(inserted_at) AS done, toUnixTimestamp64Milli(batch_time) AS begun "  # noqa: S608
        f"FROM {search.ledger} WHERE pipeline_id = {quote_text(search.pipeline_id)}"
    )
    # A row that no batch follows, or that came before the next batch began, was inserted by someone else: its own
    # time counts.
    return (
        "SELECT key, came, if(b.begun = 0, came, least(came, b.begun)) AS batch "  # noqa: S608 - quoted
        f"FROM (SELECT *, 1 AS one FROM ({rows})) AS r "
        f"ASOF LEFT JOIN ({batches}) AS b ON r.one = b.one AND r.came <= b.done"
    )


def _within_window(client: Client, search: Search, dedup: DedupConfig) -> DuplicatesReport:
    window = dedup.time_window
    name = f"{search.table.database}.{search.table.name}"
    source = full_name(search.table.database, search.table.name)
    rows, keys = fetch(client, f"SELECT count(), uniqExact({search.key}) FROM {source} WHERE {search.since}")[0]  # noqa: S608
    extra, affected, examples = fetch(client, duplicates_query(search, final=False))[0]
    figures: Figures = {
        "rows": rows,
        "unique_keys": keys,
        "duplicate_rows": extra,
        "duplicate_keys": affected,
        "window_seconds": window.total_seconds(),
        "event_time_column" if dedup.clock == "event" else "arrival_column": search.time.column,
        "rows_checked": "all" if search.since == "1" else search.since,
    }
    if search.table.merges_rows:
        figures["duplicate_rows_final"] = fetch(client, duplicates_query(search, final=True))[0][0]
    if not extra:
        text = f"{rows:,} rows, {keys:,} keys in {name}; no key has two rows within {format_duration(window)}."
        return DuplicatesReport(passed=True, severity="error", description=text, figures=figures)
    figures["examples"] = examples
    hidden = ""
    if search.table.merges_rows:
        hidden = f" With FINAL {figures['duplicate_rows_final']:,} of them are left."
    may_keep = dedup.clock == "event" and dedup.when_late == "keep"
    if may_keep:
        hidden += " With late: keep an event may lawfully be written that comes when its key is forgotten."
    return DuplicatesReport(
        passed=False,
        severity="warn" if may_keep else "error",
        description=f"{name} has {extra:,} duplicate row{'s' if extra > 1 else ''} within {format_duration(window)} of "
        f"another of the same key, for instance {examples}.{hidden}",
        figures=figures,
    )


def _whole_table(client: Client, table: Table, key: str) -> DuplicatesReport:
    """Without a time, more rows than keys may be lawful repetitions after the window."""
    name = f"{table.database}.{table.name}"
    remedy = "Map _batch_time to a column, or name one in checks.arrival_column, to check by window."
    if table.rows > MAX_DISTINCT_ROWS:
        text = f"Cannot be checked: {name} says of no row when it came, and has {table.rows:,} rows. {remedy}"
        return DuplicatesReport(passed=False, severity="warn", description=text, figures={"rows": table.rows})
    query = f"SELECT count(), uniqExact({key}) FROM {full_name(table.database, table.name)}"  # noqa: S608 - quoted
    rows, keys = fetch(client, query)[0]
    text = f"{rows:,} rows, {keys:,} keys in {name}, which says of no row when it came. {remedy}"
    figures: Figures = {"rows": rows, "unique_keys": keys, "rows_beyond_keys": rows - keys}
    return DuplicatesReport(passed=rows == keys, severity="warn", description=text, figures=figures)


def _no_event_time(dedup: DedupConfig) -> DuplicatesReport:
    return DuplicatesReport(
        passed=False,
        severity="warn",
        description=f"Not checked: no column holds the event time {dedup.event_time!r}; map it to a DateTime64 or, a "
        "number, to an integer column, and do not pass it through a stateless transform.",
    )


def _since(time: RowTime, window: timedelta) -> str:
    return time.since(round(max(RECENT, 2 * window).total_seconds()))
