"""Windows of insert tokens that a pipeline switched on in tables that somebody else made, and how they are put back.

With a window on, ClickHouse drops an insert whose block equals one of the last, whoever sends it: other writers' rows
may vanish. So the window is not switched on where others are known to write, everybody is told where it is, and what
the table's own settings said before is kept in `glassflow_windows`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.ddl import WINDOWS, WRITE_EVERYWHERE_SQL
from glassflow_dagster.clickhouse.errors import TableProblem
from glassflow_dagster.clickhouse.identifiers import full_name, on_cluster, quote_text
from glassflow_dagster.clickhouse.queries import execute, fetch
from glassflow_dagster.clickhouse.token_window import (
    TOKENS_KEPT,
    WithoutTokens,
    ensure_tokens_kept,
    read_window,
    remember_tokens,
)
from glassflow_dagster.clickhouse.views import Place, WrittenTables, views_into
from glassflow_dagster.config.model import PipelineConfig

_SETTING = re.compile(r"\b((?:non_)?replicated_deduplication_window(?:_seconds)?) = '?(\d+)")

# By what another writer's inserts are left alone; where servers have the newer setting, the older one says nothing.
_OPT_OUT = "deduplicate_insert = 'disable', on servers without that setting insert_deduplicate = 0"


@dataclass(frozen=True)
class WindowChange:
    """What a table's own settings said of its window before: setting -> value, none where it said nothing."""

    database: str
    table: str
    before: Mapping[str, str]


def switch_on_windows(
    client: Client, config: PipelineConfig, written: WrittenTables, warn: Callable[[str], None]
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
            _rest_on(client, config, place)
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
        _note(client, config, place, _settings_of(client, place), released=False)
        ensure_tokens_kept(client, *place, config.sink.cluster)
        warn(
            f"{'.'.join(place)} remembers its last {TOKENS_KEPT:,} inserts from now on: ClickHouse drops one whose "
            f"block equals one of them, whoever sends it; other writers should say {_OPT_OUT}. "
            "glassflow-dagster table FILE --release puts it back"
        )
    return problems


def release_windows(client: Client, config: PipelineConfig, report: Callable[[str], None]) -> None:
    """Put back the windows that this pipeline switched on, but those that another pipeline rests on.

    Raises `AccessDenied` with the statement to run where the user may not alter a table.
    """
    changes = _changes(client, config, config.pipeline_id)
    if not changes:
        report("nothing to put back: this pipeline has switched on no table's window")
    for change in changes:
        place = (change.database, change.table)
        others = _resting_on(client, config, place) - {config.pipeline_id}
        if others:
            report(f"{'.'.join(place)}: stays as it is, {', '.join(sorted(others))} rests on it")
        elif statement := _put_back(client, change, config.sink.cluster):
            execute(client, statement)
            report(f"{statement};")
        _note(client, config, place, change.before, released=True)


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


def _rest_on(client: Client, config: PipelineConfig, place: Place) -> None:
    """Note that a window which another pipeline switched on is needed by this one, too."""
    resting = _resting_on(client, config, place)
    if resting and config.pipeline_id not in resting:
        found = next(
            change
            for other in resting
            for change in _changes(client, config, other)
            if (change.database, change.table) == place
        )
        _note(client, config, place, found.before, released=False)


def _changes(client: Client, config: PipelineConfig, pipeline_id: str) -> list[WindowChange]:
    rows = fetch(
        client,
        f"SELECT database, table, argMax(before, inserted_at) FROM {_book(config)} "  # noqa: S608 - quoted
        "WHERE pipeline_id = {pipeline:String} GROUP BY 1, 2 HAVING NOT argMax(released, inserted_at) ORDER BY 1, 2",
        {"pipeline": pipeline_id},
    )
    return [WindowChange(database, table, dict(before)) for database, table, before in rows]


def _resting_on(client: Client, config: PipelineConfig, place: Place) -> set[str]:
    rows = fetch(
        client,
        f"SELECT pipeline_id FROM {_book(config)} WHERE database = {{database:String}} AND table = {{name:String}} "  # noqa: S608
        "GROUP BY 1 HAVING NOT argMax(released, inserted_at)",
        {"database": place[0], "name": place[1]},
    )
    return {pipeline for (pipeline,) in rows}


def _note(client: Client, config: PipelineConfig, place: Place, before: Mapping[str, str], *, released: bool) -> None:
    pairs = ", ".join(quote_text(text) for pair in before.items() for text in pair)
    execute(
        client,
        f"INSERT INTO {_book(config)} (pipeline_id, database, table, before, released) SETTINGS {WRITE_EVERYWHERE_SQL} "
        f"SELECT {{pipeline:String}}, {{database:String}}, {{name:String}}, "
        f"{f'map({pairs})' if pairs else 'CAST(map(), {})'.format(quote_text('Map(String, String)'))}, {int(released)}",
        {"pipeline": config.pipeline_id, "database": place[0], "name": place[1]},
    )


def _settings_of(client: Client, place: Place) -> dict[str, str]:
    query = "SELECT engine_full FROM system.tables WHERE database = {database:String} AND name = {name:String}"
    found = fetch(client, query, {"database": place[0], "name": place[1]})
    return dict(_SETTING.findall(found[0][0]))


def _put_back(client: Client, change: WindowChange, cluster: str | None) -> str:
    """Write the statement that puts a window back; nothing where that is done."""
    now = _settings_of(client, (change.database, change.table))
    name = f"{full_name(change.database, change.table)}{on_cluster(cluster)}"
    if change.before:
        settings = ", ".join(f"{setting} = {value}" for setting, value in change.before.items())
        return f"ALTER TABLE {name} MODIFY SETTING {settings}"
    return f"ALTER TABLE {name} RESET SETTING {', '.join(now)}" if now else ""


def _book(config: PipelineConfig) -> str:
    return full_name(config.sink.connection_params.database, WINDOWS)
