"""What a request asks for: the statement, cut from the data that follows it.

ClickHouse's HTTP interface takes the statement from the `query` parameter, from the body, or from both one after
the other, and lets the data of an INSERT follow its `FORMAT X` or `VALUES` in the same stream of bytes. Only a
tokenizer can tell where that is: both words may also stand in strings, comments, names and subqueries.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    rb"""
    (?P<space> \s+ | --[^\n]* | \#[!\ ][^\n]* | /\*.*?\*/ )
  | (?P<quoted> '(?:[^'\\]|\\.|'')*' | "(?:[^"\\]|\\.|"")*" | `(?:[^`\\]|\\.|``)*` | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ )
  | (?P<word> [A-Za-z_]\w* )
  | (?P<open> [(\[{] )
  | (?P<close> [)\]}] )
  | (?P<other> . )
    """,
    re.VERBOSE | re.DOTALL,
)

# What ClickHouse skips between `FORMAT X` and the data: blanks and one line end.
_BEFORE_DATA = re.compile(rb"[ \t\f]*\r?\n?")


@dataclass(frozen=True)
class Insert:
    """An INSERT whose data follows: target and columns, SETTINGS clause or '', format, and the data's first bytes."""

    header: str
    settings: str
    data_format: str
    data: bytes


@dataclass(frozen=True)
class _Token:
    kind: str
    text: bytes
    start: int
    end: int

    @property
    def keyword(self) -> bytes:
        return self.text.upper() if self.kind == "word" else b""


def _top_level(text: bytes) -> Iterator[_Token]:
    """The tokens outside of all brackets, without blanks and comments."""
    depth = 0
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or ""
        kind = "quoted" if kind == "tag" else kind
        if kind == "close":
            depth -= 1
        elif kind == "open":
            depth += 1
        elif depth == 0 and kind != "space":
            yield _Token(kind, match[0], match.start(), match.end())


def split_insert(text: bytes) -> Insert | None:
    """The INSERT at the start of `text` (statement and first bytes of its data).

    None for every other statement, and for an INSERT that brings no data (`INSERT ... SELECT`, `FROM INFILE`).
    """
    tokens = _top_level(text)
    if next(tokens, _NOTHING).keyword != b"INSERT":
        return None
    end = settings = len(text)
    for token in tokens:
        if token.keyword in {b"SELECT", b"WITH", b"FROM"}:
            return None
        if token.keyword == b"SETTINGS":
            settings = token.start
        if token.keyword == b"VALUES":
            return _insert(text, settings, token.start, "Values", text[token.end :])
        if token.keyword == b"FORMAT":
            name = next(tokens, _NOTHING)
            if name.kind != "word":
                return None
            skipped = _BEFORE_DATA.match(text, name.end)
            data = text[skipped.end() if skipped else name.end :]
            # VALUES is a format and a keyword; both spellings mean the same.
            return _insert(text, settings, token.start, name.text.decode(), data)
        if token.text == b";":
            end = token.start
            break
    return _insert(text, settings, end, "Values", b"")


def _insert(text: bytes, settings: int, end: int, data_format: str, data: bytes) -> Insert:
    """Cut an INSERT's text at its SETTINGS clause, if it has one before `end`."""
    cut = min(settings, end)
    return Insert(text[:cut].decode(), text[cut:end].decode(), data_format, data)


def is_select(text: bytes) -> bool:
    """Whether the statement is a SELECT, the one kind that the engine answers piece by piece."""
    return next(_top_level(text), _NOTHING).keyword in {b"SELECT", b"WITH"}


def split_format(text: bytes, default: str) -> tuple[str, str]:
    """A query without its own FORMAT clause, and the format that clause names, or `default`."""
    tokens = list(_top_level(text))
    for position in range(len(tokens) - 2, -1, -1):
        clause, name = tokens[position : position + 2]
        if clause.keyword == b"FORMAT" and name.kind == "word":
            rest = tokens[position + 2 :]
            if not rest or rest[0].keyword == b"SETTINGS" or rest[0].text == b";":
                return (text[: clause.start] + text[name.end :]).decode(), name.text.decode()
    return text.decode(), default


_NOTHING = _Token("", b"", 0, 0)
