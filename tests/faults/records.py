"""Events, records and expectations of the fault tests. Uses none of the product's code."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from clickhouse_connect.driver.client import Client
from confluent_kafka import Consumer, TopicPartition

# A position in Kafka: topic, partition, offset.
Position = tuple[str, int, int]
# The same, with the event's index where a record has many events, and -1 where it is one.
Place = tuple[str, int, int, int]
PARTITIONS = 2


class Event(NamedTuple):
    """An event to send; `key` determines the partition unless `later` names a partition that was added later."""

    topic: str
    key: str
    value: bytes
    later: int | None = None

    @property
    def partition(self) -> int:
        return sum(self.key.encode()) % PARTITIONS if self.later is None else self.later


class Record(NamedTuple):
    """A record read from a topic."""

    topic: str
    partition: int
    offset: int
    value: bytes
    key: bytes

    @property
    def position(self) -> Position:
        return (self.topic, self.partition, self.offset)

    def place(self, item: int = -1) -> Place:
        """Return the place of an event of the record."""
        return (*self.position, item)


@dataclass
class Expected:
    """The rows, dead letters (place -> stage) and ledger sums that a pipeline must produce from its topics.

    `fates` has the outcome of each record, except for joins, where outcomes belong to pairs. `further`: the other
    outcomes of a record that has several.
    """

    rows: Counter[tuple[Any, ...]]
    dead_letters: dict[Place, str]
    sums: dict[str, int]
    fates: dict[Position, str] = field(default_factory=dict)
    further: dict[Position, Sequence[str]] = field(default_factory=dict)


class Workload(Protocol):
    """A pipeline, its events, and its expected results."""

    columns: Sequence[str]
    own_rows: str

    def topics(self) -> Sequence[str]:
        """Return the topics that the pipeline reads."""

    def definition(self, brokers: str, clickhouse_port: int) -> dict[str, Any]:
        """Return the pipeline's definition."""

    def tables(self) -> Sequence[str]:
        """Return the statements that create its database and table."""

    def events(self, seed: str, number: int) -> Iterator[Event]:
        """Yield the endless events of a seed; `number`: how many repetitions the pipeline has had."""

    def last_events(self, number: int) -> Sequence[Event]:
        """Return the events that must follow a repetition's events, so that all of these are decided."""

    def write_concurrently(self, client: Client, number: int) -> None:
        """Write to the table as another writer would during a repetition."""

    def undecided(self, records: Sequence[Record]) -> int:
        """Return how many left events of a join are undecided when all records are processed."""

    def expected(self, records: Sequence[Record], times: Mapping[Position, int]) -> Expected:
        """Compute the expected results from the topics' contents.

        times: batch time of each record in milliseconds since 1970, as far as the ledger has it.
        """

    def differences(self, client: Client) -> list[str]:
        """Return further differences: rows of other writers, tables behind views."""


def offset_ranges(offsets: Sequence[Mapping[str, Any]]) -> list[tuple[str, int, range]]:
    """Parse the offsets of a ledger row: topic, partition, and the range of offsets that the batch read."""
    return [(each["topic"], each["partition"], range(each["from"], each["until"])) for each in offsets]


def batch_times(ledger: Sequence[Mapping[str, Any]]) -> dict[Position, int]:
    """Return the time of each record's batch, in milliseconds since 1970."""
    return {
        (topic, partition, offset): round(row["batch_time"].timestamp() * 1000)
        for row in ledger
        for topic, partition, offsets in offset_ranges(row["offsets"])
        for offset in offsets
    }


class Topics:
    """All records of some topics; `read` continues where the previous call ended."""

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
        position = TopicPartition(topic, partition, self._next[topic, partition])
        end = self._consumer.get_watermark_offsets(position, timeout=30)[1]
        self._consumer.assign([position])
        while self._next[topic, partition] < end:
            message = self._consumer.poll(30)
            assert message is not None, f"{topic}/{partition} ends before {end}"
            assert not message.error(), message.error()
            self.kept.append(Record(topic, partition, message.offset(), message.value(), message.key()))
            self._next[topic, partition] = message.offset() + 1

    def close(self) -> None:
        self._consumer.close()
