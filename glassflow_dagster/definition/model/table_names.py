"""The name of a table in a definition: `TABLE` or `DATABASE.TABLE`, each part in backquotes or not.

The first dot separates the two, as a database's name seldom has one; a table's name with dots is written in backquotes,
or behind its database.
"""

import re

# In backquotes, a backquote in the name is doubled or follows a backslash, as in ClickHouse.
_QUOTED = re.compile(r"`((?:[^`\\]|\\.|``)+)`", re.DOTALL)


def split_table_name(text: str, database: str) -> tuple[str, str]:
    """Return database and table of a name in a definition. database: that of the connection.

    A part that begins with a backquote and does not end with one is a name with a backquote.
    """
    if _QUOTED.fullmatch(text):
        return database, _unquoted(text)
    quoted = _QUOTED.match(text)
    if quoted and text[quoted.end() : quoted.end() + 1] == ".":
        return _unquoted(quoted[0]), _unquoted(text[quoted.end() + 1 :])
    before, dot, after = text.partition(".")
    return (before, _unquoted(after)) if dot else (database, text)


def write_table_name(table: str) -> str:
    """Return how a definition names a table of the connection's database: in backquotes where it needs them."""
    if "." not in table and not _QUOTED.fullmatch(table):
        return table
    return "`" + re.sub(r"([\\`])", r"\\\1", table) + "`"


def _unquoted(part: str) -> str:
    """Return a part of a name without its backquotes."""
    quoted = _QUOTED.fullmatch(part)
    return re.sub(r"\\(.)|``", lambda escaped: escaped[1] or "`", quoted[1], flags=re.DOTALL) if quoted else part
