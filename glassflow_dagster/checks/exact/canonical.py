"""Canonical texts of values, equal in Spark and ClickHouse, so that rows can be compared by hashes.

Spark formats the values that the mapping produced from a record, ClickHouse those in the table. Types that the two
format differently (floats, decimals, nested values) are not compared, which the report says.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.types import ColumnType, second_digits
from glassflow_dagster.stores.clickhouse.identifiers import quote_name
from glassflow_dagster.stores.clickhouse.table import Table

_MICROSECOND_DIGITS = 6


def row_column(table: int) -> str:
    """Return the name of the STRUCT column with a row's values. table: its position among the sink's tables."""
    return f"row_{table}"


@dataclass(frozen=True)
class Comparable:
    """A column of a table: two expressions, in Spark on its `row_column` and in SQL, for the same text or NULL."""

    name: str
    spark: Column
    sql: str


def comparable(table: Table, name: str, index: int) -> Comparable | None:
    """Return the canonical text of a column; None for a missing one, one with a TTL, or a type that is not compared.

    index: the table's position among the sink's.
    """
    column = table.columns.get(name)
    canonical = _canonical_form(column.type.base) if column and not column.has_ttl else None
    if canonical is None:
        return None
    spark, sql = canonical(F.col(row_column(index)).getField(name), quote_name(name))
    return Comparable(name, spark.cast("string"), f"toString({sql})")


def joined(columns: Sequence[Comparable]) -> tuple[Column, str]:
    """Return the expressions (Spark, SQL) of several columns as one text: `length:value` for each, `-` for NULL."""
    spark = F.concat(
        *(
            F.coalesce(F.concat(F.octet_length(c.spark).cast("string"), F.lit(":"), c.spark), F.lit("-"))
            for c in columns
        )
    )
    parts = (f"ifNull(concat(toString(length({c.sql})), ':', {c.sql}), '-')" for c in columns)
    return spark, f"concat({', '.join(parts)}, '')"


def hashed(columns: Sequence[Comparable]) -> tuple[Column, str]:
    """Return the expressions (Spark, SQL) of the MD5 of several columns, as 32 hexadecimal digits."""
    spark, sql = joined(columns)
    return F.md5(spark), f"lower(hex(MD5({sql})))"


def readable_key(key: str) -> str:
    """Return the text of a key (`joined`) for people: the values without their lengths."""
    values, rest = [], key.encode()
    while rest:
        if rest.startswith(b"-"):
            values.append("NULL")
            rest = rest[1:]
            continue
        length, _, after = rest.partition(b":")
        values.append(after[: int(length)].decode(errors="backslashreplace"))
        rest = after[int(length) :]
    return ", ".join(values)


# From a column in Spark and its quoted name in SQL to the two expressions.
_CanonicalForm = Callable[[Column, str], tuple[Column, str]]


def _canonical_form(kind: ColumnType) -> _CanonicalForm | None:
    """Return how values of a type are formatted alike in Spark and ClickHouse; None when they cannot be."""
    if kind.name in _SAME_TEXT:
        return lambda value, name: (value, name)
    if kind.name == "UUID":
        return lambda value, name: (F.lower(value), f"lower(toString({name}))")
    if kind.name == "IPv4":
        return lambda value, name: (value, f"toUInt32({name})")
    if kind.name == "DateTime":
        return lambda value, name: (F.unix_seconds(value), f"toUnixTimestamp({name})")
    if kind.name == "DateTime64" and second_digits(kind) <= _MICROSECOND_DIGITS:
        # Truncate to the digits of the table's column.
        step = 10 ** (_MICROSECOND_DIGITS - second_digits(kind))
        return lambda value, name: (
            F.floor(F.unix_micros(value) / F.lit(step)).cast("bigint") * F.lit(step),
            f"toUnixTimestamp64Micro(toDateTime64({name}, {_MICROSECOND_DIGITS}))",
        )
    return None


# Types that Spark and ClickHouse format alike.
_SAME_TEXT = frozenset({
    "String", "Bool", "Enum8", "Enum16", "Date", "Date32",
    "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64",
})  # fmt: skip
