"""The interface of a format: a decoder returns columns that decode a record's value."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyspark.sql import Column

from glassflow_dagster.definition.model.otlp import attribute_path
from glassflow_dagster.definition.model.source import SchemaField


class Decoded(NamedTuple):
    """The columns of a decoded value.

    fields: STRUCT of the declared fields (STRING, LONG, DECIMAL(20,0), DOUBLE or BOOLEAN by their kind; array, map and
        any as their JSON text) and `_error` STRING.
    error: STRING.
    Both errors are the reason why the value cannot be decoded, NULL where it can. `error` is one that is found before
    the fields are read, and takes precedence.
    """

    fields: Column
    error: Column


def field_specs(fields: Sequence[SchemaField], *, of_otlp: bool = False) -> list[list[object]]:
    """Return the fields to decode as the JVM's decoders take them: [[name, kind, required], ...].

    of_otlp: they are of an OTLP event; each spec then has the field's path as a fourth part, since an attribute's name
    may hold points.
    """
    return [
        [field.name, field.kind, field.needed, *([attribute_path(field.name)] if of_otlp else [])] for field in fields
    ]


# Columns in: a record's value, BINARY, NULL for a tombstone; its headers, ARRAY<STRUCT<key STRING, value BINARY>>.
Decoder = Callable[[Column, Column], Decoded]
