"""The formats of messages that can be read."""

from collections.abc import Callable, Iterable, Sequence

from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.inference.events import Events
from glassflow_dagster.inference.json_events import FROM_A_REGISTRY, read_json_events
from glassflow_dagster.inference.schema_events import read_avro_events, read_protobuf_events
from glassflow_dagster.stores.kafka.avro_values import AvroReader
from glassflow_dagster.stores.kafka.confluent_wire_format import split_schema_id
from glassflow_dagster.stores.kafka.protobuf_values import Ask, ProtobufReader
from glassflow_dagster.stores.kafka.records import Record
from glassflow_dagster.stores.kafka.schema_registry import RegistryReader
from glassflow_dagster.stream.scala.reader_process import ReaderProcess


def read_events(records: Sequence[Record], registry: RegistryReader | None, report: Callable[[str], None]) -> Events:
    """Return the events in messages: JSON, or where most have a schema id and no JSON, by the registry's schemas.

    report: receives progress. Raises `GlassflowError` where the registry does not answer, or its schemas are of another
    format than the first one, which is Avro or Protobuf.
    """
    events = read_json_events(records)
    if registry is None or len(events.objects) >= events.skipped[FROM_A_REGISTRY]:
        return events
    if _first_type(records, registry) != "PROTOBUF":
        return read_avro_events(records, AvroReader(registry))
    with ReaderProcess(report) as process:
        return read_protobuf_events(records, ProtobufReader(process.ask, registry))


def read_with_schema(records: Iterable[Record], source: Source, ask: Ask) -> Events:
    """Return the events in messages of a source whose format is Avro or Protobuf, by its registry or its own schema.

    ask: the JVM, which reads Protobuf. Raises `GlassflowError` where the registry does not answer, or a schema is none
    of the format.
    """
    reader = AvroReader.of(source)
    return (
        read_protobuf_events(records, ProtobufReader.of(source, ask))
        if reader is None
        else read_avro_events(records, reader)
    )


def _first_type(records: Iterable[Record], registry: RegistryReader) -> str:
    """Return the type of the first message's schema that the registry knows; "" where it knows none."""
    for record in records:
        split = split_schema_id(record.value, record.headers) if record.value is not None else None
        schema = registry.schema(split.schema_id) if split else None
        if schema is not None:
            return schema.type
    return ""
