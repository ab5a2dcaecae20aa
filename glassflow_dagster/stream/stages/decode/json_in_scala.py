"""JSON in Scala (scala/decode/StrictJson.scala): strict JSON is decoded there."""

import json
from collections.abc import Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.source import SchemaField
from glassflow_dagster.stream.stages.decode.decoder import Decoded, Decoder, field_specs


def json_decoder(fields: Sequence[SchemaField], *, of_otlp: bool = False) -> Decoder:
    """Return the decoder of one JSON object in UTF-8 with the declared fields. of_otlp: see `field_specs`."""
    spec = json.dumps(field_specs(fields, of_otlp=of_otlp))

    def decode(value: Column, _headers: Column) -> Decoded:
        # No second error: glassflow_decode (Scala) returns the only one in the field `_error`.
        return Decoded(F.call_function("glassflow_decode", value, F.lit(spec)), F.lit(None).cast("string"))

    return decode
