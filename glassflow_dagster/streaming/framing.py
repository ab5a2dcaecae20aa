"""Where in a record's value its JSON lies.

With a schema registry a producer writes a byte 0, the schema's id in 4 bytes, and then the JSON (Confluent's wire
format). The id is not looked up: every record is held against the declared fields, whatever its schema.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from glassflow_dagster.config.model import Source
from glassflow_dagster.streaming.sides import by_source

# The magic byte and the id.
_HEADER = 5


def unframe(records: DataFrame, sources: Sequence[Source]) -> DataFrame:
    """Give the JSON of each record.

    Columns in: value BINARY, and source INT (see `by_source`). Columns added: payload BINARY, and framing_error STRING:
    why there is none, NULL where there is, and where the record has no value at all.
    """
    if not any(source.schema_registry for source in sources):
        return unframed(records)
    payloads = [_payload() if source.schema_registry else F.col("value") for source in sources]
    errors = [_error() if source.schema_registry else F.lit(None).cast("string") for source in sources]
    return records.withColumn("payload", by_source(payloads)).withColumn("framing_error", by_source(errors))


def unframed(records: DataFrame) -> DataFrame:
    """Take the whole value for JSON. Columns in and added: those of `unframe`."""
    return records.withColumn("payload", F.col("value")).withColumn("framing_error", F.lit(None).cast("string"))


def _payload() -> Column:
    return F.when(_is_framed() & _is_long_enough(), F.substring(F.col("value"), _HEADER + 1, 2**31 - 1))


def _error() -> Column:
    return F.when(
        ~_is_framed(),
        F.lit("no schema id: the value does not begin with the byte 0 and an id, as it must with a schema_registry"),
    ).when(~_is_long_enough(), F.lit("the value is too short to hold a schema id and JSON"))


def _is_framed() -> Column:
    return F.substring(F.col("value"), 1, 1) == F.lit(b"\0")


def _is_long_enough() -> Column:
    return F.octet_length("value") > F.lit(_HEADER)
