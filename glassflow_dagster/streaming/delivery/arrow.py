"""The Arrow type in which each ClickHouse type is sent.

Spark has no unsigned integers and no decimals beyond 38 digits; the mapping stage carries these in larger types and as
strings. The cast in this module fails on a value that does not fit, where ClickHouse would wrap it silently.
"""

import pyarrow as pa

from glassflow_dagster.config.model.types import ColumnType, decimal_digits

_UNSIGNED = {
    "UInt8": pa.uint8(),
    "UInt16": pa.uint16(),
    "UInt32": pa.uint32(),
    "UInt64": pa.uint64(),
    "IPv4": pa.uint32(),
}
_SPARK_DIGITS = 38


def to_arrow(values: pa.ChunkedArray, column: ColumnType) -> pa.ChunkedArray:
    """Cast a column from Spark to the type that ClickHouse is sent; raise pa.ArrowInvalid where a value is lost."""
    wanted = _arrow_type(values.type, column)
    return values if wanted == values.type else values.cast(wanted)


def _arrow_type(carried: pa.DataType, column: ColumnType) -> pa.DataType:
    """Return the Arrow type to send for a column that arrives from Spark in the type `carried`.

    It is another one for types that Spark lacks: unsigned integers (IPv4 is sent as one), decimals of more than 38
    digits, and these as elements of an Array, Map or Tuple. Any other type is sent as it is.
    """
    # Without Nullable and LowCardinality.
    base = column.base
    if base.name in _UNSIGNED:
        return _UNSIGNED[base.name]
    if base.name.startswith("Decimal"):
        precision, scale = decimal_digits(base)
        return pa.decimal256(precision, scale) if precision > _SPARK_DIGITS else carried
    if base.name == "Array":
        return pa.list_(_arrow_type(carried.value_type, base.inner[0]))
    if base.name == "Map":
        key, item = base.inner
        return pa.map_(_arrow_type(carried.key_type, key), _arrow_type(carried.item_type, item))
    if base.name == "Tuple":
        return pa.struct(
            [(field.name, _arrow_type(field.type, inner)) for field, inner in zip(carried, base.inner, strict=True)]
        )
    return carried
