"""Makes text that others have written safe to show: names of fields, values, reasons, answers of servers.

A field's name may have line ends, by which it would look like several messages, escape sequences, which a terminal
obeys, and Markdown. There is a function for each place where text is shown; it is applied where the text leaves.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

# Control characters, line ends of Unicode, and what reverses the direction of text; half a surrogate pair is no text.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_KEPT = "\n\t"
# The beginnings of a line by which Markdown would take it for a heading, a list, a quotation, a table or code.
_BLOCK = re.compile(r"^(?:[#>+|=~`-]|\d+(?=[.)]))")
# What begins a link's or an image's address, and a tag.
_INLINE = re.compile(r"(?<=\])\(|<")
_ESCAPED = re.compile(r"\\([#>+|=~`(<.)-])")


def one_line(text: str) -> str:
    r"""Return a text for a part of a line, with escapes for what no line has, such as \n and \x1b."""
    return _UNSAFE.sub(_escaped, text)


def printable(text: str) -> str:
    """Return a text for a terminal: as `one_line`, but with its line ends and tabs."""
    return _UNSAFE.sub(lambda found: found[0] if found[0] in _KEPT else _escaped(found), text)


def log_entry(text: str) -> str:
    """Return a text for a log: as `printable`, with further lines indented, so that none looks like another entry."""
    return printable(text).replace("\n", "\n  ")


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON for a terminal, with JSON's escapes for what `printable` escapes."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return _UNSAFE.sub(lambda found: found[0] if found[0] in _KEPT else json.dumps(found[0])[1:-1], text)


def markdown(text: str) -> str:
    """Return a text as Markdown that shows its lines as they are, without links and tags; `from_markdown` undoes it."""
    lines = (_INLINE.sub(r"\\\g<0>", line.strip()) for line in printable(text).split("\n"))
    return "  \n".join(_BLOCK.sub(_escaped_block, line) for line in lines)


def from_markdown(text: str) -> str:
    """Return the text that `markdown` was given."""
    return _ESCAPED.sub(r"\1", text.replace("  \n", "\n"))


def code(text: str) -> str:
    """Return a text as code within a line of Markdown."""
    shown = one_line(text)
    fence = "`" * (_longest_run(shown) + 1)
    # With blanks, of which Markdown removes one at each end, where the text itself begins or ends with a backquote.
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def code_block(text: str) -> str:
    """Return a text as a block of code in Markdown, which none of its lines can end."""
    fence = "`" * max(3, _longest_run(text) + 1)
    return f"{fence}\n{printable(text)}\n{fence}"


def slack_text(text: str) -> str:
    """Return a text for Slack, in which it mentions nobody and is no link."""
    return printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def printable_values(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures of which the texts are `printable`."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in figures.items()}


def _escaped(found: re.Match[str]) -> str:
    return repr(found[0])[1:-1]


def _escaped_block(start: re.Match[str]) -> str:
    """Return the beginning of a line with a backslash before its mark: of a numbered list, behind the number."""
    return f"{start[0]}\\" if start[0].isdigit() else f"\\{start[0]}"


def _longest_run(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
