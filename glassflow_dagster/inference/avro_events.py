"""The format `avro`: messages with the id of a schema in a registry (Confluent's wire format)."""

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from glassflow_dagster.inference.avro_schema import declared_fields
from glassflow_dagster.inference.events import Event, Events
from glassflow_dagster.kafka.avro_values import AvroReader, NotDecodedError
from glassflow_dagster.kafka.records import Record
from glassflow_dagster.kafka.schema_registry import RegistryReader


def read_avro_events(
    records: Iterable[Record], registry: RegistryReader, part: Literal["value", "key"] = "value"
) -> Events:
    """Decode values or keys of messages by the schemas of a registry; count those that cannot be decoded by reason.

    The declared fields are those of the schema with the greatest number, or else of the last message. Raises
    `GlassflowError` where the registry does not answer, or its schema is not Avro's.
    """
    reader = AvroReader(registry, part=part)
    objects: list[Event] = []
    skipped: Counter[str] = Counter()
    newest = ""
    for record in records:
        try:
            newest, event = reader.decode(record.value if part == "value" else record.key, record.headers)
        except NotDecodedError as reason:
            skipped[str(reason)] += 1
        else:
            objects.append(event)
    if numbers := [schema_id for schema_id in reader.parsed if schema_id.isdigit()]:
        newest = max(numbers, key=int)
    schema = reader.parsed.get(newest)
    declared = declared_fields(schema.schema, schema.named) if schema else None
    return Events(objects, skipped, with_schema=True, declared=declared)
