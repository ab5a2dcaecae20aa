"""The condition of `--where`: SQL that a person writes, and that must stay within its parentheses."""

import re
from collections.abc import Iterator

from glassflow_dagster.errors import GlassflowError

# Texts, quoted names and comments: whatever they hold has no meaning for the statement around them.
_OPAQUE = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`|--[^\n]*|/\*.*?\*/""", re.DOTALL
)  # fmt: skip
_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}


class WrongCondition(GlassflowError):  # noqa: N818 - named for what is the case
    """The text after --where is no condition on the columns of the dead letter table."""


def within_parentheses(condition: str) -> str:
    """Write a condition so that it stands for itself in a longer one; raises `WrongCondition` where it would not.

    A comment at its end must not take what follows along.
    """
    for problem in _problems(condition):
        raise WrongCondition(f"--where {condition!r}: {problem}")
    return f"(\n{condition}\n)"


def _problems(condition: str) -> Iterator[str]:
    bare = _OPAQUE.sub(" ", condition)
    if not bare.strip():
        yield "is empty; write a condition such as stage = 'decode'"
    if ";" in bare:
        yield "';' would end the statement; write one condition"
    if any(mark in bare for mark in ("'", '"', "`", "/*")):
        yield "a quote or a comment is not closed"
    waiting: list[str] = []
    for character in bare:
        if character in _CLOSED_BY:
            waiting.append(_CLOSED_BY[character])
        elif character in _CLOSED_BY.values() and (not waiting or waiting.pop() != character):
            yield f"{character!r} closes what was not opened"
            return
    if waiting:
        yield f"{waiting[-1]!r} is missing"
