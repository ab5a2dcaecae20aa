"""The check `no_residual_duplicates`: no key has two rows within one deduplication window.

A key may occur again once its window is over, so rows are compared by the time they were written, or on the event clock
by event time. A join writes a row when the match is decided, which may be after the key's next event was read; there
only rows closer than the window minus that delay are duplicates. Without a time column only the numbers of rows and
keys of the whole table can be compared, as a warning. Unmerged rows count, for ReplacingMergeTree too: a merge removes
a doubled row some day, but every query without FINAL sees it until then.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Literal

from clickhouse_connect.driver.client import Client

from glassflow_dagster.checks.budget import (
    ALL_KEYS,
    Share,
    choose_share,
    connect_within_limits,
    explaining_limits,
    max_rows_at_once,
)
from glassflow_dagster.checks.count_rules import Figures, figures_by_table
from glassflow_dagster.checks.event_time import event_time_column
from glassflow_dagster.checks.keys import count_keys, key_columns, key_expression, sources_of_unique_key
from glassflow_dagster.checks.row_time import RowTime, arrival_column
from glassflow_dagster.definition.model.checks import Checks
from glassflow_dagster.definition.model.durations import format_duration, milliseconds
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.transforms import DedupConfig
from glassflow_dagster.stores.bookkeeping.ledger import LEDGER
from glassflow_dagster.stores.bookkeeping.tables import require_bookkeeping_tables
from glassflow_dagster.stores.clickhouse.identifiers import full_name, own_alias, quote_text
from glassflow_dagster.stores.clickhouse.queries import fetch
from glassflow_dagster.stores.clickhouse.table import Table, require_table

# Of a table too large for a full search, only rows of this time are searched, or of two windows if that is longer.
RECENT = timedelta(days=1)
_EXAMPLES = 3  # keys named in the report
# Aliases beside the table's columns.
_KEY, _CAME = own_alias("key"), own_alias("came")

# Reasons for comparing only the numbers of rows and keys.
_NO_TIME = (
    "No column has the time of a row; map _batch_time to one, or name one in checks.arrival_column, to check by window."
)
_NO_READ_TIME = (
    "The time at which a row of this join was written does not show when its events were read: on the event clock, "
    "or if a deduplication window is no longer than the source's join window, a key may come again at once."
)


@dataclass(frozen=True)
class DuplicatesReport:
    """The result of the check.

    severity: `warn` when the figures cannot distinguish duplicates from allowed repetitions.
    limit_reached: nothing was compared, because a limit ended a query; `passed` is false then.
    """

    passed: bool
    severity: Literal["error", "warn"]
    description: str
    figures: Figures = field(default_factory=dict)
    limit_reached: bool = False


@dataclass(frozen=True)
class Scope:
    """The rows that are searched: those of the last `seconds` (None: all) whose key is in a share of the keys."""

    seconds: int | None = None
    share: Share = ALL_KEYS

    def __str__(self) -> str:
        """Return a sentence for the report, with a leading space; '' when all rows are searched."""
        parts = [f"the rows of the last {format_duration(timedelta(seconds=self.seconds))}"] if self.seconds else []
        if self.share.parts > 1:
            parts.append(
                f"{self.share} of the keys (chosen by hash, different ones each time; a larger checks.max_memory_mib "
                "searches more)"
            )
        return f" Searched only: {', and of these '.join(parts)}." if parts else ""


WHOLE_TABLE = Scope()


@dataclass(frozen=True)
class Search:
    """The parameters of a search for duplicates.

    key: SQL.
    window_ms: rows of a key closer than this are duplicates.
    ledger: its full name.
    waits: whether rows may be written later than due because no batch ran: unmatched left events of a join that waited
        while the pipeline was stopped.
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
        """The SQL condition on the rows that are searched: with limits, recent ones of a share of the keys."""
        since = "1" if self.scope.seconds is None else self.time.since(self.scope.seconds)
        return f"{since} AND {self.scope.share.condition(self.key)}"


def find_residual_duplicates(config: PipelineConfig, report: Callable[[str], None]) -> DuplicatesReport:
    """Search each of the sink's tables for keys with two rows within one window.

    report: receives a message when only a part of a table is searched. Raises `LimitReached` when a limit ends a
    query, and another `GlassflowError` when ClickHouse cannot be reached or a table is missing.
    """
    with explaining_limits(config.checks):
        reports = {of_table.sink.table_name: _search(of_table, report) for of_table in config.by_table}
    return _together(reports)


def _together(reports: Mapping[str, DuplicatesReport]) -> DuplicatesReport:
    """Return the report on several tables, with the worst result and the names of the tables. reports: by table."""
    if len(reports) == 1:
        return next(iter(reports.values()))
    failed = [report for report in reports.values() if not report.passed]
    severity: Literal["error", "warn"] = "error" if any(report.severity == "error" for report in failed) else "warn"
    return DuplicatesReport(
        passed=not failed,
        severity=severity if failed else "error",
        description=" ".join(_texts_by_table(reports)),
        figures=figures_by_table({table: report.figures for table, report in reports.items()}),
    )


def _texts_by_table(reports: Mapping[str, DuplicatesReport]) -> Iterator[str]:
    """Yield the descriptions, each once, behind the names of their tables where they do not name them."""
    tables: dict[str, list[str]] = {}
    for table, report in reports.items():
        tables.setdefault(report.description, []).append(table)
    for text, names in tables.items():
        yield text if len(names) == len(reports) or names[0] in text else f"{', '.join(names)}: {text}"


def _search(config: PipelineConfig, report: Callable[[str], None]) -> DuplicatesReport:
    """Choose key, window, time column and scope, and search by time; compare mere counts without a usable time."""
    client = connect_within_limits(config)
    table = require_table(client, *config.sink.full_table)
    if not sources_of_unique_key(config):
        return DuplicatesReport(passed=True, severity="warn", description=_no_dedup_description(config))
    columns = key_columns(config, table)
    if columns is None:
        return DuplicatesReport(
            passed=False,
            severity="warn",
            description="Cannot be checked: a key field has no column that keeps its values distinct; map each key "
            "field to a column such as String or an integer.",
        )
    key = key_expression(columns)
    dedup, window = config.dedup, min_allowed_distance(config)
    assert dedup  # there is a unique key
    on_event_clock = dedup.clock == "event"
    if window is None:
        return _compare_whole_table(client, table, key, config.checks, _NO_READ_TIME)
    time = event_time_column(config, dedup, table) if on_event_clock else arrival_column(config, table)
    if time is None:
        return (
            _no_event_time_report(dedup)
            if on_event_clock
            else _compare_whole_table(client, table, key, config.checks, _NO_TIME)
        )
    scope = _choose_scope(client, table, time, window, config.checks)
    if str(scope):  # '' when all rows are searched
        report(f"{table.full_name} is large.{scope}")
    database = config.sink.connection_params.database
    require_bookkeeping_tables(client, database)
    search = Search(
        table=table,
        key=key,
        # A coarse time column rounds: rows may look closer than they are by up to its resolution.
        window_ms=max(1, milliseconds(window) - time.resolution_ms),
        time=time,
        ledger=LEDGER.full_name(database),
        pipeline_id=config.pipeline_id,
        waits=config.join is not None and config.join.keeps_unmatched,
        scope=scope,
    )
    return _if_allowed(_search_within_window(client, search, dedup, window), config)


def _if_allowed(result: DuplicatesReport, config: PipelineConfig) -> DuplicatesReport:
    """Return a report as a warning, with the reasons, where duplicates may be none of this pipeline's faults."""
    reasons = []
    if config.sink.delivery == "at_least_once":
        reasons.append("A repeated batch may have duplicated them (sink.delivery: at_least_once).")
    if config.other_writers:
        reasons.append(f"Whose rows they are is not known: {config.other_writers}.")
    if result.passed or not reasons:
        return result
    return replace(result, severity="warn", description=" ".join((result.description, *reasons)))


def min_allowed_distance(config: PipelineConfig) -> timedelta | None:
    """Return the least time between two correct rows of one key; None when no such time exists.

    Without a join it is the deduplication window. A join may write an event's row up to its join window after the event
    was read, and the row of the key's next event at once, so the join window is subtracted. There is no such time with
    a join on the event clock, where the delay between reading and writing has no limit, or when the join window is not
    shorter than the deduplication window.
    """
    dedups = [dedup for source in sources_of_unique_key(config) if (dedup := config.dedup_of(source))]
    if config.join is None:
        return dedups[0].time_window
    if config.join.clock == "event":
        return None
    # With match: latest only the left source, which comes first, has its key compared.
    with_windows = zip(dedups, config.join.sides, strict=False)
    distance = min(dedup.time_window - join_input.time_window for dedup, join_input in with_windows)
    return distance if distance > timedelta() else None


def _no_dedup_description(config: PipelineConfig) -> str:
    """Return the description for a pipeline whose rows may have equal keys."""
    if config.join is None:
        return "The definition has no deduplication; equal keys are allowed."
    sides = "both sources" if config.join.match == "all" else "the left source"
    return f"The definition has no deduplication of {sides}; equal keys are allowed."


def duplicates_query(search: Search, *, final: bool) -> str:
    """Return the SELECT of the number of duplicate rows, the number of their keys, and a few example keys.

    Keys that occur more than once are found by their hash first, which needs 8 bytes per row; only their rows are then
    sorted by time and compared with the next row of the key. A row has three times. `batch`: that of its batch, which
    deduplication compared. `came`: that of the table's own column by which rows are compared, its arrival or on the
    event clock its event time. `due`: the earliest at which deduplication may have accepted its key, which is before
    `batch` for a left event that waited for its match.
    The next row is a duplicate when both its batch time and its `came` are less than one window later: by the batch
    times deduplication should have dropped it, and by the table's own times it did not just wait in between. final:
    read with FINAL, that is as after all merges.
    """
    source = full_name(search.table.database, search.table.name) + (" FINAL" if final else "")
    hashed = f"sipHash64({search.key})"
    repeated = f"SELECT {hashed} FROM {source} WHERE {search.condition} GROUP BY 1 HAVING count() > 1"
    rows = (
        f"SELECT {_KEY} AS key, {_CAME} AS came FROM ("
        f"SELECT {search.key} AS {_KEY}, {search.time.milliseconds} AS {_CAME} FROM {source} "
        f"WHERE {search.condition} AND {hashed} IN ({repeated}))"
    )
    # .1: batch, .2: came, .3: due; arrays of ClickHouse begin at 1.
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
    """Return the SELECT of rows plus `batch`, the batch time (ms) that deduplication used for the row.

    rows: a SELECT of key and came, the time in the table's time column. Three cases: where that column holds the batch
    time (`is_clock`), it is the result. Where it holds the time of insertion, the batch is the first one whose ledger
    row was inserted no earlier than the row. A row that no batch can have written is of another writer: its own time.
    """
    if search.time.is_clock:
        return f"SELECT key, came, came AS batch FROM ({rows})"
    batches = (
        "SELECT 1 AS one, toUnixTimestamp64Milli(inserted_at) AS done, toUnixTimestamp64Milli(batch_time) AS begun "
        f"FROM {search.ledger} WHERE pipeline_id = {quote_text(search.pipeline_id)}"
    )
    if search.scope.seconds is not None:
        # A batch's ledger row is inserted after its rows: batches with an older ledger row have no row in the search.
        batches += f" AND inserted_at >= now() - {search.scope.seconds}"
    # The third case: no batch follows the row (begun = 0), or the row was inserted before that batch began.
    return (
        "SELECT key, came, if(b.begun = 0, came, least(came, b.begun)) AS batch "
        f"FROM (SELECT *, 1 AS one FROM ({rows})) AS r "
        f"ASOF LEFT JOIN ({batches}) AS b ON r.one = b.one AND r.came <= b.done"
    )


def _with_due_time(search: Search, rows: str) -> str:
    """Return the SELECT of rows plus `due`, the earliest time (ms) at which a row may have left the join.

    A left event without a match is written by the batch that finds its wait over, which may come late. So the time may
    lie between the batch before the row's own and the row's own: `due` is the time of the batch before if events of the
    left topic were waiting after it (its ledger row has `waiting`), else the row's `batch`.
    rows: a SELECT of key, batch and came (the time in the table's time column).
    """
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


def _search_within_window(client: Client, search: Search, dedup: DedupConfig, window: timedelta) -> DuplicatesReport:
    """Return the report of a search by time: passed without duplicates, else an error.

    It is a warning where late events are kept on the event clock: they may repeat a key that deduplication has
    forgotten. For an engine that merges rows, the duplicates left by merges (FINAL) are counted as well.
    """
    name = search.table.full_name
    rows, keys = count_keys(client, full_name(search.table.database, search.table.name), search.key, search.condition)
    # extra: the number of duplicate rows; affected: of their keys. Not searched when every row has its own key.
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
        hidden = f" With FINAL, {figures['duplicate_rows_final']:,} of them remain."
    may_keep = dedup.clock == "event" and dedup.when_late == "keep"
    if may_keep:
        hidden += " With late: keep, an event that comes after its key expired is also written."
    return DuplicatesReport(
        passed=False,
        severity="warn" if may_keep else "error",
        description=f"{name} has {extra:,} duplicate row{'s' if extra > 1 else ''} within {format_duration(window)} of "
        f"another of the same key.{hidden}{search.scope}",
        figures=figures,
    )


def _compare_whole_table(client: Client, table: Table, key: str, checks: Checks, reason: str) -> DuplicatesReport:
    """Compare the numbers of rows and keys, for tables without usable times. reason: why they have none.

    The result is a warning at most: more rows than keys may be allowed repetitions after the window.
    """
    name = table.full_name
    scope = Scope(share=choose_share(table.rows, checks))
    rows, keys = count_keys(client, full_name(table.database, table.name), key, scope.share.condition(key))
    text = f"{rows:,} rows, {keys:,} keys in {name}. {reason}{scope}"
    figures: Figures = {
        "rows": rows, "unique_keys": keys, "rows_beyond_keys": rows - keys, "keys_checked": str(scope.share),
    }  # fmt: skip
    return DuplicatesReport(passed=rows == keys, severity="warn", description=text, figures=figures)


def _no_event_time_report(dedup: DedupConfig) -> DuplicatesReport:
    """Return the report for a target without a column of the event time."""
    return DuplicatesReport(
        passed=False,
        severity="warn",
        description=f"Not checked: no column holds the event time {dedup.event_time!r}; map it to a DateTime64 "
        "column, or a number to an integer column, and do not pass it through a stateless transform.",
    )


def _choose_scope(client: Client, table: Table, time: RowTime, window: timedelta, checks: Checks) -> Scope:
    """Return all rows if the memory limit allows, else the latest rows, or a share of their keys."""
    if table.rows <= max_rows_at_once(checks):
        return WHOLE_TABLE
    seconds = math.ceil(max(RECENT, 2 * window).total_seconds())
    source = full_name(table.database, table.name)
    rows = fetch(client, f"SELECT count() FROM {source} WHERE {time.since(seconds)}")[0][0]
    return Scope(seconds, choose_share(rows, checks))


def _figures(scope: Scope, time: RowTime) -> Figures:
    """Return the figures that say which rows were searched."""
    return {
        "rows_checked": "all" if scope.seconds is None else time.since(scope.seconds),
        "keys_checked": str(scope.share),
    }
