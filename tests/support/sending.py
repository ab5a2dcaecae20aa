"""Sends records to Kafka, and fails where one does not arrive."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

# librdkafka's number for "the partition that the key determines, or any".
ANY_PARTITION = -1


class Sender:
    """A producer that remembers what Kafka did not take; confluent-kafka's `flush` returns 0 for lost records, too.

    settings: of librdkafka, in addition to the brokers. producer: for transactions.
    """

    def __init__(self, brokers: str, settings: Mapping[str, Any] | None = None) -> None:
        self.producer = Producer({"bootstrap.servers": brokers, **(settings or {})})
        self._failed: list[str] = []

    def send(
        self,
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None = None,
        partition: int = ANY_PARTITION,
        *,
        timestamp: int = 0,
        headers: Sequence[tuple[str, str | bytes | None]] = (),
    ) -> None:
        """Begin to send a record; timestamp: milliseconds since 1970, 0 for now."""
        self.producer.produce(topic, value, key, partition, self._delivered, timestamp=timestamp, headers=list(headers))
        self.producer.poll(0)

    def flush(self, seconds: float = 30) -> None:
        """Wait until Kafka has all records; raises AssertionError if it does not take one."""
        left = self.producer.flush(seconds)
        assert left == 0, f"Kafka has not taken {left} records after {seconds} s"
        assert not self._failed, f"Kafka does not take {len(self._failed)} records, as: {self._failed[0]}"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(f"{message.topic()}/{message.partition()}: {error}")


def send(brokers: str, topic: str, values: Iterable[bytes | str | None], partition: int = ANY_PARTITION) -> None:
    """Send records that are values alone; return when Kafka has them."""
    sender = Sender(brokers)
    for value in values:
        sender.send(topic, value, partition=partition)
    sender.flush()
