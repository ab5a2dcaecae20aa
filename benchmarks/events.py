"""Events, and topics full of them."""

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator

from confluent_kafka import Producer

from benchmarks.console import say
from benchmarks.stack import Stack
from glassflow_dagster.demo.produce import create_topic

SEED = 7


DUPLICATES = 0.1


# A broker on the same machine takes 76,000 events a second, and the producer holds half a million.
_FLUSH_SECONDS = 60.0


# What events of which nobody asks have as the time of their sending: 2026, in microseconds.
_NEW_YEAR = 1_767_225_600_000_000


# A run that makes a state so much larger, as a share of it, is no run with so many keys: the next one fills another.
_MOST_GROWTH = 0.05


# The events of `events`, as ClickHouse and as a definition's `schema_fields` have them.
COLUMNS = {
    "id": ("string", "String"),
    "user": ("string", "String"),
    "name": ("string", "String"),
    "email": ("string", "String"),
    "amount": ("int", "Int32"),
    "price": ("float", "Float64"),
    "sent_at": ("int", "Int64"),
}


def key(number: int) -> str:
    """The id of the event with this number: 32 digits that nothing can compress, as a UUID's."""
    return hashlib.blake2b(number.to_bytes(8), digest_size=16).hexdigest()


def can_stay(keys: int, events: float) -> bool:
    """Whether a state of so many keys is still about as large when a run has sent so many events."""
    return events * (1 - DUPLICATES) <= _MOST_GROWTH * keys


def event(number: int, sent_at: int = _NEW_YEAR, **more: str) -> bytes:
    """The event with this number, 190 bytes of JSON and more fields. sent_at: microseconds."""
    return json.dumps({
        "id": key(number), "user": f"user-{number % 10_000:05}", "name": f"User {number:08}",
        "email": f"customer.{number:08}@example.test", "amount": number % 15, "price": number % 10_000 / 100,
        "sent_at": sent_at, **more,
    }).encode()  # fmt: skip


def numbers(count: int, *, first: int = 0, seed: int = SEED) -> Iterator[int]:
    """Yield the numbers of this many events, counted from `first`.

    A share of DUPLICATES of them repeat one that is drawn from all numbers before it, 0 included.
    """
    draw, next_number = random.Random(seed), first
    for _ in range(count):
        if next_number > 0 and draw.random() < DUPLICATES:
            yield draw.randrange(next_number)
        else:
            yield next_number
            next_number += 1


def distinct(count: int, *, first: int = 0, seed: int = SEED) -> int:
    """How many of the events that `numbers` gives are new."""
    return max(numbers(count, first=first, seed=seed), default=first - 1) + 1 - first


class Sender:
    """Sends events to a topic, each under its id as Kafka's key, so that both sendings lie in one partition.

    Consumers that keep their state by partition find duplicates only there; for others it makes no difference.
    """

    def __init__(self, brokers: str, topic: str, linger_ms: int = 20) -> None:
        self._topic = topic
        # Not a method: producer and sender would hold each other, and the producer's threads live on.
        failed: list[str] = []
        self._failed = failed

        def delivered(error: object, _message: object) -> None:
            if error is not None:
                failed.append(str(error))

        self._producer = Producer(
            {
                "bootstrap.servers": brokers,
                "linger.ms": linger_ms,
                "queue.buffering.max.messages": 500_000,
                # By the key alone, so that every run has the same partitions.
                "partitioner": "consistent",
                "on_delivery": delivered,
            }
        )

    def send(self, key: bytes, value: bytes) -> None:
        """Hand an event over; it waits while the producer's queue is full."""
        while True:
            try:
                self._producer.produce(self._topic, value, key)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until the broker has all events; raises SystemExit when one did not reach it."""
        if self._producer.flush(_FLUSH_SECONDS) or self._failed:
            raise SystemExit(f"not all events reached the topic: {self._failed[0] if self._failed else 'no answer'}")


def fill(brokers: str, topic: str, event_numbers: Iterable[int], make: Callable[[int], bytes] = event) -> int:
    """Send the events with these numbers, as `make` makes them; return their number."""
    sender, count = Sender(brokers, topic), 0
    for number in event_numbers:
        sender.send(key(number).encode(), make(number))
        count += 1
    sender.finish()
    return count


def fill_topic(stack: Stack, topic: str, count: int, make: Callable[[int], bytes] = event) -> None:
    """Create a topic and send this many of the events of `numbers`, as `make` makes them."""
    create_topic(stack.brokers, topic)
    say(f"{topic}: sending {count:,} events ...")
    fill(stack.brokers, topic, numbers(count), make)
