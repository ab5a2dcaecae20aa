"""JSON behind a schema's id (see stores/kafka/confluent_wire_format.py), which is stripped.

JSON is read without its schema: every record is checked against the declared fields, whatever the schema says.
"""

from pyspark.sql import Column
from pyspark.sql import functions as F

from glassflow_dagster.stores.kafka.confluent_wire_format import NUMBER_BYTES, UNIQUE_BYTES, VALUE_ID_HEADER
from glassflow_dagster.stream.stages.decode.decoder import Decoded, Decoder

# As the length of a substring: to the end.
_TO_END = 2**31 - 1


def strip_schema_id(decoder: Decoder) -> Decoder:
    """Return a decoder that strips the schema id from the value and passes the encoded event to `decoder`.

    A value that has no schema id, or nothing after it, gets an error of its own; with an id in the header it is passed
    as it is.
    """

    def decode(value: Column, headers: Column) -> Decoded:
        first = F.substring(value, 1, 1)
        length = F.when(first == F.lit(b"\0"), NUMBER_BYTES).when(first == F.lit(b"\1"), UNIQUE_BYTES)
        # The last one counts, and one without a value says that the id is in the record's value.
        own = F.filter(headers, lambda header: header["key"] == F.lit(VALUE_ID_HEADER))
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
