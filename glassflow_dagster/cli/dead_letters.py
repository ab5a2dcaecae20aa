"""The commands about dead letters: look at them, send them again, delete them."""

import json
from pathlib import Path
from typing import Any

import click

from glassflow_dagster.cli.options import json_option, pipelines_option, readable, report
from glassflow_dagster.config.folder import find_definition

# Letters that `list` shows to people unless told otherwise; as JSON it gives all.
SHOWN = 100
_WIDTHS = {"value": 40, "reason": 90}

where_option = click.option(
    "--where", default="1", metavar="SQL",
    help="Only letters for which this holds: a condition on the table's columns and `replayed`.",
)  # fmt: skip


@click.group("dead-letters")
def dead_letters() -> None:
    """Records that could not go on."""


@dead_letters.command("list")
@click.argument("pipeline")
@pipelines_option
@where_option
@click.option("--limit", type=click.IntRange(min=0), help=f"How many, newest first.  [default: {SHOWN}; JSON: all]")
@json_option
@readable
def list_letters(pipeline: str, pipelines: Path, where: str, limit: int | None, as_json: bool) -> None:
    """Show dead letters, newest first."""
    from glassflow_dagster.dead_letters import store as stores

    _, config = find_definition(pipeline, pipelines)
    store = stores.DeadLetterStore.open(config)
    if as_json:
        found = store.read(where, newest_first=True, limit=limit)
        click.echo(json.dumps([stores.as_json(letter) for letter in found], indent=2, ensure_ascii=False))
        return
    limit = SHOWN if limit is None else limit
    rows = [_row(letter) for letter in store.read(where, newest_first=True, limit=limit)]
    for line in _table(("record", "batch time", "stage", "attempt", "replayed", "reason", "value"), rows):
        click.echo(line)
    count = store.count(where)
    more = f"; {count - len(rows):,} more, --limit shows them" if count > len(rows) else ""
    report(f"{count:,} dead letter{'' if count == 1 else 's'}{more}")


@dead_letters.command("replay")
@click.argument("pipeline")
@pipelines_option
@where_option
@readable
def replay_letters(pipeline: str, pipelines: Path, where: str) -> None:
    """Send dead letters to their pipeline again, each of them once; may be interrupted and repeated."""
    from glassflow_dagster.dead_letters.replay import replay

    _, config = find_definition(pipeline, pipelines)
    for line in replay(config, where, report).lines(config.dead_letters.max_attempts):
        click.echo(line)


@dead_letters.command("purge")
@click.argument("pipeline")
@pipelines_option
@where_option
@readable
def purge_letters(pipeline: str, pipelines: Path, where: str) -> None:
    """Delete dead letters, replayed or not; `--where replayed` deletes those that were sent again."""
    from glassflow_dagster.dead_letters.purge import purge
    from glassflow_dagster.dead_letters.store import DeadLetterStore

    _, config = find_definition(pipeline, pipelines)
    deleted = purge(DeadLetterStore.open(config), where)
    click.echo(f"deleted: {deleted:,}")


def _row(letter: Any) -> tuple[str, ...]:
    from glassflow_dagster.dead_letters.store import as_json

    return (
        f"{letter.topic}/{letter.partition}/{letter.offset}",
        as_json(letter)["batch_time"].replace("+00:00", ""),
        letter.stage,
        str(letter.attempt),
        "yes" if letter.replayed else "",
        _cut(_printable(letter.reason), _WIDTHS["reason"]),
        "(none)" if letter.value is None else _cut(_printable(_text(letter.value)), _WIDTHS["value"]),
    )


def _text(value: bytes) -> str:
    """Read bytes as text; what no one will see is not looked at."""
    return value[: 4 * _WIDTHS["value"]].decode(errors="backslashreplace")


def _printable(text: str) -> str:
    """Write a text so that a terminal shows it and obeys none of it."""
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (heads, *rows)]  # fmt: skip
