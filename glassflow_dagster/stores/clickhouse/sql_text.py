"""Splits SQL as ClickHouse formats it: lists at their commas, and a CREATE TABLE query into its columns.

This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import re
from collections.abc import Iterator

# A text, a quoted name, a word, or any other character.
_TOKEN = re.compile(r"'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`|\w+|.", re.DOTALL)
_COLUMN = re.compile(r"\s*`((?:[^`\\]|\\.)+)`\s")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def top_level_tokens(text: str) -> Iterator[tuple[int, str]]:
    """Yield (position, token) of the tokens of SQL that are not within parentheses or brackets."""
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(token, 0)
        if depth == 0:
            yield match.start(), token


def split_at_commas(text: str) -> Iterator[str]:
    """Yield the items of a list in SQL, split at its top-level commas; nothing for an empty list."""
    begin = 0
    for position, lexeme in top_level_tokens(text):
        if lexeme == ",":
            yield text[begin:position].strip()
            begin = position + 1
    if text[begin:].strip():
        yield text[begin:].strip()


def columns_with_ttl(create_query: str) -> frozenset[str]:
    """Return the columns of a table that have a TTL of their own, after which the server empties their values.

    create_query: `create_table_query` of system.tables, whose columns stand in the first parentheses, with quoted
    names. Indexes, projections and constraints stand there, too; they begin with a keyword.
    """
    tokens = _TOKEN.finditer(create_query)
    begin = next((match.end() for match in tokens if match[0] == "("), None)
    if begin is None:
        return frozenset()
    found = set()
    for item in split_at_commas(create_query[begin : _end_of_parentheses(create_query, begin)]):
        name = _COLUMN.match(item)
        if name and any(lexeme == "TTL" for _, lexeme in top_level_tokens(item[name.end() :])):
            found.add(_ESCAPED.sub(r"\1", name[1]))
    return frozenset(found)


def _end_of_parentheses(text: str, begin: int) -> int:
    """Return the position of the parenthesis that closes the one before `begin`; the text's end where none does."""
    depth = 1
    for match in _TOKEN.finditer(text, begin):
        depth += {"(": 1, ")": -1}.get(match[0], 0)
        if depth == 0:
            return match.start()
    return len(text)
