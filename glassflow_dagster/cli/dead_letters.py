"""The commands that list, replay and delete dead letters."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from glassflow_dagster.cli.options import exit_on_error, json_option, pipelines_option, report, show, show_json
from glassflow_dagster.definition.folder import find_definition
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.safe_text import one_line

if TYPE_CHECKING:
    from glassflow_dagster.stores.bookkeeping.dead_letter_table import DeadLetter
    from glassflow_dagster.stores.kafka.protobuf_values import Ask
    from glassflow_dagster.stores.kafka.schema_values import ValueReader

# Rows of the table that `list` prints without --limit; JSON output has no default limit.
DEFAULT_LIMIT = 100
_WIDTHS = {"value": 40, "reason": 90}

where_option = click.option(
    "--where", default="1", metavar="SQL",
    help="Only dead letters that match this SQL condition on the table's columns and `replayed`.",
)  # fmt: skip


@click.group("dead-letters")
def dead_letters() -> None:
    """List, replay and delete dead letters: records that failed and were set aside."""


@dead_letters.command("list")
@click.argument("pipeline")
@pipelines_option
@where_option
@click.option(
    "--limit", type=click.IntRange(min=0), help=f"Maximum number, newest first.  [default: {DEFAULT_LIMIT}; JSON: all]"
)
@json_option
@exit_on_error
def list_dead_letters(pipeline: str, pipelines: Path, where: str, limit: int | None, as_json: bool) -> None:
    """List dead letters, newest first."""
    from glassflow_dagster.stores.dead_letters import store as stores

    config = find_definition(pipeline, pipelines)
    store = stores.DeadLetterStore.open(config)
    if limit is None and not as_json:
        limit = DEFAULT_LIMIT
    with _decoder(config) as decode:
        selected = [(each, decode(each)) for each in store.read(where, newest_first=True, limit=limit)]
    if as_json:
        objects = [stores.as_json(dead_letter, decoded) for dead_letter, decoded in selected]
        show_json(objects)
        return
    rows = [_row(dead_letter, decoded) for dead_letter, decoded in selected]
    for line in _table(("record", "batch time", "stage", "attempt", "replayed", "reason", "value"), rows):
        show(line)
    count = store.count(where)
    more = f"; {count - len(rows):,} more, --limit shows them" if count > len(rows) else ""
    report(f"{count:,} dead letter{'' if count == 1 else 's'}{more}")


@dead_letters.command("replay")
@click.argument("pipeline")
@pipelines_option
@where_option
@exit_on_error
def replay_dead_letters(pipeline: str, pipelines: Path, where: str) -> None:
    """Send dead letters to their pipeline again, each one once. Safe to interrupt and to repeat."""
    from glassflow_dagster.stores.dead_letters.replay import replay

    config = find_definition(pipeline, pipelines)
    for line in replay(config, where, report).lines(config.dead_letters.max_attempts):
        show(line)


@dead_letters.command("purge")
@click.argument("pipeline")
@pipelines_option
@where_option
@exit_on_error
def purge_dead_letters(pipeline: str, pipelines: Path, where: str) -> None:
    """Delete dead letters, replayed or not; `--where replayed` deletes only the replayed ones."""
    from glassflow_dagster.stores.dead_letters.purge import purge
    from glassflow_dagster.stores.dead_letters.store import DeadLetterStore

    config = find_definition(pipeline, pipelines)
    deleted = purge(DeadLetterStore.open(config), where)
    show(f"deleted: {deleted:,}")


@contextmanager
def _decoder(config: PipelineConfig) -> Iterator[Callable[["DeadLetter"], dict[str, Any] | None]]:
    """Yield a function that decodes a dead letter's value by its schema, or returns None.

    It stops asking a schema registry that has not answered, and says so.
    """
    from glassflow_dagster.stores.dead_letters.store import decoded_value
    from glassflow_dagster.stream.scala.reader_process import ReaderProcess

    with ReaderProcess(report) as process:
        # By source: the topics of a pattern are not known here.
        readers = {source.source_id: _reader(source, process.ask) for source in config.inputs}

        def decode(dead_letter: "DeadLetter") -> dict[str, Any] | None:
            origin = dead_letter.origin_topic or dead_letter.topic
            source = next((source for source in config.inputs if origin in source.topic_names), config.source)
            try:
                return decoded_value(dead_letter, readers.get(source.source_id))
            except GlassflowError as problem:
                report(f"warning: values are shown encoded: {problem}")
                readers.clear()
                return None

        yield decode


def _reader(source: Source, ask: "Ask") -> "ValueReader | None":
    """Return the reader of a source's values; None where they have no schema."""
    from glassflow_dagster.stores.kafka.avro_values import AvroReader
    from glassflow_dagster.stores.kafka.protobuf_values import ProtobufReader

    return ProtobufReader.of(source, ask) if source.format == "protobuf" else AvroReader.of(source)


def _row(dead_letter: "DeadLetter", decoded: dict[str, Any] | None) -> tuple[str, ...]:
    """Return the cells of a dead letter's line: record, batch time, stage, attempt, replayed, reason, value."""
    from glassflow_dagster.stores.dead_letters.store import as_json

    text = _text(dead_letter.value or b"") if decoded is None else json.dumps(decoded, ensure_ascii=False)
    return (
        dead_letter.position,
        # In UTC, like all times here, so without the offset.
        as_json(dead_letter)["batch_time"].replace("+00:00", ""),
        dead_letter.stage,
        str(dead_letter.attempt),
        "yes" if dead_letter.replayed else "",
        _cut(one_line(dead_letter.reason), _WIDTHS["reason"]),
        "(none)" if dead_letter.value is None else _cut(one_line(text), _WIDTHS["value"]),
    )


def _text(value: bytes) -> str:
    """Decode the beginning of a record's value, some characters more than the column is wide."""
    return value[: 4 * _WIDTHS["value"]].decode(errors="backslashreplace")


def _cut(text: str, width: int) -> str:
    """Shorten a text to `width` characters, with "..." at its end."""
    return text if len(text) <= width else text[: width - 3] + "..."


def _table(headings: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Align rows under their headings; returns the lines."""
    widths = [max(map(len, column)) for column in zip(headings, *rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (headings, *rows)]  # fmt: skip
