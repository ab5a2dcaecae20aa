"""Decodes a record's value to typed fields, or sets the reason why that is not possible."""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.stream.stages.decode.decoder import Decoder
from glassflow_dagster.stream.stages.error_column import error_of
from glassflow_dagster.stream.stages.source_index import FIELDS, is_of


def decode(records: DataFrame, decoders: Sequence[Decoder], dropping: Sequence[int] = ()) -> DataFrame:
    """Decode each record with the decoder of its source.

    decoders: by source index.
    dropping: the sources whose tombstones (records without a value) are dropped; those of other sources are dead
        letters.

    Columns in: value BINARY, headers ARRAY<STRUCT<key, value>>, and source INT where there are two decoders (see
    `add_source_index`).
    Columns added: fields STRUCT and, for a second source, right_fields STRUCT (see `Decoded`; each is NULL for the
    other source's records), error STRUCT<stage STRING, reason STRING>, NULL for a good record, and drop_reason STRING,
    NULL here: later stages set it where they drop a good record.
    """
    # In the order of precedence; see `Decoded`.
    errors: list[Column] = []
    # Not strict: a pipeline with one source has one decoder.
    for index, (column, decoder) in enumerate(zip(FIELDS, decoders, strict=False)):
        fields, error = decoder(F.col("value"), F.col("headers"))
        if len(decoders) > 1:
            fields, error = F.when(is_of(index), fields), F.when(is_of(index), error)
        records = records.withColumn(column, fields)
        errors += [error, F.col(column)["_error"]]
    reason, drop_reason = F.coalesce(*errors), F.lit(None).cast("string")
    if dropping:
        is_dropped = F.col("value").isNull()
        if len(dropping) < len(decoders):
            is_dropped &= is_of(dropping[0])
        reason, drop_reason = F.when(~is_dropped, reason), F.when(is_dropped, F.lit("filtered"))
    return records.withColumn("error", F.when(reason.isNotNull(), error_of("decode", reason))).withColumn(
        "drop_reason", drop_reason
    )
