"""The floor: a consumer of confluent-kafka, a set in memory, and inserts by clickhouse-connect.

Guarantee: at least once; after a crash what was read since the last commit, and every repetition of older keys, is
written again.
State: in memory only, one set of keys; lost when the process ends.
Package: confluent-kafka
Tuned: orjson, messages taken 10,000 at a time, one process for all partitions (the set cannot be shared).
"""

import time
from typing import Any

import orjson
from confluent_kafka import Consumer

from benchmarks.peers.task import BLOCK_ROWS, BLOCK_SECONDS, Task

# The most messages that one call takes from librdkafka's queue.
TAKEN = 10_000
POLL_SECONDS = 0.1


def main() -> None:
    """Consume until killed."""
    task = Task.from_environment()
    client = task.client()
    consumer = Consumer({
        "bootstrap.servers": task.brokers, "group.id": task.table, "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe([task.topic])
    seen: set[str] = set()
    block: list[dict[str, Any]] = []
    written = time.monotonic()
    while True:
        for message in consumer.consume(TAKEN, timeout=POLL_SECONDS):
            if message.error():
                raise SystemExit(str(message.error()))
            event = orjson.loads(message.value())
            if event["id"] not in seen:
                seen.add(event["id"])
                block.append(event)
        if block and (len(block) >= BLOCK_ROWS or time.monotonic() - written >= BLOCK_SECONDS):
            task.insert(client, block)
            consumer.commit(asynchronous=True)
            block = []
            written = time.monotonic()


if __name__ == "__main__":
    main()
