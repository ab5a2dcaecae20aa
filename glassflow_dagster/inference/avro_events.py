"""The format `avro`: messages with the id of a schema in a registry (Confluent's wire format)."""

from collections import Counter
from collections.abc import Iterable

from glassflow_dagster.inference.avro_schema import declared_fields
from glassflow_dagster.inference.events import Event, Events
from glassflow_dagster.stores.kafka.avro_values import AvroReader
from glassflow_dagster.stores.kafka.records import Record
from glassflow_dagster.stores.kafka.schema_values import NotDecodedError


def read_avro_events(records: Iterable[Record], reader: AvroReader) -> Events:
    """Decode messages by their schemas; count those that cannot be decoded by reason.

    The declared fields are those of the schema with the greatest number, or else of the last message. Raises
    `GlassflowError` where the registry does not answer, or its schema is not Avro's.
    """
    objects: list[Event] = []
    skipped: Counter[str] = Counter()
    newest = ""
    for record in records:
        try:
            newest, event = reader.decode(record.value, record.headers)
        except NotDecodedError as reason:
            skipped[str(reason)] += 1
        else:
            objects.append(event)
    if numbers := [schema_id for schema_id in reader.parsed if schema_id.isdigit()]:
        newest = max(numbers, key=int)
    schema = reader.parsed.get(newest)
    declared = declared_fields(schema.schema, schema.named) if schema else None
    return Events(objects, skipped, with_schema=True, format="avro", declared=declared)
