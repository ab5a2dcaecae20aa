"""The fields that a Protobuf message declares, with the declared types and columns that keep their values."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from glassflow_dagster.inference.columns import ColumnChoice
from glassflow_dagster.inference.events import Declared
from glassflow_dagster.inference.fields import MAX_DEPTH, MAX_FIELDS

# A field as ProtobufReader.scala describes it: name, type, label, and of a map the type of its key.
ProtobufField = Mapping[str, Any]
Messages = Mapping[str, Sequence[ProtobufField]]

# Type -> declared type and column. An enum in a column has its names.
_PLAIN = {
    "bool": ("bool", "Bool"), "string": ("string", "String"), "enum": ("string", "LowCardinality(String)"),
    "float": ("float", "Float32"), "double": ("float", "Float64"),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), ("int", "Int32")),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), ("int", "Int64")),
    **dict.fromkeys(("uint32", "fixed32"), ("uint", "UInt32")),
    **dict.fromkeys(("uint64", "fixed64"), ("uint", "UInt64")),
}  # fmt: skip
_BASE64 = ("string", ColumnChoice("String", "in base64"))
_OTHER = {
    "bytes": _BASE64,
    "google.protobuf.BytesValue": _BASE64,
    "google.protobuf.Timestamp": ("timestamp", ColumnChoice("DateTime64(9)")),
    # The widest duration has 12 digits before the point, and nanoseconds. Source: duration.proto.
    "google.protobuf.Duration": ("decimal", ColumnChoice("Decimal(21, 9)", "seconds")),
    "google.protobuf.FieldMask": ("string", ColumnChoice("String", "names with commas between them")),
    "google.protobuf.Struct": ("map", ColumnChoice("String", "the object's JSON text")),
    "google.protobuf.ListValue": ("array", ColumnChoice("String", "the array's JSON text")),
    "google.type.Date": ("timestamp", ColumnChoice("Date32")),
    # The schema does not say how many digits there are.
    "confluent.type.Decimal": ("string", ColumnChoice("String", "or declare decimal, and choose a Decimal(P, S)")),
    **{
        f"google.protobuf.{name}Value": (_PLAIN[name.lower()][0], ColumnChoice(_PLAIN[name.lower()][1]))
        for name in ("Bool", "String", "Float", "Double", "Int32", "Int64", "UInt32", "UInt64")
    },
}
# Any value: the values that are there decide.
_ANY = "google.protobuf.Value"
# The keys of a map that keep their type in ClickHouse.
_KEYS = frozenset(name for name, (declared, _) in _PLAIN.items() if declared in ("int", "uint"))


def declared_fields(messages: Messages, name: str) -> dict[str, Declared | None]:
    """Return the fields of a message by name; those of messages within it by dotted name.

    None stands for a field of several types, of which the values decide. A message within itself stays whole.
    messages: as of `ProtobufReader.fields_of`.
    """
    # Messages within messages may have thousands of fields; more than a definition has are cut off, and told.
    return dict(islice(_fields(messages, (name,), "", optional=False), 2 * MAX_FIELDS))


def _fields(
    messages: Messages, around: tuple[str, ...], prefix: str, *, optional: bool
) -> Iterator[tuple[str, Declared | None]]:
    """Yield the fields of the last of the messages that are around each other. prefix: of their names."""
    for field in messages[around[-1]]:
        name, kind = f"{prefix}{field['name']}", field["type"]
        is_optional = optional or field["label"] == "optional"
        if kind == _ANY and field["label"] == "optional":
            yield name, None
        elif field["label"] in ("", "optional") and _is_flattened(messages, around, kind):
            yield from _fields(messages, (*around, kind["message"]), f"{name}.", optional=is_optional)
        else:
            declared_type, column = _column(field, optional=is_optional)
            yield name, Declared(declared_type, column.type, column.remark, is_optional)


def _is_flattened(messages: Messages, around: Sequence[str], kind: Any) -> bool:
    """Return whether a field's type is a message whose fields have columns of their own."""
    if isinstance(kind, str):
        return False
    inner = kind["message"]
    return inner not in around and bool(messages[inner]) and len(around) <= MAX_DEPTH


def _column(field: ProtobufField, *, optional: bool) -> tuple[str, ColumnChoice]:
    """Return the declared type and the column, which is not Nullable yet."""
    kind, label = field["type"], field["label"]
    if label in ("repeated", "map"):
        return _nested(field, optional=optional)
    if not isinstance(kind, str):
        return "map", ColumnChoice("String", "the object's JSON text")
    if kind in _PLAIN:
        declared_type, column = _PLAIN[kind]
        return declared_type, ColumnChoice(column)
    return _OTHER[kind]


def _nested(field: ProtobufField, *, optional: bool) -> tuple[str, ColumnChoice]:
    """Return the declared type and the column of a repeated field or a map."""
    word, told = ("array", "array") if field["label"] == "repeated" else ("map", "object")
    _, column = _PLAIN.get(field["type"] if isinstance(field["type"], str) else "", ("", ""))
    # ClickHouse has no Nullable array or map: only JSON text can tell a missing one from an empty one.
    if not column or optional:
        return word, ColumnChoice("String", f"the {told}'s JSON text")
    element = "String" if field["type"] == "enum" else column
    if word == "array":
        return word, ColumnChoice(f"Array({element})")
    key = _PLAIN[field["key"]][1] if field["key"] in _KEYS else "String"
    return word, ColumnChoice(f"Map({key}, {element})")
