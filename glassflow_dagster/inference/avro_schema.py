"""The fields that an Avro schema declares, with the declared types and columns that keep their values."""

from collections.abc import Iterator, Mapping
from typing import Any

from glassflow_dagster.inference.columns import ColumnChoice
from glassflow_dagster.inference.events import Declared
from glassflow_dagster.inference.fields import MAX_DEPTH

Schema = Any
Named = Mapping[str, Schema]

# Type, or logical type, -> declared type and column. Other logical types count as the plain type, as Avro demands.
_PLAIN = {
    "boolean": ("bool", "Bool"), "int": ("int", "Int32"), "long": ("int", "Int64"), "float": ("float", "Float32"),
    "double": ("float", "Float64"), "string": ("string", "String"), "enum": ("string", "LowCardinality(String)"),
}  # fmt: skip
_LOGICAL = {
    ("string", "uuid"): ("string", ColumnChoice("UUID")),
    ("fixed", "uuid"): ("string", ColumnChoice("UUID")),
    ("int", "date"): ("timestamp", ColumnChoice("Date32")),
    ("long", "timestamp-millis"): ("timestamp", ColumnChoice("DateTime64(3)")),
    ("long", "timestamp-micros"): ("timestamp", ColumnChoice("DateTime64(6)")),
    ("long", "timestamp-nanos"): ("timestamp", ColumnChoice("DateTime64(6)", "nanoseconds are cut off")),
    ("long", "local-timestamp-millis"): ("timestamp", ColumnChoice("DateTime64(3)", "a local time, kept as UTC")),
    ("long", "local-timestamp-micros"): ("timestamp", ColumnChoice("DateTime64(6)", "a local time, kept as UTC")),
    ("int", "time-millis"): ("int", ColumnChoice("Int32", "milliseconds of the day")),
    ("long", "time-micros"): ("int", ColumnChoice("Int64", "microseconds of the day")),
    ("fixed", "duration"): ("string", ColumnChoice("String", "a duration, such as P1M2DT3.004S")),
}
# Digits of the widest Decimal. Source: ClickHouse's documentation of Decimal.
_MAX_PRECISION = 76


def declared_fields(schema: Schema, named: Named) -> dict[str, Declared | None]:
    """Return the fields of a record's schema by name; those of records within it by dotted name.

    None stands for a field of several types, of which the values decide.
    schema, named: of fastavro's `parse_schema`, and its named schemas.
    """
    return dict(_fields(schema, named, "", optional=False, depth=0))


def _fields(
    record: Schema, named: Named, prefix: str, *, optional: bool, depth: int
) -> Iterator[tuple[str, Declared | None]]:
    for member in record["fields"]:
        name = f"{prefix}{member['name']}"
        kind, is_nullable = _branch(_resolved(member["type"], named), named)
        is_optional = optional or is_nullable
        if kind is None:
            yield name, None
        elif _type_name(kind) == "record" and depth < MAX_DEPTH:
            yield from _fields(kind, named, f"{name}.", optional=is_optional, depth=depth + 1)
        else:
            declared_type, column = _column(kind, named, optional=is_optional)
            yield name, Declared(declared_type, column.type, column.remark, is_optional)


def _branch(kind: Schema, named: Named) -> tuple[Schema | None, bool]:
    """Return the one type of a value that is not null, and whether it may be null; None for a union of several."""
    if not isinstance(kind, list):
        return (None, True) if _type_name(kind) == "null" else (kind, False)
    branches = [_resolved(branch, named) for branch in kind]
    others = [branch for branch in branches if _type_name(branch) != "null"]
    return (others[0] if len(others) == 1 else None), len(others) < len(branches)


def _column(kind: Schema, named: Named, *, optional: bool) -> tuple[str, ColumnChoice]:
    """Return the declared type and the column, which is not Nullable yet."""
    name = _type_name(kind)
    if logical := _logical(kind):
        return logical
    if name in _PLAIN:
        declared_type, column = _PLAIN[name]
        return declared_type, ColumnChoice(column)
    if name in ("bytes", "fixed"):
        return "string", ColumnChoice("String", "in base64")
    return _nested(kind, named, optional=optional)


def _logical(kind: Schema) -> tuple[str, ColumnChoice] | None:
    """Return the declared type and the column of a valid logical type; None for any other type."""
    name, logical = _type_name(kind), kind.get("logicalType", "") if isinstance(kind, dict) else ""
    if logical == "decimal" and name in ("bytes", "fixed"):
        precision, scale = kind.get("precision", 0), kind.get("scale", 0)
        if 0 <= scale <= precision and 0 < precision <= _MAX_PRECISION:
            return "decimal", ColumnChoice(f"Decimal({precision}, {scale})")
    return _LOGICAL.get((name, logical))


def _nested(kind: Schema, named: Named, *, optional: bool) -> tuple[str, ColumnChoice]:
    """Return the declared type and the column of an array, a map or a record that stays whole."""
    name = _type_name(kind)
    word, told = ("array", "array") if name == "array" else ("map", "object")
    element = None if name == "record" else _element(kind["items" if name == "array" else "values"], named)
    # ClickHouse has no Nullable array or map: only JSON text can tell a missing one from an empty one.
    if element is None or optional:
        return word, ColumnChoice("String", f"the {told}'s JSON text")
    return word, ColumnChoice(f"Array({element})" if name == "array" else f"Map(String, {element})")


def _element(kind: Schema, named: Named) -> str | None:
    """Return the column type of an element of plain type; None for any other."""
    only, is_nullable = _branch(_resolved(kind, named), named)
    if only is None or (isinstance(only, dict) and "logicalType" in only) or _type_name(only) not in _PLAIN:
        return None
    _, column = _PLAIN[_type_name(only)]
    plain = "String" if column.startswith("LowCardinality") else column
    return f"Nullable({plain})" if is_nullable else plain


def _resolved(kind: Schema, named: Named) -> Schema:
    """Return the schema that a name stands for."""
    return named.get(kind, kind) if isinstance(kind, str) else kind


def _type_name(kind: Schema) -> str:
    return str(kind["type"]) if isinstance(kind, dict) else str(kind)
