"""What `infer` proposes for events that have a schema."""

from glassflow_dagster.definition.model.types import (
    FIELD_KINDS,
    declared_as,
    kinds_taken,
    parse_column_type,
    unsupported_reason,
)
from glassflow_dagster.inference.columns import choose_column
from glassflow_dagster.inference.events import Events
from glassflow_dagster.inference.fields import Field, declared_fields


def fields_of(events: Events) -> tuple[Field, ...]:
    assert events.declared is not None
    return declared_fields(events.objects, events.declared).declared


def type_and_column(events: Events) -> tuple[str, str]:
    """Return the type and the column's type that are proposed for the only field; the column takes its values."""
    [field] = fields_of(events)
    declared = field.declared.type if field.declared else declared_as(field.kind)
    column = choose_column(field).type
    parsed = parse_column_type(column)
    assert unsupported_reason(parsed) is None
    assert FIELD_KINDS[declared] in kinds_taken(parsed)
    return declared, column
