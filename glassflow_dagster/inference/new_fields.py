"""Compares a sample of a topic with a definition: fields that it does not declare, and declared ones that are gone."""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from glassflow_dagster.definition.added_fields import AddedField
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import METADATA_FIELDS, SchemaField
from glassflow_dagster.definition.model.types import FieldKind, declared_as
from glassflow_dagster.inference.columns import choose_column
from glassflow_dagster.inference.events import Events
from glassflow_dagster.inference.fields import Field, Fields, collect_fields, declared_fields

# Without a schema, a field counts from so many events of a sample: a typing error of one producer is no new field.
STEADY_EVENTS = 100
# Kind of field -> the column that takes all of its values; arrays and objects as JSON text, which can be null.
_WIDEST: dict[FieldKind, str] = {
    "bool": "Bool", "string": "String", "array": "String", "map": "String", "int": "Int64", "uint": "UInt64",
    "float": "Float64", "bigint": "Int256", "ubigint": "UInt256",
}  # fmt: skip
# JSON type of a value -> the kinds of field that take it.
_KINDS_OF = {
    "bool": {"bool"}, "string": {"string"}, "array": {"array"}, "object": {"map"},
    "number": {"int", "uint", "float", "decimal", "bigint", "ubigint"},
}  # fmt: skip


@dataclass(frozen=True)
class FieldConflict:
    """A declared field that many events do not have, or not of its type: they become dead letters."""

    field: str
    reason: str


def undeclared_fields(config: PipelineConfig, events: Events, *, steady: int) -> list[Field]:
    """Return the fields of a sample that the definition does not declare, in the order of their first appearance.

    Not those with the name of Kafka's metadata, which a mapping may use.

    steady: in how many events a field must have a value, where the events have no schema that declares it.
    """
    names = {field.name for field in config.source.schema_fields} | METADATA_FIELDS.keys()
    return [
        field
        for field in _fields(events).declared
        if not _is_declared(field.name, names) and (field.declared or len(field.values) >= steady)
    ]


def proposed(field: Field, used_columns: Collection[str]) -> AddedField:
    """Return the type and the column of a field: Nullable, as older events lack it.

    Without a schema the column takes all values of the field's kind, not only such as the sample has. used_columns: the
    columns that have another field already.
    """
    column = re.sub(r"\W", "_", field.name)
    numbered = (f"{column}_{number}" for number in range(2, len(used_columns) + 3))
    name = next(each for each in (column, *numbered) if each not in used_columns)
    if field.declared is None:
        return AddedField(field.name, declared_as(field.kind), name, f"Nullable({_WIDEST[field.kind]})")
    optional = Field(field.name, 1, declared=replace(field.declared, optional=True))
    # ClickHouse has no Nullable array or map: only JSON text can tell a missing one from an empty one.
    is_nested = field.declared.column.startswith(("Array(", "Map("))
    return AddedField(
        field.name, field.declared.type, name, "Nullable(String)" if is_nested else choose_column(optional).type
    )


def why_unsteady(field: Field) -> str:
    """Return why a field has no one type; '' if it has."""
    if field.declared is not None or len(field.types) < 2:  # noqa: PLR2004 - one type
        return ""
    return f"has values of several types ({', '.join(sorted(field.types))}); declare it, with the type that you want"


def conflicts(config: PipelineConfig, events: Events) -> Iterator[FieldConflict]:
    """Yield the declared fields that a schema has no more, or that many events of a sample lack or have otherwise."""
    for field in config.fields:
        if field.is_of_key:  # the events are values
            continue
        [found] = declared_fields(events.objects, {field.name: None}).declared
        if events.declared is not None:
            is_gone = not _is_declared(field.name, events.declared) and not found.values
            # With a schema of the definition's own, its aliases and defaults decide.
            has_own = config.source.schema_ is not None and config.source.schema_.file is not None
            if field.needed and is_gone and not has_own:
                yield FieldConflict(field.name, "is gone from the newest schema")
            continue
        empty = found.missing + found.nulls
        if field.needed and empty >= STEADY_EVENTS:
            yield FieldConflict(field.name, "is missing or null in many events")
        others = sum(1 for value in found.values if not _fits(field, value))
        if others >= STEADY_EVENTS:
            yield FieldConflict(field.name, f"is not of type {field.type} in many events")


def _fields(events: Events) -> Fields:
    if events.declared is not None:
        return declared_fields(events.objects, events.declared)
    return collect_fields(events.objects)


def _is_declared(name: str, names: Collection[str]) -> bool:
    """Return whether a definition declares a field, an object around it, or a field in it."""
    parts = name.split(".")
    around = {".".join(parts[: count + 1]) for count in range(len(parts))}
    return not around.isdisjoint(names) or any(other.startswith(f"{name}.") for other in names)


def _fits(field: SchemaField, value: object) -> bool:
    """Return whether a field takes a value that is not null."""
    if field.kind == "any":
        return True
    found = Field("", 1, [value])
    [json_type] = found.types
    whole_only = {"int", "uint", "bigint", "ubigint"}
    if isinstance(value, float) and field.kind in whole_only:
        return value.is_integer()
    return field.kind in _KINDS_OF[json_type]
