"""Write a definition as YAML with comments: short objects on one line, the comments of a list's items aligned."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from glassflow_dagster.definition.yaml_text import write_flow

# Greatest column at which comments are aligned, so that one long name does not move all of them.
COMMENT_COLUMN = 80
COMMENT_WIDTH = 110  # characters of a line of comment
# Parts that are written over several lines; all others stand on one.
_PARTS = frozenset({"sources", "transforms", "sink", "connection_params", "schema_registry", "schema", "create_table"})
# Lists with a line for each item.
_TABLES = frozenset({"schema_fields", "mapping"})


@dataclass(frozen=True)
class Comments:
    """Comments by the path of a part, as `sources[0].topic`: at the end of its line, and whole lines around it."""

    at_end: dict[str, str] = field(default_factory=dict)
    before: dict[str, list[str]] = field(default_factory=dict)
    after: dict[str, list[str]] = field(default_factory=dict)


def write_commented(definition: dict[str, Any], comments: Comments) -> str:
    """Return a definition as YAML, its keys in their order."""
    return "\n".join(_object(definition, comments)) + "\n"


def comment(text: str, indent: int = 0) -> list[str]:
    """Return a comment as lines of at most COMMENT_WIDTH characters."""
    start = f"{' ' * indent}# "
    return textwrap.wrap(
        text,
        COMMENT_WIDTH,
        initial_indent=start,
        subsequent_indent=start,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _object(part: dict[str, Any], comments: Comments, path: str = "", indent: int = 0) -> Iterator[str]:
    """Yield the lines of an object without their indentation, which is of `indent` characters."""
    for key, value in part.items():
        here = f"{path}.{key}" if path else key
        yield from comments.before.get(here, ())
        whole = key not in _PARTS | _TABLES
        line = f"{key}: {write_flow([value])[1:-1]}" if whole else f"{key}:"
        yield _with_comment(line, comments.at_end.get(here, ""))
        if key in _TABLES:
            yield from _table(value, comments, here, COMMENT_COLUMN - indent)
        elif isinstance(value, list) and not whole:
            yield from _list(value, comments, here, indent + 4)
        elif not whole:
            yield from (f"  {each}" for each in _object(value, comments, here, indent + 2))
        yield from comments.after.get(here, ())


def _list(items: Sequence[dict[str, Any]], comments: Comments, path: str, indent: int) -> Iterator[str]:
    """Yield the lines of a list of objects."""
    for index, item in enumerate(items):
        here = f"{path}[{index}]"
        yield from comments.before.get(here, ())
        first, *rest = _object(item, comments, here, indent)
        yield f"  - {first}"
        yield from (f"    {each}" for each in rest)


def _table(items: Sequence[dict[str, Any]], comments: Comments, path: str, most: int) -> Iterator[str]:
    """Yield a line for each object of a list, the comments aligned in one column, `most` at the most."""
    lines = [f"  - {write_flow(item)}" for item in items]
    width = min(max(map(len, lines), default=0), most)
    for index, line in enumerate(lines):
        remark = comments.at_end.get(f"{path}[{index}]", "")
        yield _with_comment(f"{line:<{width}}" if remark else line, remark)


def _with_comment(line: str, text: str) -> str:
    return f"{line}  # {text}" if text else line
