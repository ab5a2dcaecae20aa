"""The formats `avro` and `protobuf`: messages with the id of a schema in a registry, or of one schema in a file."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from glassflow_dagster.inference.avro_schema import declared_fields as avro_fields
from glassflow_dagster.inference.events import Event, Events
from glassflow_dagster.inference.protobuf_schema import declared_fields as protobuf_fields
from glassflow_dagster.stores.kafka.avro_values import AvroReader
from glassflow_dagster.stores.kafka.protobuf_values import MessageName, ProtobufReader
from glassflow_dagster.stores.kafka.records import Record
from glassflow_dagster.stores.kafka.schema_values import NotDecodedError

_Name = TypeVar("_Name")


def read_avro_events(records: Iterable[Record], reader: AvroReader) -> Events:
    """Decode messages by their schemas; count those that cannot be decoded by reason.

    The declared fields are those of the schema with the greatest number, or else of the last message. Raises
    `GlassflowError` where the registry does not answer, or its schema is not Avro's.
    """
    names, objects, skipped = _decode(records, reader.decode)
    schema = reader.parsed.get(_newest(reader.parsed, names[-1] if names else ""))
    declared = avro_fields(schema.schema, schema.named) if schema else None
    return Events(objects, skipped, with_schema=True, format="avro", declared=declared)


def read_protobuf_events(records: Iterable[Record], reader: ProtobufReader) -> Events:
    """Decode messages by their schemas; count those that cannot be decoded by reason.

    The declared fields are those of `read_avro_events`; where the records of the schema are of several messages, those
    of the most frequent one. Raises `GlassflowError` where the registry does not answer, or its schema is not
    Protobuf's.
    """
    names, objects, skipped = _decode(records, reader.decode)
    newest = _newest((name.schema_id for name in names), names[-1].schema_id if names else "")
    of_newest: Counter[MessageName] = Counter(name for name in names if name.schema_id == newest)
    declared = None
    if of_newest:
        [(message, _)] = of_newest.most_common(1)
        declared = protobuf_fields(reader.fields_of(message), message.name)
    return Events(objects, skipped, with_schema=True, format="protobuf", declared=declared)


def _decode(
    records: Iterable[Record], decode: Callable[[Any, Any], tuple[_Name, Event]]
) -> tuple[list[_Name], list[Event], Counter[str]]:
    """Return what names the schema of each message, the events, and the number of the other messages by reason."""
    names: list[_Name] = []
    objects: list[Event] = []
    skipped: Counter[str] = Counter()
    for record in records:
        try:
            name, event = decode(record.value, record.headers)
        except NotDecodedError as reason:
            skipped[str(reason)] += 1
        else:
            names.append(name)
            objects.append(event)
    return names, objects, skipped


def _newest(schema_ids: Iterable[str], last: str) -> str:
    """Return the greatest of the ids that are numbers; `last` where none is."""
    return max((schema_id for schema_id in schema_ids if schema_id.isdigit()), key=int, default=last)
