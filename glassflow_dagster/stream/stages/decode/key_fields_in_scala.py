"""Fields of the record's key (`_key.id`) in Scala (scala/decode/KeyFields.scala), decoded beside the value's.

The fields of both are one STRUCT in the order of their declaration, so later stages do not tell them apart.
"""

import json
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.source import KEY_PREFIX, Encoding, SchemaField
from glassflow_dagster.stream.stages.decode.avro_and_protobuf_in_scala import decoder_settings
from glassflow_dagster.stream.stages.decode.decoder import Decoded, Decoder, field_specs


def value_fields(fields: Sequence[SchemaField]) -> list[SchemaField]:
    """Return the fields that are looked up in the value."""
    return [field for field in fields if not field.is_of_key]


def key_fields(fields: Sequence[SchemaField]) -> list[SchemaField]:
    """Return the fields that are looked up in the key, by their names there."""
    return [
        field.model_copy(update={"name": field.name.removeprefix(KEY_PREFIX)}) for field in fields if field.is_of_key
    ]


def add_key_fields(decoder: Decoder, encoding: Encoding, fields: Sequence[SchemaField], registry: str) -> Decoder:
    """Return a decoder that adds the fields of the key to those of the value.

    decoder: of the `value_fields`; its error takes precedence.
    encoding: of the key.
    fields: all declared fields.
    registry: see `declare_registries`. The decoder's columns in are those of `Decoder`, and key BINARY, NULL for a
        record without a key, whose fields of the key are missing.
    """
    spec = key_spec(encoding, fields, registry)

    def decode(value: Column, headers: Column) -> Decoded:
        found, error = decoder(value, headers)
        return Decoded(F.call_function("glassflow_add_key", found, F.col("key"), headers, F.lit(spec)), error)

    return decode


def key_spec(encoding: Encoding, fields: Sequence[SchemaField], registry: str) -> str:
    """Return the text that KeyFields takes; the arguments are those of `add_key_fields`."""
    return json.dumps({
        "fields": field_specs(fields),
        "of_key": [index for index, field in enumerate(fields) if field.is_of_key],
        "format": encoding.format,
        "decoder": decoder_settings(encoding, key_fields(fields), registry),
    })  # fmt: skip
