"""Confluent's wire format: a schema's id, and then the encoded event.

Producers write it when they use a schema registry: a byte 0 and a number of four bytes, or a byte 1 and a UUID of 16;
newer clients can write the same into a header, and then the value is the event alone. JSON is read without its schema:
every record is checked against the declared fields, whatever the schema says.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.stream.stages.decode.decoder import Decoded, Decoder

# The header's name, as of confluent-kafka's `HeaderSchemaIdSerializer`.
_HEADER = "__value_schema_id"
# Bytes of the first byte and the id.
_NUMBERED, _UNIQUE = 5, 17
# As the length of a substring: to the end.
_TO_END = 2**31 - 1


def strip_schema_id(decoder: Decoder) -> Decoder:
    """Return a decoder that strips the schema id from the value and passes the encoded event to `decoder`.

    A value that has no schema id, or nothing after it, gets an error of its own; with an id in the header it is passed
    as it is.
    """

    def decode(value: Column, headers: Column) -> Decoded:
        first = F.substring(value, 1, 1)
        length = F.when(first == F.lit(b"\0"), _NUMBERED).when(first == F.lit(b"\1"), _UNIQUE)
        # The last one counts, and one without a value says that the id is in the record's value.
        own = F.filter(headers, lambda header: header["key"] == F.lit(_HEADER))
        in_header = F.try_element_at(own, F.lit(-1))["value"].isNotNull()
        is_long_enough = F.octet_length(value) > length
        event = F.when(in_header, value).when(is_long_enough, F.substring(value, length + 1, F.lit(_TO_END)))
        fields, error = decoder(event, headers)
        own_error = F.when(~in_header, _id_error(value, length, is_long_enough))
        return Decoded(fields, F.coalesce(own_error, error))

    return decode


def _id_error(value: Column, length: Column, is_long_enough: Column) -> Column:
    """Return the reason why a value has no schema id, STRING; NULL where it has one, or is NULL itself."""
    return F.when(
        value.isNotNull() & length.isNull(),
        F.lit("no schema id: the value does not begin with the byte 0 and an id, as it must with a schema_registry"),
    ).when(~is_long_enough, F.lit("the value is too short to hold a schema id and JSON"))
