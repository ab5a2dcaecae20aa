"""Identifiers and text literals in ClickHouse's SQL.

Definitions name databases, tables and columns freely; every statement goes through here, so that a quote in a name
is part of the name. Texts that are compared with values go as query parameters instead wherever the statement allows.
"""

import re
from uuid import uuid4

# A name in an expression as the server formats it; texts match too, without a group, so that names in them do not.
_NAME = re.compile(r"`((?:[^`\\]|\\.)+)`|'(?:[^'\\]|\\.)*'|\b([A-Za-z_]\w*)\b(?!\s*\()")


def quote_name(name: str) -> str:
    """Return a quoted identifier."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quote_text(text: str) -> str:
    """Return a text literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def full_name(database: str, table: str) -> str:
    """Return the quoted name `database.table`."""
    return f"{quote_name(database)}.{quote_name(table)}"


def own_alias(meaning: str) -> str:
    """Return an alias for a query over a user's table that no column of the table has, as part of it is random.

    An alias hides a column of the same name in the whole SELECT, and a producer may name columns (`schema_evolution`).
    """
    return f"{meaning}_{uuid4().hex}"


def names_in(expression: str) -> set[str]:
    """Return the column names in an expression, and every other word in it that may be one (keywords, units)."""
    return {re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for quoted, plain in _NAME.findall(expression)} - {""}


def on_cluster(cluster: str | None) -> str:
    """Return the ON CLUSTER clause, with a leading space; '' when there is no cluster."""
    return f" ON CLUSTER {quote_name(cluster)}" if cluster else ""
