"""Where in a record's value its JSON lies.

With a schema registry a producer writes a byte 0, the schema's id in 4 bytes, and then the JSON (Confluent's wire
format). The id is not looked up: every record is held against the declared fields, whatever its schema.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from glassflow_dagster.config.model import Source

# The magic byte and the id.
_HEADER = 5


def unframe(records: DataFrame, source: Source) -> DataFrame:
    """Give the JSON of each record.

    Columns in: value BINARY. Columns added: payload BINARY, and framing_error STRING: why there is none, NULL where
    there is, and where the record has no value at all.
    """
    value = F.col("value")
    if source.schema_registry is None:
        return unframed(records)
    framed = F.substring(value, 1, 1) == F.lit(b"\0")
    long_enough = F.octet_length(value) > F.lit(_HEADER)
    error = F.when(
        ~framed,
        F.lit("no schema id: the value does not begin with the byte 0 and an id, as it must with a schema_registry"),
    ).when(~long_enough, F.lit("the value is too short to hold a schema id and JSON"))
    payload = F.when(framed & long_enough, F.substring(value, _HEADER + 1, 2**31 - 1))
    return records.withColumn("payload", payload).withColumn("framing_error", error)


def unframed(records: DataFrame) -> DataFrame:
    """Take the whole value for JSON. Columns in and added: those of `unframe`."""
    return records.withColumn("payload", F.col("value")).withColumn("framing_error", F.lit(None).cast("string"))
