"""The formats of messages that can be read."""

from collections.abc import Sequence

from glassflow_dagster.inference.avro_events import read_avro_events
from glassflow_dagster.inference.events import Events
from glassflow_dagster.inference.json_events import FROM_A_REGISTRY, read_json_events
from glassflow_dagster.kafka.records import Record
from glassflow_dagster.kafka.schema_registry import RegistryReader


def read_events(records: Sequence[Record], registry: RegistryReader | None) -> Events:
    """Return the events in messages: JSON, or where most have a schema id and no JSON, Avro by the registry's schemas.

    Raises `GlassflowError` where the registry does not answer, or its schemas are not Avro's.
    """
    events = read_json_events(record.value for record in records)
    if registry is None or len(events.objects) >= events.skipped[FROM_A_REGISTRY]:
        return events
    return read_avro_events(records, registry)
