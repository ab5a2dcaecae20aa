"""What passes between the harness and the topics. Nothing of the product is used here."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from clickhouse_connect.driver.client import Client
from confluent_kafka import Consumer, TopicPartition

# A place in Kafka: topic, partition, offset.
Place = tuple[str, int, int]
PARTITIONS = 2


class Event(NamedTuple):
    """What is to be sent; `key` chooses the partition, unless one of those that came later is named."""

    topic: str
    key: str
    value: bytes
    later: int | None = None

    @property
    def partition(self) -> int:
        return sum(self.key.encode()) % PARTITIONS if self.later is None else self.later


class Record(NamedTuple):
    """What is in a topic."""

    topic: str
    partition: int
    offset: int
    value: bytes

    @property
    def place(self) -> Place:
        return (self.topic, self.partition, self.offset)


@dataclass
class Expected:
    """What a pipeline must make of its topics: the rows, the stage of each dead letter, and the ledger's sums.

    `fates` tells what became of each record, where that is its own business (a join's events belong to pairs).
    """

    rows: Counter[tuple[Any, ...]]
    letters: dict[Place, str]
    sums: dict[str, int]
    fates: dict[Place, str] = field(default_factory=dict)


class Workload(Protocol):
    """A pipeline, its events, and what must become of them."""

    columns: Sequence[str]
    own_rows: str

    def topics(self) -> Sequence[str]:
        """The topics it reads."""

    def definition(self, brokers: str, clickhouse_port: int) -> dict[str, Any]:
        """The pipeline's definition."""

    def tables(self) -> Sequence[str]:
        """The statements that make its database and table."""

    def events(self, seed: str, number: int) -> Iterator[Event]:
        """The events of a seed, without an end; `number` is how many repetitions this pipeline has had."""

    def last_events(self, number: int) -> Sequence[Event]:
        """What has to come behind a repetition's events, so that all of them are decided."""

    def beside(self, client: Client, number: int) -> None:
        """What others do to the table while a repetition's events come."""

    def expected(self, records: Sequence[Record], times: Mapping[Place, int]) -> Expected:
        """What the topics' contents make, by definition.

        times: of the batches that read them, milliseconds since 1970, as far as the ledger has them.
        """

    def differences(self, client: Client) -> list[str]:
        """What else is not as it must be: rows of others, tables behind views."""


def offset_ranges(offsets: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, range]]:
    """Read the offsets of a ledger's row: topic, partition, and the offsets that the batch read there."""
    return [(each["topic"], each["partition"], range(each["from"], each["until"])) for each in offsets]


def batch_times(ledger: Sequence[Mapping[str, Any]]) -> dict[Place, int]:
    """Say of each record in which moment's batch it was, milliseconds since 1970."""
    return {
        (topic, partition, offset): round(row["batch_time"].timestamp() * 1000)
        for row in ledger
        for topic, partition, offsets in offset_ranges(row["offsets"])
        for offset in offsets
    }


class Topics:
    """All that is in some topics, read anew from where the last reading ended."""

    def __init__(self, brokers: str, topics: Sequence[str]) -> None:
        self._consumer = Consumer({
            "bootstrap.servers": brokers, "group.id": "harness", "enable.auto.commit": False, "log_level": 0,
        })  # fmt: skip
        self._topics = topics
        self._next: Counter[tuple[str, int]] = Counter()
        self.kept: list[Record] = []

    def read(self) -> list[Record]:
        for topic in self._topics:
            for partition in self._consumer.list_topics(topic, timeout=30).topics[topic].partitions:
                self._read_on(topic, partition)
        return self.kept

    def _read_on(self, topic: str, partition: int) -> None:
        place = TopicPartition(topic, partition, self._next[topic, partition])
        end = self._consumer.get_watermark_offsets(place, timeout=30)[1]
        self._consumer.assign([place])
        while self._next[topic, partition] < end:
            message = self._consumer.poll(30)
            assert message is not None, f"{topic}/{partition} ends before {end}"
            assert not message.error(), message.error()
            self.kept.append(Record(topic, partition, message.offset(), message.value()))
            self._next[topic, partition] = message.offset() + 1

    def close(self) -> None:
        self._consumer.close()
