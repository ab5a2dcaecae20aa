"""Converts fields to ClickHouse columns, and checks everything that ClickHouse would change silently.

ClickHouse's Arrow input wraps integers (300 into Int8 becomes 44) and turns NULL into '' or 0 where a column is not
Nullable. So ranges, lengths, names of enums, digits and nulls are checked here, at every depth of a nested value. That
is before deduplication: a record that does not fit becomes a dead letter and does not enter its key into the state. The
rules of each type are in scala/types/Converter.scala and scala/types/NestedValues.scala; this module describes the
columns to them.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.config.model.sink import Mapping as ColumnMapping
from glassflow_dagster.config.model.types import ColumnType, decimal_digits, second_digits
from glassflow_dagster.streaming.stages.errors import is_active, set_error
from glassflow_dagster.streaming.stages.scope import Scope


def map_columns(
    events: DataFrame, mapping: Sequence[ColumnMapping], scope: Scope, types: Mapping[str, ColumnType]
) -> DataFrame:
    """Convert fields to the target's columns.

    Columns in: the columns in scope, error, drop_reason. Column added: row STRUCT (one field per mapped column, in the
    mapping's order), NULL for a record that is dropped or a dead letter. error is set where a value does not fit.

    types: the target table's actual types by column name; they decide what may be NULL and which names an Enum has.
    """
    values = F.struct(*(scope.mappable[m.name].alias(f"c{index}") for index, m in enumerate(mapping)))
    spec = [
        {"column": m.column_name, "kind": scope.kinds[m.name], "type": _type_spec(types[m.column_name])}
        for m in mapping
    ]
    mapped = F.call_function("glassflow_map", values, F.lit(json.dumps(spec)))
    # A column of its own first: the conversion runs once, whatever refers to it.
    converted = events.withColumn("_mapped", F.when(is_active(), mapped))
    checked = set_error(converted, "mapping", F.col("_mapped.reason"))
    return checked.withColumn("row", F.col("_mapped.row")).drop("_mapped")


def _type_spec(column: ColumnType) -> dict[str, Any]:
    """Return a type's description for scala/types/Converter.scala (ColumnSpec).

    text is the whole type, base the type without Nullable and LowCardinality; the keys after nullable are of the base.
    """
    base = column.base
    return {
        "name": "Decimal" if base.name.startswith("Decimal") else base.name,
        "text": str(column),
        "base": str(base),
        "nullable": column.nullable,
        "numbers": _numbers(base),
        "names": base.element_names or base.value_names,
        "inner": [_type_spec(inner) for inner in base.inner],
    }


def _numbers(base: ColumnType) -> tuple[int, ...]:
    """Return a type's numbers: precision and scale, the digits of a DateTime64's fraction, or a length."""
    if base.name.startswith("Decimal"):
        return decimal_digits(base)
    return (second_digits(base),) if base.name == "DateTime64" else base.numbers
