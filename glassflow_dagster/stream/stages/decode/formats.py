"""The formats of records, by `source.format`: one line of `FORMATS` registers a format's decoder.

A definition may name it once it is in the type of `Source.format`; `infer` reads it once inference/formats.py has it.
"""

from collections.abc import Callable, Mapping, Sequence

from glassflow_dagster.definition.model.source import SchemaField, Source
from glassflow_dagster.stream.stages.decode.avro_and_protobuf_in_scala import schema_decoder
from glassflow_dagster.stream.stages.decode.decoder import Decoder
from glassflow_dagster.stream.stages.decode.json_in_scala import json_decoder
from glassflow_dagster.stream.stages.decode.json_schema_id import strip_schema_id
from glassflow_dagster.stream.stages.decode.key_fields_in_scala import add_key_fields, value_fields


def decoder_of(source: Source, fields: Sequence[SchemaField], registry: str) -> Decoder:
    """Return the decoder for a source's records.

    fields: the fields to decode.
    registry: the name under which the source's registry is declared (`declare_registries`).
    """
    encoding = source.key_encoding
    if encoding is None:
        return FORMATS[source.format](source, fields, registry)
    return add_key_fields(FORMATS[source.format](source, value_fields(fields), registry), encoding, fields, registry)


def _json(source: Source, fields: Sequence[SchemaField], _registry: str) -> Decoder:
    decoder = json_decoder(fields)
    return strip_schema_id(decoder) if source.encoding.has_schema_id else decoder


def _otlp(_source: Source, fields: Sequence[SchemaField], _registry: str) -> Decoder:
    """Return the decoder of an event that stages/otlp_in_scala.py has split off."""
    return json_decoder(fields, of_otlp=True)


FORMATS: Mapping[str, Callable[[Source, Sequence[SchemaField], str], Decoder]] = {
    "json": _json,
    "json_schema": _json,
    "avro": schema_decoder,
    "protobuf": schema_decoder,
    "otlp_proto": _otlp,
    "otlp_json": _otlp,
}
