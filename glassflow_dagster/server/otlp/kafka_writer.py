"""Writes messages to Kafka and reports when all of them are acknowledged.

librdkafka calls back in the thread that polls; everything else happens in the event loop's thread.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.server.otlp.budget import OVERHEAD, Budget
from glassflow_dagster.server.otlp.receiver_metrics import ReceiverMetrics
from glassflow_dagster.server.otlp.refusals import Reason, Refusal
from glassflow_dagster.stores.kafka.client import client_settings
from glassflow_dagster.stores.kafka.consumer import usable_settings

_POLL_SECONDS = 0.1  # how long the poll thread waits for an event before it looks whether it shall end
_UNLIMITED_KBYTES = 2_147_483_647  # librdkafka's maximum: the budget is the limit of its queue
# What a record batch has besides the value of its only record; 61 bytes and some for the record. Source: Kafka's
# protocol guide, record batch.
_BATCH_OVERHEAD = 512
# librdkafka's default, which is below the default limit of a topic.
_LARGEST_BATCH = 1_000_000


@dataclass(frozen=True)
class Limits:
    """Limits of a writer.

    topic: max.message.bytes of the topics, the least of them.
    ack_timeout: seconds after which a message without acknowledgement fails.
    queue: of the messages that wait for it.
    """

    topic: int
    ack_timeout: float
    queue: Budget

    @property
    def message(self) -> int:
        """The most bytes of a message."""
        return self.topic - _BATCH_OVERHEAD


class KafkaWriter:
    """An idempotent producer with a bounded queue."""

    def __init__(
        self, connection: KafkaConnection, limits: Limits, metrics: ReceiverMetrics, on_fatal: Callable[[str], None]
    ) -> None:
        """Start a producer and its poll thread; raises `KafkaRefused` for settings that librdkafka rejects.

        on_fatal: called in the event loop with an error after which nothing can be written any more.
        """
        self.largest_message = limits.message
        self._ack_timeout = limits.ack_timeout
        self._queue = limits.queue
        self._metrics = metrics
        self._on_fatal = on_fatal
        self._loop = asyncio.get_running_loop()
        self._producer = _producer(connection, limits, self.on_error)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="kafka-writer")
        self._thread.start()

    def write(self, topic: str, messages: Sequence[bytes]) -> "asyncio.Future[None]":
        """Queue the messages and return a future that is done when Kafka has acknowledged all of them.

        Raises `Refusal` at once if the queue is full; then none is queued. The future raises `Refusal` for messages
        without acknowledgement, some of which may be in the topic.
        """
        pending = _Pending(self._loop.create_future(), len(messages))
        self._queue.take(_size(messages))
        for message in messages:
            self._produce(topic, message, pending)
        return pending.future

    def ask_brokers(self, topic: str, seconds: float) -> None:
        """Return when a broker has answered; raises `KafkaException` after the time. Blocks."""
        self._producer.list_topics(topic, timeout=seconds)

    def close(self) -> None:
        """Wait until each message is acknowledged or has failed, and end the poll thread. Blocks."""
        self._producer.flush(self._ack_timeout)
        self._ended.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._ended.is_set():
            self._producer.poll(_POLL_SECONDS)

    def _produce(self, topic: str, message: bytes, pending: "_Pending") -> None:
        size, begun = _size([message]), time.monotonic()

        def settle(error: KafkaError | None) -> None:
            self._queue.give_back(size)
            if error is None:
                self._metrics.acknowledged(topic, len(message), time.monotonic() - begun)
            pending.settle(self._refusal(topic, error) if error else None)

        def delivered(error: KafkaError | None, _message: object) -> None:
            self._loop.call_soon_threadsafe(settle, error)

        try:
            self._producer.produce(topic, message, on_delivery=delivered)
        except KafkaException as raised:
            settle(raised.args[0])
        except BufferError:  # librdkafka's queue, which has no limit but its memory
            settle(KafkaError(KafkaError._QUEUE_FULL))

    def on_error(self, error: KafkaError) -> None:
        """Receive an error that belongs to no message: the connection's, which librdkafka repeats, or a fatal one."""
        if error.fatal():
            self._loop.call_soon_threadsafe(self._on_fatal, error.str())

    def _refusal(self, topic: str, error: KafkaError) -> Refusal:
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE:
            return Refusal(
                Reason.UNAVAILABLE,
                f"topic {topic!r} takes no message of this size, as its max.message.bytes has changed; start the "
                "receiver again",
            )
        if error.code() == KafkaError._MSG_TIMED_OUT:
            return Refusal(
                Reason.UNAVAILABLE, f"Kafka has not acknowledged within {self._ack_timeout:g} s; send it again"
            )
        return Refusal(Reason.UNAVAILABLE, f"topic {topic!r} cannot be written to: {error.str()}; send it again")


class _Pending:
    """The future of several messages, which is done with the last of them."""

    def __init__(self, future: "asyncio.Future[None]", remaining: int) -> None:
        self.future = future
        self._remaining = remaining
        self._refusal: Refusal | None = None
        if not remaining:
            future.set_result(None)

    def settle(self, refusal: Refusal | None) -> None:
        """Count a message that is acknowledged (None) or has failed."""
        self._remaining -= 1
        self._refusal = self._refusal or refusal
        if self._remaining or self.future.done():
            return
        if self._refusal:
            self.future.set_exception(self._refusal)
        else:
            self.future.set_result(None)


def _size(messages: Sequence[bytes]) -> int:
    return sum(len(message) + OVERHEAD for message in messages)


def _producer(connection: KafkaConnection, limits: Limits, on_error: Callable[[KafkaError], None]) -> Producer:
    settings: dict[str, Any] = {
        **client_settings(connection),
        # Implies acks=all, and retries without duplicates until the message's timeout.
        "enable.idempotence": True,
        "message.timeout.ms": round(limits.ack_timeout * 1000),
        "message.max.bytes": limits.topic,
        "batch.size": min(_LARGEST_BATCH, limits.message),
        # A client waits for each answer, so no message waits for others; under load, those that arrive meanwhile share
        # a batch.
        "linger.ms": 0,
        "compression.type": "lz4",
        "queue.buffering.max.messages": 0,
        "queue.buffering.max.kbytes": _UNLIMITED_KBYTES,
        # A topic that is deleted while the receiver runs must not come back with other settings.
        "allow.auto.create.topics": False,
        "error_cb": on_error,
    }
    with usable_settings():
        return Producer(settings)
