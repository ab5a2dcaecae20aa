"""Whether a key has two rows of one deduplication window: `no_residual_duplicates`.

The same key may lawfully come again once its window is over, so rows are compared by the time they came, or on the
event clock by the time of their events. A join's row is written when its match is decided, which may be after the next
event of its key was read, so there only rows that are nearer than what that leaves of the window are wrong. Where no
column tells, only whole-table figures can be given, as a warning. Raw rows count, also for ReplacingMergeTree: it would
hide a doubled row some day, but every query without FINAL sees it until then.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from clickhouse_connect.driver.client import Client

from glassflow_dagster.bookkeeping.ledger import LEDGER
from glassflow_dagster.bookkeeping.tables import require_bookkeeping_tables
from glassflow_dagster.clickhouse.identifiers import full_name, quote_text
from glassflow_dagster.clickhouse.queries import fetch
from glassflow_dagster.clickhouse.tables import Table, require_table
from glassflow_dagster.config.model.checks import Checks
from glassflow_dagster.config.model.durations import format_duration, milliseconds
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.transforms import DedupConfig
from glassflow_dagster.verification.budget import (
    ALL_KEYS,
    Share,
    choose_share,
    connect_within_limits,
    limits_told,
    most_rows,
)
from glassflow_dagster.verification.event_time import event_time_column
from glassflow_dagster.verification.keys import count_keys, deduplicated_sources, key_columns, key_expression
from glassflow_dagster.verification.row_time import RowTime, arrival_column

Figures = dict[str, int | float | str]

# Of a table too large to be looked through as a whole: what came lately, or within two windows if that is longer.
RECENT = timedelta(days=1)
_EXAMPLES = 3  # keys named in the report

# Why rows and keys of the whole table are all that can be compared.
_NO_TIME = (
    "No column says when a row came; map _batch_time to one, or name one in checks.arrival_column, to check by window."
)
_UNTOLD = (
    "When a row of this join was written does not tell when its events were read: on the event clock, or where a "
    "deduplication window is no longer than the source's join window, a key may come again at once."
)


@dataclass(frozen=True)
class DuplicatesReport:
    """What was found; `severity` is `warn` where the figures cannot tell duplicates from lawful repetitions.

    limit_reached: nothing was compared, because a limit ended a query; then it has not passed either.
    """

    passed: bool
    severity: Literal["error", "warn"]
    description: str
    figures: Figures = field(default_factory=dict)
    limit_reached: bool = False


@dataclass(frozen=True)
class Scope:
    """Which rows are looked at: those of the last `seconds` (None: of any time) whose key is in a share of the keys."""

    seconds: int | None = None
    share: Share = ALL_KEYS

    def __str__(self) -> str:
        """Write a sentence for the report, with a space before it; nothing where all rows are looked at."""
        parts = [f"the rows of the last {format_duration(timedelta(seconds=self.seconds))}"] if self.seconds else []
        if self.share.parts > 1:
            parts.append(
                f"{self.share} of the keys (chosen by hash, other ones each time; a larger checks.max_memory_mib has "
                "more of them looked at)"
            )
        return f" Only looked at: {', and of these '.join(parts)}." if parts else ""


WHOLE_TABLE = Scope()


@dataclass(frozen=True)
class Search:
    """Where and how duplicates are looked for.

    waits: whether a row may come later than its time, when the batch that was to write it came late: an unmatched
    event of a join that waited while the pipeline stood still.
    """

    table: Table
    key: str
    window_ms: int
    time: RowTime
    ledger: str
    pipeline_id: str
    waits: bool = False
    scope: Scope = WHOLE_TABLE

    @property
    def condition(self) -> str:
        """The condition on the rows that are looked at."""
        since = "1" if self.scope.seconds is None else self.time.since(self.scope.seconds)
        return f"{since} AND {self.scope.share.condition(self.key)}"


def find_residual_duplicates(config: PipelineConfig, report: Callable[[str], None]) -> DuplicatesReport:
    """Look for keys with rows of one window.

    Raises `LimitReached` when a limit ends a query, and another `GlassflowError` when ClickHouse or the table is not
    there.
    """
    with limits_told(config.checks):
        return _find(config, report)


def _find(config: PipelineConfig, report: Callable[[str], None]) -> DuplicatesReport:
    client = connect_within_limits(config)
    table = require_table(client, *config.sink.full_table)
    if not deduplicated_sources(config):
        return DuplicatesReport(passed=True, severity="warn", description=_lawful(config))
    columns = key_columns(config, table)
    if columns is None:
        return DuplicatesReport(
            passed=False,
            severity="warn",
            description="Cannot be checked: a key field has no column that keeps its values apart; "
            "map each key field to a column such as String or an integer.",
        )
    key = key_expression(columns)
    dedup, window = config.dedup, nearest_lawful(config)
    assert dedup
    on_event_clock = dedup.clock == "event"
    if window is None:
        return _whole_table(client, table, key, config.checks, _UNTOLD)
    time = event_time_column(config, dedup, table) if on_event_clock else arrival_column(config, table)
    if time is None:
        return _no_event_time(dedup) if on_event_clock else _whole_table(client, table, key, config.checks, _NO_TIME)
    scope = _choose_scope(client, table, time, window, config.checks)
    if str(scope):
        report(f"{table.database}.{table.name} is large.{scope}")
    database = config.sink.connection_params.database
    require_bookkeeping_tables(client, database)
    search = Search(
        table=table,
        key=key,
        # Within the clock's resolution, rows may be nearer to each other than they came.
        window_ms=max(1, milliseconds(window) - time.resolution_ms),
        time=time,
        ledger=LEDGER.full_name(database),
        pipeline_id=config.pipeline_id,
        waits=config.join is not None and config.join.keeps_unmatched,
        scope=scope,
    )
    found = _within_window(client, search, dedup, window)
    if found.passed or config.sink.delivery == "exactly_once":
        return found
    text = f"{found.description} A batch that was repeated may have doubled them (sink.delivery: at_least_once)."
    return replace(found, severity="warn", description=text)


def nearest_lawful(config: PipelineConfig) -> timedelta | None:
    """Give how near to each other two rows of one key may lawfully be; None when the definition forbids nothing.

    A join writes the row of an event up to the event's own join window after it was read, and that of the same key's
    next event perhaps at once, so the join window is taken off the deduplication window. On the event clock of a join
    nothing limits how long after it was read an event is written.
    """
    dedups = [dedup for source in deduplicated_sources(config) if (dedup := config.dedup_of(source))]
    if config.join is None:
        return dedups[0].time_window
    if config.join.clock == "event":
        return None
    rest = min(dedup.time_window - side.time_window for dedup, side in zip(dedups, config.join.sides, strict=False))
    return rest if rest > timedelta() else None


def _lawful(config: PipelineConfig) -> str:
    if config.join is None:
        return "The definition asks for no deduplication; equal keys are lawful."
    sides = "both sources" if config.join.match == "all" else "the left source"
    return f"The definition does not ask for deduplication of {sides}; equal keys are lawful."


def duplicates_query(search: Search, *, final: bool) -> str:
    """Write the query for duplicate rows, the keys that have them, and a few of these keys.

    Keys that occur more than once are found by their hash first, which needs 8 bytes a row; only their rows are then
    ordered by time and compared with their neighbours.
    """
    source = full_name(search.table.database, search.table.name) + (" FINAL" if final else "")
    hashed = f"sipHash64({search.key})"
    repeated = f"SELECT {hashed} FROM {source} WHERE {search.condition} GROUP BY 1 HAVING count() > 1"
    rows = (
        f"SELECT {search.key} AS key, {search.time.milliseconds} AS came FROM {source} "
        f"WHERE {search.condition} AND {hashed} IN ({repeated})"
    )
    near = f"(times[i + 1].1 - times[i].3 < {search.window_ms}) AND (times[i + 1].2 - times[i].2 < {search.window_ms})"
    by_key = (
        f"SELECT key, arraySort(groupArray((batch, came, due))) AS times, "
        f"arrayCount(i -> {near}, range(1, length(times))) AS extra "
        f"FROM ({_with_due_time(search, _with_batch_time(search, rows))}) GROUP BY key"
    )
    return (
        f"SELECT sum(extra), count(), arrayStringConcat(groupArray({_EXAMPLES})(toString(key)), ' ') "
        f"FROM ({by_key}) WHERE extra > 0"
    )


def _with_batch_time(search: Search, rows: str) -> str:
    """Add the time by which deduplication went: the row's own, or that of the batch whose ledger row came next."""
    if search.time.is_clock:
        return f"SELECT key, came, came AS batch FROM ({rows})"
    batches = (
        "SELECT 1 AS one, toUnixTimestamp64Milli(inserted_at) AS done, toUnixTimestamp64Milli(batch_time) AS begun "
        f"FROM {search.ledger} WHERE pipeline_id = {quote_text(search.pipeline_id)}"
    )
    if search.scope.seconds is not None:
        # A batch's row of the ledger comes after its rows: one from before the rows that are looked at has none there.
        batches += f" AND inserted_at >= now() - {search.scope.seconds}"
    # A row that no batch follows, or that came before the next batch began, was inserted by someone else: its own
    # time counts.
    return (
        "SELECT key, came, if(b.begun = 0, came, least(came, b.begun)) AS batch "
        f"FROM (SELECT *, 1 AS one FROM ({rows})) AS r "
        f"ASOF LEFT JOIN ({batches}) AS b ON r.one = b.one AND r.came <= b.done"
    )


def _with_due_time(search: Search, rows: str) -> str:
    """Add the earliest time for which a row may have been due: the batch before its own, where anything waited then."""
    if not search.waits:
        return f"SELECT key, came, batch, batch AS due FROM ({rows})"
    batches = (
        "SELECT 1 AS one, toUnixTimestamp64Milli(batch_time) AS begun, waiting "
        f"FROM {search.ledger} WHERE pipeline_id = {quote_text(search.pipeline_id)}"
    )
    return (
        "SELECT key, came, batch, if(b.waiting = 0, batch, b.begun) AS due "
        f"FROM (SELECT *, 1 AS one FROM ({rows})) AS r "
        f"ASOF LEFT JOIN ({batches}) AS b ON r.one = b.one AND r.batch > b.begun"
    )


def _within_window(client: Client, search: Search, dedup: DedupConfig, window: timedelta) -> DuplicatesReport:
    name = f"{search.table.database}.{search.table.name}"
    rows, keys = count_keys(client, full_name(search.table.database, search.table.name), search.key, search.condition)
    # Where no key is there twice, no time needs to be looked at.
    extra, affected, examples = fetch(client, duplicates_query(search, final=False))[0] if rows > keys else (0, 0, "")
    figures: Figures = {
        "rows": rows,
        "unique_keys": keys,
        "duplicate_rows": extra,
        "duplicate_keys": affected,
        "window_seconds": window.total_seconds(),
        "event_time_column" if dedup.clock == "event" else "arrival_column": search.time.column,
        **_figures(search.scope, search.time),
    }
    if search.table.merges_rows:
        figures["duplicate_rows_final"] = fetch(client, duplicates_query(search, final=True))[0][0] if extra else 0
    if not extra:
        text = f"{rows:,} rows, {keys:,} keys in {name}; no key has two rows within {format_duration(window)}."
        return DuplicatesReport(passed=True, severity="error", description=text + str(search.scope), figures=figures)
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
        f"another of the same key.{hidden}{search.scope}",
        figures=figures,
    )


def _whole_table(client: Client, table: Table, key: str, checks: Checks, why: str) -> DuplicatesReport:
    """Where rows cannot be told by time, more rows than keys may be lawful repetitions after the window."""
    name = f"{table.database}.{table.name}"
    scope = Scope(share=choose_share(table.rows, checks))
    rows, keys = count_keys(client, full_name(table.database, table.name), key, scope.share.condition(key))
    text = f"{rows:,} rows, {keys:,} keys in {name}. {why}{scope}"
    figures: Figures = {
        "rows": rows, "unique_keys": keys, "rows_beyond_keys": rows - keys, "keys_checked": str(scope.share),
    }  # fmt: skip
    return DuplicatesReport(passed=rows == keys, severity="warn", description=text, figures=figures)


def _no_event_time(dedup: DedupConfig) -> DuplicatesReport:
    return DuplicatesReport(
        passed=False,
        severity="warn",
        description=f"Not checked: no column holds the event time {dedup.event_time!r}; map it to a DateTime64 or, a "
        "number, to an integer column, and do not pass it through a stateless transform.",
    )


def _choose_scope(client: Client, table: Table, time: RowTime, window: timedelta, checks: Checks) -> Scope:
    """Choose all rows where the limit on memory allows, else the latest, and of these a share where they are many."""
    if table.rows <= most_rows(checks):
        return WHOLE_TABLE
    seconds = math.ceil(max(RECENT, 2 * window).total_seconds())
    source = full_name(table.database, table.name)
    rows = fetch(client, f"SELECT count() FROM {source} WHERE {time.since(seconds)}")[0][0]
    return Scope(seconds, choose_share(rows, checks))


def _figures(scope: Scope, time: RowTime) -> Figures:
    return {
        "rows_checked": "all" if scope.seconds is None else time.since(scope.seconds),
        "keys_checked": str(scope.share),
    }
