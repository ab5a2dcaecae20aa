"""The condition of `--where`: SQL from the user, which must not escape the parentheses that it is put into.

The tokens here must be read exactly as ClickHouse reads them: a difference in what counts as a comment, a text or a
bracket would let a condition escape. ClickHouse knows more comments and texts (`# ...`, `// ...`, `$$...$$`,
typographic quotes) than a condition needs, and may add others, so every unknown token is rejected.
"""

import re
from collections.abc import Iterator

from glassflow_dagster.errors import GlassflowError

_TOKEN = re.compile(
    r"""
    # Texts, quoted names and comments: brackets within them do not count.
    (?P<opaque> '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`\\]|\\.|``)*` | --[^\n]* | /\*.*?\*/ )
  | (?P<bracket> [()\[\]{}] )
  | (?P<other> \w+ | [-+*%<>=!.,:?|] | /(?![/*]) )
  | (?P<space> \s+ )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}


class WrongCondition(GlassflowError):
    """The text after --where is not a valid condition on the columns of the dead letter table."""


def within_parentheses(condition: str) -> str:
    """Return a condition in parentheses; raises `WrongCondition` when it would end outside them.

    It has lines of its own, so that a comment at its end does not swallow the closing parenthesis.
    """
    for problem in _problems(condition):  # only the first one is reported
        raise WrongCondition(f"--where {condition!r}: {problem}")
    return f"(\n{condition}\n)"


def _problems(condition: str) -> Iterator[str]:
    """Yield what is wrong: an unknown token, unbalanced brackets, or nothing but blanks and comments."""
    position, empty = 0, True
    unclosed: list[str] = []  # the closing brackets that are still to come, innermost last
    while position < len(condition):
        token = _TOKEN.match(condition, position)
        if token is None:
            yield _unknown_token_problem(condition[position:])
            return
        position = token.end()
        empty = empty and (token.lastgroup == "space" or token[0].startswith(("--", "/*")))
        if token.lastgroup != "bracket":
            continue
        if token[0] in _CLOSED_BY:
            unclosed.append(_CLOSED_BY[token[0]])
        elif not unclosed or unclosed.pop() != token[0]:
            yield f"{token[0]!r} has no opening bracket"
            return
    if empty:
        yield "is empty; write a condition such as stage = 'decode'"
    if unclosed:
        yield f"{unclosed[-1]!r} is missing"


def _unknown_token_problem(text: str) -> str:
    """Return what is wrong with a text that does not begin with a known token.

    Three cases: a semicolon, a quote or comment that is not closed, or any other sign.
    """
    if text.startswith(";"):
        return "';' would end the statement; write one condition"
    if text.startswith(("'", '"', "`", "/*")):
        return "a quote or a comment is not closed"
    sign = text[:2] if text.startswith("//") else text[0]
    return f"{sign!r} is not allowed in a condition; strings are in single quotes, and a comment begins with --"
