"""Token windows that a pipeline switches on in existing tables, and their restoration.

With a token window, ClickHouse drops any insert whose block equals one of the last ones, whoever sends it: rows of
other writers may be lost. So a window is not switched on in tables that others are known to write to, it is reported
where it is switched on, and the table's settings before the change are noted.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.identifiers import full_name, on_cluster
from glassflow_dagster.stores.clickhouse.queries import execute, fetch
from glassflow_dagster.stores.clickhouse.tables.token_window import (
    TOKENS_KEPT,
    NoTokenWindow,
    ensure_tokens_kept,
    read_window,
    token_window_statement,
)
from glassflow_dagster.stores.clickhouse.tables.views import TableId, WrittenTables, find_written_tables, views_into

_WINDOW_SETTING = re.compile(r"\b((?:non_)?replicated_deduplication_window(?:_seconds)?) = '?(\d+)")

# By this setting another writer excludes its inserts; servers with the newer setting ignore the older one.
_OPT_OUT = "deduplicate_insert = 'disable', on servers without that setting insert_deduplicate = 0"


@dataclass(frozen=True)
class WindowChange:
    """A table, and its own token window settings before a pipeline changed them: setting -> value, empty for none."""

    database: str
    table: str
    before: Mapping[str, str]

    @property
    def table_id(self) -> TableId:
        """The table's database and name."""
        return self.database, self.table


class WindowNotes(Protocol):
    """The pipelines' notes on token windows that they switched on or rely on; implemented by `bookkeeping.windows`.

    Methods raise what `fetch` and `execute` raise.
    """

    @property
    def bookkeeping_table(self) -> TableId:
        """A bookkeeping table, to check that it is on one server or replicated."""

    def switched_on(self, pipeline_id: str) -> list[WindowChange]:
        """Return the token windows that a pipeline switched on or relies on, and has not released."""

    def pipelines_relying_on(self, table_id: TableId) -> set[str]:
        """Return the ids of the pipelines that rely on a table's token window."""

    def note_switched_on(self, pipeline_id: str, change: WindowChange) -> None:
        """Note that a pipeline relies on a token window from now on."""

    def note_released(self, pipeline_id: str, change: WindowChange) -> None:
        """Note that a pipeline no longer relies on a token window."""


def switch_on_windows(
    client: Client, config: PipelineConfig, written: WrittenTables, notes: WindowNotes, warn: Callable[[str], None]
) -> list[str]:
    """Switch on the token windows of written tables that lack one; return a line for each where that is not possible.

    A line says that the engine has no token window, that the table is missing, or why the window must not be switched
    on automatically (`_reason_against`). The pipeline's reliance on a window is noted before it is switched on. Raises
    `AccessDenied` with the statement to run where the user may not alter a table.
    """
    problems = []
    for table_id in written.table_ids:
        try:
            window = read_window(client, *table_id)
        except NoTokenWindow as problem:
            # With at_least_once the engine may stay, so the message leaves out the remedy.
            problems.append(str(problem) if config.sink.delivery == "exactly_once" else problem.reason)
            continue
        except TableProblem as problem:
            problems.append(str(problem))
            continue
        if window.suffices:
            _note_reliance(notes, config, table_id)
            continue
        reason = _reason_against(client, config, table_id)
        if reason:
            statement = token_window_statement(window, cluster=config.sink.cluster)
            problems.append(
                f"{'.'.join(table_id)} keeps no insert tokens, so a repeated batch would duplicate rows, and "
                f"{reason}: with a deduplication window, ClickHouse drops any insert whose block equals one of the "
                f"last ones, from any writer. If other writers never repeat a block (or set {_OPT_OUT}), run "
                f"{statement}, or choose sink.deduplication_window: set"
            )
            continue
        notes.note_switched_on(config.pipeline_id, WindowChange(*table_id, _settings_of(client, table_id)))
        ensure_tokens_kept(client, *table_id, config.sink.cluster)
        warn(
            f"{'.'.join(table_id)} now remembers its last {TOKENS_KEPT:,} inserts: ClickHouse drops an insert whose "
            f"block equals one of them, from any writer; other writers should set {_OPT_OUT}. glassflow-dagster table "
            "FILE --release restores the setting"
        )
    return problems


def release_windows(client: Client, config: PipelineConfig, notes: WindowNotes, report: Callable[[str], None]) -> None:
    """Restore the token windows that this pipeline switched on, except those that another pipeline relies on.

    report: receives each executed statement, and why a window stays. Raises `AccessDenied` with the statement to run
    where the user may not alter a table.
    """
    changes = notes.switched_on(config.pipeline_id)
    if not changes:
        report("nothing to restore: this pipeline has enabled no table's deduplication window")
    for change in changes:
        others = notes.pipelines_relying_on(change.table_id) - {config.pipeline_id}
        if others:
            report(f"{'.'.join(change.table_id)}: unchanged, since {', '.join(sorted(others))} needs it")
        elif statement := _restoring_statement(client, change, config.sink.cluster):
            execute(client, statement)
            report(f"{statement};")
        notes.note_released(config.pipeline_id, change)


def _reason_against(client: Client, config: PipelineConfig, table_id: TableId) -> str:
    """Return why a table's token window must not be switched on automatically; '' when it may be.

    `sink.deduplication_window: set` allows it always, `require` never. Otherwise others must not write to the table:
    neither according to `checks.other_writers` nor through a view that the pipeline's inserts do not trigger.
    """
    if config.sink.deduplication_window == "set":
        return ""
    if config.sink.deduplication_window == "require":
        return "the definition says sink.deduplication_window: require"
    if config.checks.other_writers:
        return "the definition says that others write to it (checks.other_writers)"
    # An insert into another table of the sink may also reach this one; `written` is of one of them.
    own = (find_written_tables(client, *name).views for name in config.sink.all_tables)
    own_views = {view.table_id for views in own for view in views}
    feeding = [view for view in views_into(client, table_id) if view not in own_views]
    if feeding:
        return f"view {'.'.join(feeding[0])}, which reads another table, writes to it, too"
    return ""


def _note_reliance(notes: WindowNotes, config: PipelineConfig, table_id: TableId) -> None:
    """Note that this pipeline, too, relies on a token window, if another pipeline switched it on.

    The note repeats the settings from before that pipeline's change, since the last one to release restores them.
    """
    others = notes.pipelines_relying_on(table_id)
    if others and config.pipeline_id not in others:
        change = next(change for other in others for change in notes.switched_on(other) if change.table_id == table_id)
        notes.note_switched_on(config.pipeline_id, change)


def _settings_of(client: Client, table_id: TableId) -> dict[str, str]:
    """Return a table's own token window settings: setting -> value."""
    query = "SELECT engine_full FROM system.tables WHERE database = {database:String} AND name = {name:String}"
    tables = fetch(client, query, {"database": table_id[0], "name": table_id[1]})
    engine_full = tables[0][0]
    return dict(_WINDOW_SETTING.findall(engine_full))


def _restoring_statement(client: Client, change: WindowChange, cluster: str | None) -> str:
    """Return the ALTER TABLE statement that restores the settings before a change; '' when there is nothing to do."""
    current = _settings_of(client, change.table_id)
    name = f"{full_name(change.database, change.table)}{on_cluster(cluster)}"
    if change.before:
        settings = ", ".join(f"{setting} = {value}" for setting, value in change.before.items())
        return f"ALTER TABLE {name} MODIFY SETTING {settings}"
    return f"ALTER TABLE {name} RESET SETTING {', '.join(current)}" if current else ""
