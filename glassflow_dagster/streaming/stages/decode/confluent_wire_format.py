"""Confluent's wire format: a byte 0, the schema's id in 4 bytes, and then the encoded event.

Producers write it when they use a schema registry. The id is not looked up: every record is checked against the
declared fields, whatever its schema.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.streaming.stages.decode.decoder import Decoded, Decoder

# Bytes of the magic byte and the id.
_HEADER = 5
# As the length of a substring: to the end.
_TO_END = 2**31 - 1


def strip_schema_id(decoder: Decoder) -> Decoder:
    """Return a decoder that strips the schema id from the value and passes the encoded event to `decoder`.

    A value that has no schema id, or nothing after it, gets an error of its own.
    """

    def decode(value: Column) -> Decoded:
        has_id, is_long_enough = F.substring(value, 1, 1) == F.lit(b"\0"), F.octet_length(value) > F.lit(_HEADER)
        fields, error = decoder(F.when(has_id & is_long_enough, F.substring(value, _HEADER + 1, _TO_END)))
        return Decoded(fields, F.coalesce(_header_error(has_id, is_long_enough), error))

    return decode


def _header_error(has_id: Column, is_long_enough: Column) -> Column:
    """Return the reason why a value has no schema id, STRING; NULL where it has one."""
    return F.when(
        ~has_id,
        F.lit("no schema id: the value does not begin with the byte 0 and an id, as it must with a schema_registry"),
    ).when(~is_long_enough, F.lit("the value is too short to hold a schema id and JSON"))
