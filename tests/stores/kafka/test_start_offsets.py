"""The offsets of a first start: an end of the topic, a time, or the offsets of a consumer group."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.kafka.start_offsets import FIRST, NEXT, StartUnknown, starting_offsets
from glassflow_dagster.stores.kafka.topics import commit_offsets
from tests.support.definition import definition, fields, sink, source
from tests.support.sending import Sender
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers

# GlassFlow names its consumer group by a hash of the pipeline's id.
PIPELINE, GROUP = "parcel-scans", "glassflow-consumer-group-"


def config(connection: KafkaConnection, topic: str | None, **changes: Any) -> PipelineConfig:
    read = source("s", fields(id="string"), topic=topic, connection_params=connection.model_dump(), **changes)
    return PipelineConfig.model_validate(definition(PIPELINE, read, sink({"id": "String"})))


@pytest.fixture
def topic(connection: KafkaConnection, new_topic: Callable[..., str]) -> str:
    """Create two partitions: ten records with the times 1000 to 1009 s in the first, none in the second."""
    name = new_topic(partitions=2)
    sender = Sender(connection.brokers[0])
    for second in range(10):
        sender.send(name, b"{}", partition=0, timestamp=(1000 + second) * 1000)
    sender.flush()
    return name


def test_a_start_at_either_end_of_the_topic(connection: KafkaConnection, topic: str) -> None:
    assert starting_offsets(config(connection, topic)) == {topic: {0: FIRST, 1: FIRST}}
    assert starting_offsets(config(connection, topic, consumer_group_initial_offset="latest")) == {
        topic: {0: NEXT, 1: NEXT}
    }
    both = config(connection, topic, consumer_group_initial_offset="latest", start="earliest")
    assert starting_offsets(both) == {topic: {0: FIRST, 1: FIRST}}


@pytest.mark.parametrize(("second", "first"), [(0, 0), (1004, 4), (1004.5, 5), (5000, 10)])
def test_a_time_is_the_first_record_that_is_not_older(
    connection: KafkaConnection, topic: str, second: float, first: int
) -> None:
    start = datetime.fromtimestamp(second, UTC)
    assert starting_offsets(config(connection, topic, start=start)) == {topic: {0: first, 1: 0}}
    assert starting_offsets(config(connection, topic, start=start.isoformat())) == {topic: {0: first, 1: 0}}


def test_glassflows_own_group_and_a_partition_that_it_never_read(connection: KafkaConnection, topic: str) -> None:
    committed = config(connection, topic, start="committed", consumer_group_initial_offset="latest")
    with pytest.raises(StartUnknown, match=f"{GROUP}[0-9a-f]{{8}}' has committed no offset of topic"):
        starting_offsets(committed)
    commit_offsets(connection, committed.glassflow_consumer_group, {topic: {0: 7}})
    assert starting_offsets(committed) == {topic: {0: 7, 1: NEXT}}


def test_a_start_at_the_offsets_of_a_named_group(connection: KafkaConnection, topic: str) -> None:
    commit_offsets(connection, "mine", {topic: {0: 3, 1: 0}})
    assert starting_offsets(config(connection, topic, start="committed", consumer_group="mine")) == {
        topic: {0: 3, 1: 0}
    }


def test_of_several_topics_each_starts_at_its_own_offsets(
    connection: KafkaConnection, topic: str, new_topic: Callable[..., str]
) -> None:
    other = new_topic(partitions=1)
    both = {"topic": None, "topics": [topic, other]}
    assert starting_offsets(config(connection, **both)) == {topic: {0: FIRST, 1: FIRST}, other: {0: FIRST}}
    start = datetime.fromtimestamp(1004, UTC)
    assert starting_offsets(config(connection, **both, start=start)) == {topic: {0: 4, 1: 0}, other: {0: 0}}
    commit_offsets(connection, "both", {topic: {0: 3}})
    committed = config(connection, **both, start="committed", consumer_group="both")
    assert starting_offsets(committed) == {topic: {0: 3, 1: FIRST}, other: {0: FIRST}}


def test_a_group_that_retention_has_overtaken_loses_nothing_in_silence(connection: KafkaConnection, topic: str) -> None:
    commit_offsets(connection, "slow", {topic: {0: 2}})
    delete_before(connection, topic, 5)
    with pytest.raises(StartUnknown, match=f"is at offset 2 of {topic}/0, which holds 5 to 10"):
        starting_offsets(config(connection, topic, start="committed", consumer_group="slow"))


def delete_before(connection: KafkaConnection, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": connection.brokers[0]})
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result()
    consumer = Consumer({"bootstrap.servers": connection.brokers[0], "group.id": "looks"})
    place = TopicPartition(topic, 0)
    wait_until(lambda: consumer.get_watermark_offsets(place, timeout=10)[0] == offset, "the records are gone")
    consumer.close()
