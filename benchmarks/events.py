"""Seeded events, and topics filled with them."""

import hashlib
import json
import random
from collections.abc import Callable, Iterable, Iterator

from confluent_kafka import Producer

from benchmarks.console import say
from benchmarks.stack import Stack
from glassflow_dagster.local.demo.produce import create_topic

SEED = 7


DUPLICATES = 0.1


# seconds; a broker on this machine takes 76,000 events a second, and the producer's queue holds half a million
_FLUSH_SECONDS = 60.0


# `sent_at` of events whose latency is not measured: 2026-01-01, in microseconds.
_NEW_YEAR = 1_767_225_600_000_000


# The most that a run may add to a state, as a share of its keys; beyond it the next run fills a new state.
_MOST_GROWTH = 0.05


# The fields of the events: type in `schema_fields` of a definition, column type in ClickHouse.
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
    """Return the id of an event: 32 hexadecimal digits that do not compress, like a UUID."""
    return hashlib.blake2b(number.to_bytes(8), digest_size=16).hexdigest()


def can_stay(keys: int, events: float) -> bool:
    """Return whether a state of `keys` keys stays about the same size when a run sends `events` more events."""
    return events * (1 - DUPLICATES) <= _MOST_GROWTH * keys


def event(number: int, sent_at: int = _NEW_YEAR, **more: object) -> bytes:
    """Return an event as 190 bytes of JSON, plus extra fields; sent_at: microseconds since 1970."""
    return json.dumps({
        "id": key(number), "user": f"user-{number % 10_000:05}", "name": f"User {number:08}",
        "email": f"customer.{number:08}@example.test", "amount": number % 15, "price": number % 10_000 / 100,
        "sent_at": sent_at, **more,
    }).encode()  # fmt: skip


def numbers(count: int, *, first: int = 0, seed: int = SEED) -> Iterator[int]:
    """Yield `count` event numbers counting up from `first`; a share of DUPLICATES repeats an earlier number."""
    draw, following = random.Random(seed), first
    for _ in range(count):
        if following > 0 and draw.random() < DUPLICATES:
            yield draw.randrange(following)
        else:
            yield following
            following += 1


def distinct(count: int, *, first: int = 0, seed: int = SEED) -> int:
    """Return how many of the event numbers that `numbers` yields are new."""
    return max(numbers(count, first=first, seed=seed), default=first - 1) + 1 - first


class Sender:
    """Sends events with their id as the Kafka key, so that both copies of an event are in one partition.

    Consumers with state per partition find duplicates only within a partition; other consumers are not affected.
    """

    def __init__(self, brokers: str, topic: str, linger_ms: int = 20) -> None:
        self._topic = topic
        # A local list, not an attribute: a cycle between producer and sender would keep the producer's threads alive.
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
        """Send an event; block while the producer's queue is full."""
        while True:
            try:
                self._producer.produce(self._topic, value, key)
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until the broker has confirmed all events; exit if one failed."""
        if self._producer.flush(_FLUSH_SECONDS) or self._failed:
            raise SystemExit(f"not all events reached the topic: {self._failed[0] if self._failed else 'no answer'}")


def fill(brokers: str, topic: str, chosen: Iterable[int], make: Callable[[int], bytes] = event) -> int:
    """Send the events with these numbers, built by `make`; return how many were sent."""
    sender, count = Sender(brokers, topic), 0
    for number in chosen:
        sender.send(key(number).encode(), make(number))
        count += 1
    sender.finish()
    return count


def fill_topic(stack: Stack, topic: str, count: int, make: Callable[[int], bytes] = event) -> None:
    """Create a topic and send it the first `count` events of `numbers`, built by `make`."""
    create_topic(stack.brokers, topic)
    say(f"{topic}: sending {count:,} events ...")
    fill(stack.brokers, topic, numbers(count), make)
