"""Sends events to topics, reads and counts them, without any code of the pipelines."""

import random
import time
from collections.abc import Callable, Iterable, Iterator

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from glassflow_dagster.errors import GlassflowError

PARTITIONS = 2
# A broker on the same machine answers in milliseconds; after this time it has failed.
_ANSWER_SECONDS = 30.0


def create_topic(brokers: str, topic: str, partitions: int = PARTITIONS) -> None:
    """Create a topic unless it exists; return when every partition has a leader."""
    admin = AdminClient({"bootstrap.servers": brokers})
    if topic not in admin.list_topics(timeout=_ANSWER_SECONDS).topics:
        futures = admin.create_topics([NewTopic(topic, partitions, replication_factor=1)])
        try:
            futures[topic].result(_ANSWER_SECONDS)
        except KafkaException as error:
            raise GlassflowError(
                f"topic {topic} cannot be created: {error.args[0].str()}; see the broker's log"
            ) from None
    _wait_for_leaders(brokers, topic)


def send(brokers: str, topic: str, events: Iterable[bytes], seed: int, report: Callable[[int], None]) -> int:
    """Send events and return their number; `report` gets the number sent so far.

    The seed draws the partition of each event, so that duplicates land in different partitions.
    """
    draw = random.Random(seed)
    failed: list[str] = []

    def delivered(error: object, _message: object) -> None:
        if error is not None:
            failed.append(str(error))

    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    count = 0
    for event in events:
        partition = draw.randrange(PARTITIONS)
        while True:
            try:
                producer.produce(topic, event, partition=partition, on_delivery=delivered)
                break
            except BufferError:  # the queue is full
                producer.poll(0.1)
        count += 1
        if count % 1000 == 0:
            producer.poll(0)  # calls `delivered` for the events that are acknowledged
            report(count)
    if producer.flush(_ANSWER_SECONDS) or failed:
        raise GlassflowError(f"not all events reached topic {topic}: {failed[0] if failed else 'no answer'}")
    report(count)
    return count


def count_events(brokers: str, topic: str) -> int:
    """Count the events of a topic by reading it to its current end."""
    return sum(1 for _ in read_events(brokers, topic))


def read_events(brokers: str, topic: str) -> Iterator[tuple[int, int, bytes]]:
    """Read a topic from its beginning to its current end; yield partition, offset, and value (b"" for none)."""
    consumer = _reader(brokers)
    try:
        partitions = consumer.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic].partitions
        # Partition -> its first offset and the next one after its last record.
        watermarks = {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_ANSWER_SECONDS)
            for partition in partitions
        }
        open_partitions = {partition for partition, (low, high) in watermarks.items() if high > low}
        consumer.assign([TopicPartition(topic, partition, watermarks[partition][0]) for partition in open_partitions])
        deadline = time.monotonic() + _ANSWER_SECONDS
        while open_partitions and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=1.0):
                deadline = time.monotonic() + _ANSWER_SECONDS
                error, partition, offset = message.error(), message.partition(), message.offset()
                if error or partition is None or offset is None:
                    raise GlassflowError(f"topic {topic} cannot be read: {error}; is the broker up?")
                yield partition, offset, message.value() or b""
                if offset + 1 >= watermarks[partition][1]:
                    open_partitions.discard(partition)
        if open_partitions:
            raise GlassflowError(f"topic {topic} could not be read to its end; is the broker up?")
    finally:
        consumer.close()


def _reader(brokers: str) -> Consumer:
    return Consumer({"bootstrap.servers": brokers, "group.id": "glassflow-demo-count", "enable.auto.commit": False})


def _wait_for_leaders(brokers: str, topic: str) -> None:
    """Wait until every partition has a leader, which a new topic gets only after its metadata is visible."""
    consumer = _reader(brokers)
    deadline = time.monotonic() + _ANSWER_SECONDS
    try:
        for partition in consumer.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic].partitions:
            while not _has_leader(consumer, TopicPartition(topic, partition)):
                if time.monotonic() > deadline:
                    raise GlassflowError(f"topic {topic} has a partition without a leader; see the broker's log")
                time.sleep(0.1)
    finally:
        consumer.close()


def _has_leader(consumer: Consumer, partition: TopicPartition) -> bool:
    """Return whether a broker answers for the partition's offsets."""
    try:
        consumer.get_watermark_offsets(partition, timeout=_ANSWER_SECONDS)
    except KafkaException:
        return False
    return True
