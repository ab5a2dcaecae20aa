"""The formats of records, by `source.format`: one line of `FORMATS` registers a format's decoder.

A definition may name it once it is in the type of `Source.format`; `infer` reads it once inference/formats.py has it.
"""

from collections.abc import Callable, Mapping, Sequence

from glassflow_dagster.config.model.source import SchemaField, Source
from glassflow_dagster.streaming.stages.decode.confluent_wire_format import strip_schema_id
from glassflow_dagster.streaming.stages.decode.decoder import Decoder
from glassflow_dagster.streaming.stages.decode.json_format import json_decoder

FORMATS: Mapping[str, Callable[[Sequence[SchemaField]], Decoder]] = {
    "json": json_decoder,
}


def decoder_of(source: Source, fields: Sequence[SchemaField]) -> Decoder:
    """Return the decoder for a source's records. fields: the fields to decode."""
    decoder = FORMATS[source.format](fields)
    return strip_schema_id(decoder) if source.schema_registry else decoder
