"""Propose a definition for a topic: read a sample of its messages, and write the definition."""

from dataclasses import dataclass

from glassflow_dagster.inference.definition import SampledTopic, pipeline_name, propose
from glassflow_dagster.inference.formats import read_events
from glassflow_dagster.inference.record_keys import read_keys
from glassflow_dagster.inference.servers import Servers
from glassflow_dagster.kafka.samples import sample_records
from glassflow_dagster.kafka.schema_registry import RegistryReader


@dataclass(frozen=True)
class Proposal:
    """A proposed definition. text: YAML with comments. messages: those read, of about `estimated_messages`.

    complete: False when reading was ended by its time limit.
    """

    pipeline_id: str
    text: str
    messages: int
    estimated_messages: int
    complete: bool


def propose_for_topic(topic: str, servers: Servers, pipeline_id: str | None, messages: int, timeout: float) -> Proposal:
    """Read messages from the beginning and the end of every partition, and propose a definition for them.

    No offset is committed, nothing is created. pipeline_id: None derives it from the topic. timeout: seconds. Raises
    `GlassflowError` where Kafka or the topic cannot be read, or its messages give no definition.
    """
    connection = servers.kafka()
    connections = servers.connections(connection)
    sample = sample_records(connection, topic, messages, timeout)
    registry = servers.registry()
    reader = RegistryReader(registry) if registry else None
    events = read_events(sample.records, reader)
    keys = read_keys(sample.records, events, reader)
    sampled = SampledTopic(topic, sample.about, sample.partitions)
    return Proposal(
        pipeline_id=pipeline_id or pipeline_name(topic),
        text=propose(sampled, events, connections, pipeline_id, keys),
        messages=events.messages,
        estimated_messages=sample.about,
        complete=sample.complete,
    )
