"""Propose a definition for a topic: read a sample of its messages, and write the definition."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from glassflow_dagster.inference.definition import pipeline_name
from glassflow_dagster.inference.events import Events
from glassflow_dagster.inference.formats import read_events, read_with_schema
from glassflow_dagster.inference.given_schema import GivenSchema
from glassflow_dagster.inference.proposal_text import Encoding, propose
from glassflow_dagster.inference.record_keys import read_keys
from glassflow_dagster.inference.servers import Servers
from glassflow_dagster.inference.topic_sample import SampledTopic
from glassflow_dagster.stores.kafka.records import Record
from glassflow_dagster.stores.kafka.samples import sample_records
from glassflow_dagster.stores.kafka.schema_registry import RegistryReader
from glassflow_dagster.stream.scala.reader_process import ReaderProcess


@dataclass(frozen=True)
class Proposal:
    """A proposed definition.

    text: YAML with comments.
    messages: those read, of about `estimated_messages`.
    complete: False when reading was ended by its time limit.
    """

    pipeline_id: str
    text: str
    messages: int
    estimated_messages: int
    complete: bool


def propose_for_topic(  # noqa: PLR0913, PLR0917 - what the command takes
    topic: str,
    servers: Servers,
    pipeline_id: str | None,
    messages: int,
    timeout: float,
    report: Callable[[str], None],
    given: GivenSchema | None = None,
) -> Proposal:
    """Read messages from the beginning and the end of every partition, and propose a definition for them.

    No offset is committed, nothing is created.
    pipeline_id: None derives it from the topic.
    timeout: seconds.
    report: receives progress.
    given: the messages' schema; None for that of a registry, or JSON.
    Raises `GlassflowError` where Kafka, the topic or the schema cannot be read, or the messages give no definition.
    """
    connection = servers.kafka()
    connections = servers.connections(connection)
    sample = sample_records(connection, topic, messages, timeout)
    events = _read_events(sample.records, servers, given, report)
    registry = servers.registry() if given is None else None
    # Values of a schema in a file may have ids, too; but then the definition names no registry.
    has_ids = events.with_schema and given is None
    keys = read_keys(sample.records, RegistryReader(registry) if registry else None, may_have_ids=has_ids)
    sampled = SampledTopic(topic, sample.about, sample.partitions)
    return Proposal(
        pipeline_id=pipeline_id or pipeline_name(topic),
        text=propose(sampled, events, connections, pipeline_id, Encoding(given, keys)),
        messages=events.messages,
        estimated_messages=sample.about,
        complete=sample.complete,
    )


def _read_events(
    records: Sequence[Record], servers: Servers, given: GivenSchema | None, report: Callable[[str], None]
) -> Events:
    """Return the events in messages; parameters and errors as of `propose_for_topic`."""
    if given is not None:
        with ReaderProcess(report) as process:
            return read_with_schema(records, given.source(), process.ask)
    registry = servers.registry()
    return read_events(records, RegistryReader(registry) if registry else None, report)
