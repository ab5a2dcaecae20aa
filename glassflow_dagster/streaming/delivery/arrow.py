"""The Arrow type in which each ClickHouse type is sent.

Spark has no unsigned integers and no decimals beyond 38 digits; the mapping carries them in larger types and as
texts. The last step, a cast here, fails on a value that does not fit: ClickHouse would wrap it in silence.
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
    """Cast a column as it comes from Spark to what ClickHouse is sent; raises pa.ArrowInvalid where a value is lost."""
    wanted = _arrow_type(values.type, column)
    return values if wanted == values.type else values.cast(wanted)


def _arrow_type(carried: pa.DataType, column: ColumnType) -> pa.DataType:
    """Give the type to send; what Spark carries as it is stays, at every depth."""
    base = column.base
    if base.name in _UNSIGNED:
        return _UNSIGNED[base.name]
    if base.name.startswith("Decimal") and decimal_digits(base)[0] > _SPARK_DIGITS:
        return pa.decimal256(*decimal_digits(base))
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
