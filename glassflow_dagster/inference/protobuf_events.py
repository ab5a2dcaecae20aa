"""The format `protobuf`: messages with the id of a schema in a registry (Confluent's wire format)."""

from collections import Counter
from collections.abc import Iterable

from glassflow_dagster.inference.events import Event, Events
from glassflow_dagster.inference.protobuf_schema import declared_fields
from glassflow_dagster.stores.kafka.protobuf_values import MessageName, ProtobufReader
from glassflow_dagster.stores.kafka.records import Record
from glassflow_dagster.stores.kafka.schema_values import NotDecodedError


def read_protobuf_events(records: Iterable[Record], reader: ProtobufReader) -> Events:
    """Decode messages by their schemas; count those that cannot be decoded by reason.

    The declared fields are those of the schema with the greatest number, or else of the last message; where its records
    are of several messages, those of the most frequent one. Raises `GlassflowError` where the registry does not
    answer, or its schema is not Protobuf's.
    """
    objects: list[Event] = []
    skipped: Counter[str] = Counter()
    messages: Counter[MessageName] = Counter()
    newest = ""
    for record in records:
        try:
            message, event = reader.decode(record.value, record.headers)
        except NotDecodedError as reason:
            skipped[str(reason)] += 1
        else:
            objects.append(event)
            messages[message] += 1
            newest = message.schema_id
    if numbers := [message.schema_id for message in messages if message.schema_id.isdigit()]:
        newest = max(numbers, key=int)
    of_newest = Counter({message: count for message, count in messages.items() if message.schema_id == newest})
    declared = None
    if of_newest:
        [(message, _)] = of_newest.most_common(1)
        declared = declared_fields(reader.fields_of(message), message.name)
    return Events(objects, skipped, with_schema=True, format="protobuf", declared=declared)
