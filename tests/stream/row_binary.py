"""A reader of ClickHouse's format RowBinary, for tests: written from its documentation, not from the writer.

https://clickhouse.com/docs/interfaces/formats/RowBinary
"""

import base64
import io
import struct
import uuid
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np

from glassflow_dagster.definition.model.types import ColumnType, decimal_digits, second_digits

_NUMBERS = {
    "Int8": "<b", "Int16": "<h", "Int32": "<i", "Int64": "<q", "UInt8": "<B", "UInt16": "<H", "UInt32": "<I",
    "UInt64": "<Q", "Bool": "<?", "IPv4": "<I",
}  # fmt: skip
_BYTES = {"Int128": 16, "UInt128": 16, "Int256": 32, "UInt256": 32, "IPv6": 16}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def read_row(data: bytes, types: Sequence[ColumnType]) -> list[Any]:
    """Return the values of a row; raises AssertionError unless the row ends with the last one.

    Floats, Decimals of up to 38 digits and DateTime64 of more than 6 digits are a Decimal, longer Decimals texts; dates
    and other times ISO texts in UTC; big integers and IPv6 addresses base64; Maps and Tuples dictionaries.
    """
    stream = io.BytesIO(data)
    values = [_read(stream, kind) for kind in types]
    assert not stream.read(), "bytes are left"
    return values


def _read(stream: io.BytesIO, column: ColumnType) -> Any:  # noqa: C901, PLR0911, PLR0912 - a case for each type
    if column.nullable and _number(stream, "<?"):
        return None
    base = column.base
    match base.name:
        case name if name in _NUMBERS:
            return _number(stream, _NUMBERS[name])
        case name if name in _BYTES:
            return base64.b64encode(_bytes(stream, _BYTES[name])).decode()
        case "Float32":
            return Decimal(str(np.float32(_number(stream, "<f"))))
        case "Float64":
            return Decimal(repr(_number(stream, "<d")))
        case "String" | "JSON":
            return _bytes(stream, _varint(stream)).decode()
        case "FixedString":
            return _bytes(stream, base.numbers[0]).rstrip(b"\0").decode()
        case "UUID":
            high, low = _number(stream, "<Q"), _number(stream, "<Q")
            return str(uuid.UUID(int=high << 64 | low)).upper()
        case "Enum8" | "Enum16":
            names = {number: name for name, number in base.arguments}  # type: ignore[misc, union-attr]
            return names[_number(stream, "<b" if base.name == "Enum8" else "<h")]
        case "Date" | "Date32":
            days = _number(stream, "<H" if base.name == "Date" else "<i")
            return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
        case "DateTime":
            return _iso(Decimal(_number(stream, "<I")))
        case "DateTime64":
            digits = second_digits(base)
            seconds = Decimal(_number(stream, "<q")).scaleb(-digits)
            return _iso(seconds) if digits <= 6 else seconds
        case "Array":
            return [_read(stream, base.inner[0]) for _ in range(_varint(stream))]
        case "Map":
            pairs = [(_read(stream, base.inner[0]), _read(stream, base.inner[1])) for _ in range(_varint(stream))]
            return {str(key): value for key, value in pairs}
        case "Tuple":
            names = base.element_names or [str(n + 1) for n in range(len(base.inner))]
            return {name: _read(stream, inner) for name, inner in zip(names, base.inner, strict=True)}
    return _decimal(stream, base)


def _decimal(stream: io.BytesIO, base: ColumnType) -> Decimal | str:
    precision, scale = decimal_digits(base)
    size = next(size for most, size in ((9, 4), (18, 8), (38, 16), (76, 32)) if precision <= most)
    unscaled = int.from_bytes(_bytes(stream, size), "little", signed=True)
    number = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
    return number if precision <= 38 else f"{number:f}"


def _iso(seconds: Decimal) -> str:
    at = _EPOCH + timedelta(microseconds=int(seconds * 1_000_000))
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _number(stream: io.BytesIO, layout: str) -> Any:
    return struct.unpack(layout, _bytes(stream, struct.calcsize(layout)))[0]


def _varint(stream: io.BytesIO) -> int:
    number = shift = 0
    while True:
        byte = _bytes(stream, 1)[0]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number
        shift += 7


def _bytes(stream: io.BytesIO, size: int) -> bytes:
    found = stream.read(size)
    assert len(found) == size, "bytes are missing"
    return found
