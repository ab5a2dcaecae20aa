"""From a record's value to typed fields, or to the reason why not."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.streaming.stages.decode.decoder import Decoder
from glassflow_dagster.streaming.stages.errors import error_of
from glassflow_dagster.streaming.stages.source_index import FIELDS, is_of


def decode(records: DataFrame, decoders: Sequence[Decoder]) -> DataFrame:
    """Decode each record by the decoder of its source.

    Columns in: value BINARY, and source INT where there are two decoders (see `add_source_index`).
    Columns added: fields STRUCT and, for a second source, right_fields STRUCT (see `Decoded`; each is NULL for the
    other source's records), error STRUCT<stage STRING, reason STRING>, NULL for a good record, and drop_reason STRING:
    why a good record is not written, NULL where it is.
    """
    errors: list[Column] = []
    for number, (column, decoder) in enumerate(zip(FIELDS, decoders, strict=False)):
        fields, error = decoder(F.col("value"))
        if len(decoders) > 1:
            fields, error = F.when(is_of(number), fields), F.when(is_of(number), error)
        records = records.withColumn(column, fields)
        errors += [error, F.col(column)["_error"]]
    reason = F.coalesce(*errors)
    return records.withColumn("error", F.when(reason.isNotNull(), error_of("decode", reason))).withColumn(
        "drop_reason", F.lit(None).cast("string")
    )
