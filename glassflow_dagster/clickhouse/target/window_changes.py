"""Windows of insert tokens that a pipeline switched on in tables that somebody else made, and how they are put back.

With a window on, ClickHouse drops an insert whose block equals one of the last, whoever sends it: other writers' rows
may vanish. So the window is not switched on where others are known to write, everybody is told where it is, and what
the table's own settings said before is written down.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.errors import TableProblem
from glassflow_dagster.clickhouse.identifiers import full_name, on_cluster
from glassflow_dagster.clickhouse.queries import execute, fetch
from glassflow_dagster.clickhouse.target.token_window import (
    TOKENS_KEPT,
    WithoutTokens,
    ensure_tokens_kept,
    read_window,
    remember_tokens,
)
from glassflow_dagster.clickhouse.target.views import Place, WrittenTables, views_into
from glassflow_dagster.config.model.pipeline import PipelineConfig

_SETTING = re.compile(r"\b((?:non_)?replicated_deduplication_window(?:_seconds)?) = '?(\d+)")

# By what another writer's inserts are left alone; where servers have the newer setting, the older one says nothing.
_OPT_OUT = "deduplicate_insert = 'disable', on servers without that setting insert_deduplicate = 0"


@dataclass(frozen=True)
class WindowChange:
    """What a table's own settings said of its window before: setting -> value, none where it said nothing."""

    database: str
    table: str
    before: Mapping[str, str]

    @property
    def place(self) -> Place:
        """The table."""
        return self.database, self.table


class WindowNotes(Protocol):
    """What pipelines have written down of the windows that they rest on.

    Methods raise what `fetch` and `execute` raise.
    """

    @property
    def bookkeeping_table(self) -> Place:
        """A table that the notes lie beside; each of several servers has its own, unless it is replicated."""

    def switched_on(self, pipeline_id: str) -> list[WindowChange]:
        """Read the windows that a pipeline has switched on, or rests on."""

    def resting_on(self, place: Place) -> set[str]:
        """Read which pipelines rest on a table's window."""

    def note_switched_on(self, pipeline_id: str, change: WindowChange) -> None:
        """Write down that a pipeline rests on a window from now on."""

    def note_released(self, pipeline_id: str, change: WindowChange) -> None:
        """Write down that a pipeline rests on a window no more."""


def switch_on_windows(
    client: Client, config: PipelineConfig, written: WrittenTables, notes: WindowNotes, warn: Callable[[str], None]
) -> list[str]:
    """Make every table that the pipeline writes to remember its tokens; gives why one does not, a line for each.

    Raises `AccessDenied` with the statement to run where the user may not alter a table.
    """
    problems = []
    for place in written.places:
        try:
            window = read_window(client, *place)
        except WithoutTokens as problem:
            problems.append(str(problem) if config.sink.delivery == "exactly_once" else problem.reason)
            continue
        except TableProblem as problem:
            problems.append(str(problem))
            continue
        if window.suffices:
            _rest_on(notes, config, place)
            continue
        reason = _why_not(client, config, written, place)
        if reason:
            statement = remember_tokens(*place, window.engine, cluster=config.sink.cluster)
            problems.append(
                f"{'.'.join(place)} does not remember insert tokens, so a repeated batch would double rows, and "
                f"{reason}: with it on, ClickHouse drops any insert whose block equals one of the last ones, whoever "
                f"sends it. Where none of theirs can (or they say {_OPT_OUT}), run {statement}, or say "
                "sink.deduplication_window: set"
            )
            continue
        notes.note_switched_on(config.pipeline_id, WindowChange(*place, _settings_of(client, place)))
        ensure_tokens_kept(client, *place, config.sink.cluster)
        warn(
            f"{'.'.join(place)} remembers its last {TOKENS_KEPT:,} inserts from now on: ClickHouse drops one whose "
            f"block equals one of them, whoever sends it; other writers should say {_OPT_OUT}. "
            "glassflow-dagster table FILE --release puts it back"
        )
    return problems


def release_windows(client: Client, config: PipelineConfig, notes: WindowNotes, report: Callable[[str], None]) -> None:
    """Put back the windows that this pipeline switched on, but those that another pipeline rests on.

    Raises `AccessDenied` with the statement to run where the user may not alter a table.
    """
    changes = notes.switched_on(config.pipeline_id)
    if not changes:
        report("nothing to put back: this pipeline has switched on no table's window")
    for change in changes:
        others = notes.resting_on(change.place) - {config.pipeline_id}
        if others:
            report(f"{'.'.join(change.place)}: stays as it is, {', '.join(sorted(others))} rests on it")
        elif statement := _put_back(client, change, config.sink.cluster):
            execute(client, statement)
            report(f"{statement};")
        notes.note_released(config.pipeline_id, change)


def _why_not(client: Client, config: PipelineConfig, written: WrittenTables, place: Place) -> str:
    """Say why a table's window is not to be switched on unasked; nothing where it may be."""
    if config.sink.deduplication_window == "set":
        return ""
    if config.sink.deduplication_window == "require":
        return "the definition says sink.deduplication_window: require"
    if config.checks.other_writers:
        return "the definition says that others write to it (checks.other_writers)"
    own = {view.place for view in written.views}
    feeding = [view for view in views_into(client, place) if view not in own]
    if feeding:
        return f"view {'.'.join(feeding[0])}, which reads another table, writes to it, too"
    return ""


def _rest_on(notes: WindowNotes, config: PipelineConfig, place: Place) -> None:
    """Note that a window which another pipeline switched on is needed by this one, too."""
    resting = notes.resting_on(place)
    if resting and config.pipeline_id not in resting:
        found = next(change for other in resting for change in notes.switched_on(other) if change.place == place)
        notes.note_switched_on(config.pipeline_id, found)


def _settings_of(client: Client, place: Place) -> dict[str, str]:
    query = "SELECT engine_full FROM system.tables WHERE database = {database:String} AND name = {name:String}"
    found = fetch(client, query, {"database": place[0], "name": place[1]})
    return dict(_SETTING.findall(found[0][0]))


def _put_back(client: Client, change: WindowChange, cluster: str | None) -> str:
    """Write the statement that puts a window back; nothing where that is done."""
    now = _settings_of(client, change.place)
    name = f"{full_name(change.database, change.table)}{on_cluster(cluster)}"
    if change.before:
        settings = ", ".join(f"{setting} = {value}" for setting, value in change.before.items())
        return f"ALTER TABLE {name} MODIFY SETTING {settings}"
    return f"ALTER TABLE {name} RESET SETTING {', '.join(now)}" if now else ""
