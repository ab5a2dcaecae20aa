"""Avro and Protobuf in Scala (scala/decode/SchemaDecoder.scala): records that are written with a schema.

The writer's schema is that of the schema registry, or else the definition's own. With both, the definition's Avro
schema is the reader's: its aliases and defaults apply.
"""

import json
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.source import Encoding, SchemaField, Source
from glassflow_dagster.stream.stages.decode.decoder import Decoded, Decoder, field_specs


def schema_decoder(source: Source, fields: Sequence[SchemaField], registry: str) -> Decoder:
    """Return the decoder of one record of the source's format. registry: see `declare_registries`."""
    function, spec = f"glassflow_decode_{source.format}", decoder_spec(source.encoding, fields, registry)

    def decode(value: Column, headers: Column) -> Decoded:
        # No second error: the function returns the only one in the field `_error`.
        return Decoded(F.call_function(function, value, headers, F.lit(spec)), F.lit(None).cast("string"))

    return decode


def decoder_spec(encoding: Encoding, fields: Sequence[SchemaField], registry: str) -> str:
    """Return the text that SchemaDecoder takes. registry: see `declare_registries`."""
    return json.dumps(decoder_settings(encoding, fields, registry))


def decoder_settings(encoding: Encoding, fields: Sequence[SchemaField], registry: str) -> dict[str, object]:
    """Return what `decoder_spec` writes as JSON."""
    schema = encoding.schema
    return {
        "fields": field_specs(fields),
        "schema": schema.file if schema else None,
        "message_type": schema.message_type if schema else None,
        "registry": registry if encoding.of_registry else None,
        "schema_id": encoding.has_schema_id,
        "part": encoding.part,
    }
