"""Scope and texts as ClickHouse's SQL writes them.

Definitions name databases, tables and columns freely; every statement goes through here, so that a quote in a name
is part of the name. Texts that are compared with values go as query parameters instead wherever the statement allows.
"""

import re

# A name in an expression as the server writes it: neither a text nor a function.
_NAME = re.compile(r"`((?:[^`\\]|\\.)+)`|'(?:[^'\\]|\\.)*'|\b([A-Za-z_]\w*)\b(?!\s*\()")


def quote_name(name: str) -> str:
    """Write an identifier."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def quote_text(text: str) -> str:
    """Write a text literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def full_name(database: str, table: str) -> str:
    """Write a table's name with its database, quoted for statements."""
    return f"{quote_name(database)}.{quote_name(table)}"


def names_in(expression: str) -> set[str]:
    """Give the names of columns in an expression, and whatever else in it looks like one."""
    return {re.sub(r"\\(.)", r"\1", quoted) if quoted else plain for quoted, plain in _NAME.findall(expression)} - {""}


def on_cluster(cluster: str | None) -> str:
    """Write the clause that runs a statement on each server of a cluster; nothing for none."""
    return f" ON CLUSTER {quote_name(cluster)}" if cluster else ""
