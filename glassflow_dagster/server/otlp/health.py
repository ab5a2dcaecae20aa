"""Whether the brokers answer: asked every few seconds, for /healthz and the receiver's messages."""

import asyncio
import time
from collections.abc import Callable

from confluent_kafka import KafkaException

from glassflow_dagster.server.otlp.kafka_writer import KafkaWriter

_INTERVAL_SECONDS = 5.0
_ANSWER_SECONDS = 4.0
# Two probes without an answer, and a third that is under way.
_STALE_SECONDS = 15.0


class BrokerProbe:
    """The time of the brokers' last answer. It begins as now: the topics have just been read."""

    def __init__(self, writer: KafkaWriter, topic: str, report: Callable[[str], None]) -> None:
        self._writer = writer
        self._topic = topic
        self._report = report
        self._answered = time.monotonic()
        self._failing = False

    async def run(self) -> None:
        """Ask the brokers until the task is cancelled; report when they stop answering and when they answer again."""
        while True:
            try:
                await asyncio.to_thread(self._writer.ask_brokers, self._topic, _ANSWER_SECONDS)
            except KafkaException as error:
                if not self._failing:
                    self._report(f"otlp: Kafka does not answer ({error.args[0].str()}); clients are told to try again")
                self._failing = True
            else:
                if self._failing:
                    self._report("otlp: Kafka answers again")
                self._failing = False
                self._answered = time.monotonic()
            await asyncio.sleep(_INTERVAL_SECONDS)

    def age(self) -> float:
        """Return the seconds since the brokers' last answer."""
        return time.monotonic() - self._answered

    def problem(self) -> str:
        """Return what is wrong; empty while the brokers answer."""
        age = self.age()
        return f"Kafka has not answered for {age:.0f} s" if age > _STALE_SECONDS else ""
