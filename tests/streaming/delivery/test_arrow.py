"""The last conversion before ClickHouse: casts at every depth, and no value changes silently."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from glassflow_dagster.config.model.types import parse_column_type
from glassflow_dagster.streaming.delivery.arrow import to_arrow

UINT64 = pa.decimal128(20, 0)


def sent(values: list[Any], carried: pa.DataType, column: str) -> pa.ChunkedArray:
    """Return the Arrow column that is sent for values that Spark carries as this type."""
    return to_arrow(pa.chunked_array([pa.array(values, carried)]), parse_column_type(column))


@pytest.mark.parametrize(
    ("values", "carried", "column", "arrow"),
    [
        ([255, None], pa.int16(), "Nullable(UInt8)", pa.uint8()),
        ([Decimal(2**64 - 1)], UINT64, "UInt64", pa.uint64()),
        ([2**32 - 1], pa.int64(), "LowCardinality(IPv4)", pa.uint32()),
        ([-1], pa.int16(), "Int16", pa.int16()),
        (["1.50", None], pa.string(), "Decimal(50, 2)", pa.decimal256(50, 2)),
        ([Decimal("1.50")], pa.decimal128(38, 2), "Decimal128(2)", pa.decimal128(38, 2)),
        ([[[1], []]], pa.list_(pa.list_(pa.int32())), "Array(Array(UInt16))", pa.list_(pa.list_(pa.uint16()))),
        ([[("a", 1)]], pa.map_(pa.string(), pa.int64()), "Map(String, UInt32)", pa.map_(pa.string(), pa.uint32())),
        (
            [{"a": 1, "b": [(Decimal(2), "3")]}],
            pa.struct([("a", pa.int16()), ("b", pa.map_(UINT64, pa.string()))]),
            "Tuple(a UInt8, b Map(UInt64, Decimal256(1)))",
            pa.struct([("a", pa.uint8()), ("b", pa.map_(pa.uint64(), pa.decimal256(76, 1)))]),
        ),
    ],
)
def test_values_go_out_in_their_columns_type(
    values: list[Any], carried: pa.DataType, column: str, arrow: pa.DataType
) -> None:
    found = sent(values, carried, column)
    assert found.type == arrow
    expected = pa.chunked_array([pa.array(values, carried)]).cast(arrow)
    assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize(
    ("value", "carried", "column"),
    [
        (256, pa.int16(), "UInt8"),
        (-1, pa.int64(), "IPv4"),
        ([-1], pa.list_(pa.int16()), "Array(UInt8)"),
        ([("a", Decimal(2**64))], pa.map_(pa.string(), UINT64), "Map(String, UInt64)"),
        ({"1": "1.234"}, pa.struct([("1", pa.string())]), "Tuple(Decimal(50, 2))"),
    ],
)
def test_a_value_that_does_not_fit_is_never_wrapped(value: Any, carried: pa.DataType, column: str) -> None:
    with pytest.raises(pa.ArrowInvalid):
        sent([value], carried, column)
