"""The condition of `--where`: SQL that a person writes, and that must stay within its parentheses.

It is read as ClickHouse reads it, or not at all: what one of the two took for a comment or a text and the other for
brackets would reach beyond. ClickHouse knows more of both (`# ...`, `// ...`, `$$...$$`, typographic quotes) than a
condition needs, and may come to know others, so whatever is not known here is refused.
"""

import re
from collections.abc import Iterator

from glassflow_dagster.errors import GlassflowError

_TOKEN = re.compile(
    r"""
    # Whatever these hold has no meaning for the statement around them.
    (?P<opaque> '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`\\]|\\.|``)*` | --[^\n]* | /\*.*?\*/ )
  | (?P<bracket> [()\[\]{}] )
  | (?P<other> \w+ | [-+*%<>=!.,:?|] | /(?![/*]) )
  | (?P<space> \s+ )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}


class WrongCondition(GlassflowError):
    """The text after --where is no condition on the columns of the dead letter table."""


def within_parentheses(condition: str) -> str:
    """Write a condition so that it stands for itself in a longer one; raises `WrongCondition` where it would not.

    A comment at its end must not take what follows along.
    """
    for problem in _problems(condition):
        raise WrongCondition(f"--where {condition!r}: {problem}")
    return f"(\n{condition}\n)"


def _problems(condition: str) -> Iterator[str]:
    position, waiting, empty = 0, [], True
    while position < len(condition):
        token = _TOKEN.match(condition, position)
        if token is None:
            yield _unknown(condition[position:])
            return
        position = token.end()
        empty = empty and (token.lastgroup == "space" or token[0].startswith(("--", "/*")))
        if token.lastgroup != "bracket":
            continue
        if token[0] in _CLOSED_BY:
            waiting.append(_CLOSED_BY[token[0]])
        elif not waiting or waiting.pop() != token[0]:
            yield f"{token[0]!r} closes what was not opened"
            return
    if empty:
        yield "is empty; write a condition such as stage = 'decode'"
    if waiting:
        yield f"{waiting[-1]!r} is missing"


def _unknown(rest: str) -> str:
    """Say what is wrong with a text that begins with no token."""
    if rest.startswith(";"):
        return "';' would end the statement; write one condition"
    if rest.startswith(("'", '"', "`", "/*")):
        return "a quote or a comment is not closed"
    sign = rest[:2] if rest.startswith("//") else rest[0]
    return f"{sign!r} has no meaning in a condition; texts are in single quotes, and a comment begins with --"
