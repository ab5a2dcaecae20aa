"""The fields of one sample record, for expressions that are tried on it."""

import json
from typing import Any

from glassflow_dagster.definition.model.source import SchemaField
from glassflow_dagster.definition.model.types import INTEGER_LIMITS, FieldKind


def fields_of_sample(sample: bytes) -> tuple[SchemaField, ...]:
    """Infer a record's fields, none of them required; raises ValueError when it is no JSON object.

    A definition cannot name a field "", so that one is left out.
    """
    record = json.loads(sample)
    if not isinstance(record, dict):
        raise ValueError(f"but {type(record).__name__}")  # noqa: TRY004 - the same error as for invalid JSON
    return tuple(
        SchemaField(name=name, type=kind_of_value(value), required=False) for name, value in record.items() if name
    )


def kind_of_value(value: Any) -> FieldKind:
    """Return the field type of a JSON value; float for an integer above 64 bits, string for text and null."""
    if isinstance(value, int) and not isinstance(value, bool):
        return next(
            (kind for kind, (minimum, maximum) in INTEGER_LIMITS.items() if minimum <= value <= maximum), "float"
        )
    kinds: dict[type, FieldKind] = {bool: "bool", float: "float", list: "array", dict: "map"}
    return kinds.get(type(value), "string")
