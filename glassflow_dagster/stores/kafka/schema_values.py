"""What the readers of values with a schema have in common (avro_values.py, protobuf_values.py)."""

from typing import Any, Protocol

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.kafka.confluent_wire_format import Headers

# Reasons why a value is not decoded.
WITHOUT_VALUE = "without a value"
WITHOUT_ID = "without a schema id"
UNKNOWN_ID = "with a schema id that the registry does not know"


class NotDecodedError(Exception):
    """A value that is no record of a known schema; the text is the reason."""


class UnusableSchemaError(GlassflowError):
    """A schema that is none, or of another format than the source."""


class ValueReader(Protocol):
    """Decodes values for people to read."""

    def decode(self, value: bytes | None, headers: Headers) -> tuple[object, dict[str, Any]]:
        """Return what the schema is known by, and the record, with values of JSON in it.

        Raises `NotDecodedError`, `UnusableSchemaError`, and `GlassflowError` where the registry does not answer.
        """
