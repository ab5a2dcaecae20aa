"""A schema in a file, which a caller of `infer` or `eval` names: all messages are written with it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.definition.model.source import SchemaField, Source, SourceSchema
from glassflow_dagster.errors import GlassflowError

# Until the schema says which ones there are: a source has at least one field.
_NO_FIELDS = (SchemaField(name="_", type="any", required=False),)


@dataclass(frozen=True)
class GivenSchema:
    """A file with an Avro schema, or a .proto file.

    message_type: the name of Protobuf's message; None for the one that a message names, or the first of the schema.
    has_schema_id: a schema id precedes each value, and is skipped.
    """

    file: Path
    message_type: str | None = None
    has_schema_id: bool = False

    @property
    def format(self) -> Literal["avro", "protobuf"]:
        """The format of messages with this schema."""
        return "protobuf" if self.file.suffix == ".proto" else "avro"

    def source(self, fields: Sequence[SchemaField] = _NO_FIELDS) -> Source:
        """Return a source of no topic, whose records have this schema; raises `GlassflowError` without the file."""
        schema = SourceSchema(
            file=self._text(), message_type=self.message_type,
            wire_format="confluent" if self.has_schema_id else "none",
        )  # fmt: skip
        return Source(
            type="kafka", source_id="sample", topic="sample", connection_params=KafkaConnection(brokers=("unused:1",)),
            format=self.format, schema=schema, schema_fields=tuple(fields),
        )  # fmt: skip

    def keys(self) -> dict[str, str]:
        """Return the keys of a definition's `schema`."""
        return {
            "file": f"${{file:{self.file.absolute()}}}",
            **({"message_type": self.message_type} if self.message_type else {}),
            **({} if self.has_schema_id else {"wire_format": "none"}),
        }

    def _text(self) -> str:
        try:
            return self.file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            problem = getattr(error, "strerror", None) or "not in UTF-8"
            raise GlassflowError(f"{self.file}: {problem}; name a file with an Avro schema, or a .proto file") from None
