"""Mapping in Scala (scala/types/Converter.scala): converts fields to ClickHouse columns, and checks their values.

A row leaves this stage in ClickHouse's own format RowBinary, so nothing checks its values after it: ranges, lengths,
names of enums, digits and nulls are checked here, at every depth of a nested value. That is before deduplication: a
record that does not fit becomes a dead letter and does not enter its key into the state. This module describes the
columns to Converter.scala and scala/types/NestedValues.scala, which have the rules of each type.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.sink import Mapping as ColumnMapping
from glassflow_dagster.definition.model.types import ColumnType, decimal_digits, second_digits
from glassflow_dagster.stream.stages.error_column import is_active, set_error
from glassflow_dagster.stream.stages.route import TABLE_INDEX, TABLE_INDEXES
from glassflow_dagster.stream.stages.scope import Scope, struct_of


@dataclass(frozen=True)
class TableColumns:
    """The columns of one of the sink's tables that are filled.

    name: `database.table`.
    types: the table's actual types by column name; they decide what may be NULL and which names an Enum has.
    """

    name: str
    mapping: Sequence[ColumnMapping]
    types: Mapping[str, ColumnType]


def map_columns(events: DataFrame, tables: Sequence[TableColumns], scope: Scope) -> DataFrame:
    """Convert fields to the columns of the event's table.

    tables: in the order of `Sink.by_table`. Columns in: the columns in scope, error, drop_reason, and with several
    tables table_index as `choose_table` adds it. Column added: row, NULL for a record that is dropped or a dead letter:
    BINARY (the values of the mapped columns in RowBinary, in the mapping's order), and with several tables
    STRUCT<table INT, values BINARY>. error is set where a value does not fit.
    """
    mapped: Any = F  # begins a CASE by the method that goes on with one
    for index, table in enumerate(tables):
        is_of_table = is_active() if len(tables) == 1 else is_active() & (F.col(TABLE_INDEX) == index)
        mapped = mapped.when(is_of_table, _converted(table, scope))
    # A column of its own first: the conversion runs once, whatever refers to it.
    converted = events.withColumn("_mapped", mapped)
    checked = set_error(converted, "mapping", F.col("_mapped.reason"))
    row = F.col("_mapped.row")
    if len(tables) > 1:
        row = F.when(row.isNotNull(), F.struct(F.col(TABLE_INDEX).alias("table"), row.alias("values")))
    return checked.withColumn("row", row).drop("_mapped", TABLE_INDEX)


def map_columns_of_all(events: DataFrame, tables: Sequence[TableColumns], scope: Scope) -> DataFrame:
    """Convert fields to the columns of each table that takes the event.

    tables: in the order of `Sink.by_table`. Columns in: as of `map_columns`, with table_indexes as `choose_tables` adds
    it. Column added: row ARRAY<STRUCT<table INT, values BINARY>>, as the row of `map_columns`, for each table. error is
    set where a value does not fit into one of them: then the event goes to none.
    """
    names = [f"_mapped_{index}" for index in range(len(tables))]
    for index, (name, table) in enumerate(zip(names, tables, strict=True)):
        is_taken = is_active() & F.array_contains(TABLE_INDEXES, index)
        # A column of its own first: the conversion runs once, whatever refers to it.
        events = events.withColumn(name, F.when(is_taken, _converted(table, scope)))
    reasons = [
        F.concat(F.col(name)["reason"], F.lit(f" (for {table.name})"))
        for name, table in zip(names, tables, strict=True)
    ]
    checked = set_error(events, "mapping", F.coalesce(*reasons))
    values = [(index, F.col(name)["row"]) for index, name in enumerate(names)]
    rows = [
        F.when(of_table.isNotNull(), F.struct(F.lit(index).alias("table"), of_table.alias("values")))
        for index, of_table in values
    ]
    row = F.when(is_active(), F.array_compact(F.array(*rows)))
    return checked.withColumn("row", row).drop(*names, TABLE_INDEXES)


def _converted(table: TableColumns, scope: Scope) -> Column:
    """Return the values of a table's columns, STRUCT<row BINARY, reason STRING>; one of the two is NULL."""
    positions = scope.in_struct.positions
    struct = F.col(scope.in_struct.column) if positions else struct_of([])
    computed = [m.name for m in table.mapping if m.name not in positions]
    values = struct_of([scope.mappable[name] for name in computed])
    spec = [
        {
            "column": m.column_name,
            "kind": scope.kinds[m.name],
            "type": _type_spec(table.types[m.column_name]),
            "in_struct": m.name in positions,
            "position": positions[m.name] if m.name in positions else computed.index(m.name),
        }
        for m in table.mapping
    ]
    return F.call_function("glassflow_map", struct, values, F.lit(json.dumps(spec)))


def read_values(row: Column, table: TableColumns) -> Column:
    """Return the values of a row of `map_columns`, BINARY, as a STRUCT of the mapped columns.

    Only types that `scala/types/RowReader.scala` names; the others' values are NULL.
    """
    spec = [{"column": m.column_name, "type": _type_spec(table.types[m.column_name])} for m in table.mapping]
    return F.call_function("glassflow_values", row, F.lit(json.dumps(spec)))


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
    """Return a type's numbers: precision and scale, a DateTime64's digits, a length, or those of an Enum's values."""
    if base.value_names:
        return tuple(argument[1] for argument in base.arguments if isinstance(argument, tuple))
    if base.name.startswith("Decimal"):
        return decimal_digits(base)
    return (second_digits(base),) if base.name == "DateTime64" else base.numbers
