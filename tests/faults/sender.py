"""Sends events to Kafka, and fails where one does not arrive."""

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.faults.records import Event


class Sender:
    """A producer that remembers what Kafka did not take; confluent-kafka's `flush` returns 0 for lost events, too.

    settings: of librdkafka, in addition to the brokers.
    """

    def __init__(self, brokers: str, settings: Mapping[str, Any]) -> None:
        self._producer = Producer({"bootstrap.servers": brokers, "log_level": 0, **settings})
        self._failed: list[str] = []

    def send(self, event: Event) -> None:
        """Begin to send an event."""
        self._producer.produce(
            event.topic, event.value, key=event.key, partition=event.partition, on_delivery=self._delivered
        )

    def poll(self) -> None:
        """Take in what Kafka has answered."""
        self._producer.poll(0)

    def flush(self, seconds: float) -> None:
        """Wait until Kafka has all events; raises AssertionError if it does not take one."""
        left = self._producer.flush(seconds)
        assert left == 0, f"Kafka has not taken {left} events after {seconds} s"
        assert not self._failed, f"Kafka does not take {len(self._failed)} events, as: {self._failed[0]}"

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self._failed.append(f"{message.topic()}/{message.partition()}: {error}")
