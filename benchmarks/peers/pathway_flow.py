"""Pathway: `deduplicate` by key with persistence, and an observer that writes each minibatch.

Guarantee: at least once into ClickHouse; after a crash it resumes from the last persisted minibatch (exactly once
within itself).
State: in memory; the input is persisted to the file system and read again after a crash, which is what it offers
without a licence key (persisting operators' state alone asks for one); kept for ever.
Package: pathway
Tuned: minibatches of a second at most, a thread a partition, a backlog limit as its documentation advises for a topic
read from the beginning. Its own ClickHouse sink speaks the native protocol, which the stack of the benchmarks does not
have, so rows go the way of its Python observers.
"""

import os
from typing import Any

import pathway as pw

from benchmarks.peers.task import BLOCK_ROWS, BLOCK_SECONDS, Task

MILLISECONDS = 1000
# The most entries in processing at once: several blocks, so that reading continues while one is written.
BACKLOG = 4 * BLOCK_ROWS


class Event(pw.Schema):
    """The fields of an event."""

    # `id` is Pathway's own name of a row's key.
    event_id: str
    user: str
    name: str
    email: str
    amount: int
    price: float
    sent_at: int


class Blocks(pw.io.python.ConnectorObserver):
    """Collects the rows of a minibatch and writes them when it ends."""

    def __init__(self, task: Task) -> None:
        self._task, self._client = task, task.client()
        self._rows: list[dict[str, Any]] = []

    def on_change(self, key: pw.Pointer, row: dict[str, Any], time: int, is_addition: bool) -> None:
        """Keep a row; none is retracted, because the first event of a key stays."""
        self._rows.append(row)
        if len(self._rows) >= BLOCK_ROWS:
            self._write()

    def on_time_end(self, time: int) -> None:
        """Write the rest of a minibatch."""
        if self._rows:
            self._write()

    def _write(self) -> None:
        self._task.insert(self._client, self._rows, key="event_id")
        self._rows = []


def main() -> None:
    """Run until killed."""
    task = Task.from_environment()
    settings = {
        "bootstrap.servers": task.brokers,
        "group.id": task.table,
        "auto.offset.reset": "earliest",
        # Pathway keeps its own offsets. The offsets that librdkafka commits by itself run ahead of the persisted state:
        # a restart continued from them and lost rows.
        "enable.auto.commit": "false",
    }
    events = pw.io.kafka.read(
        settings, topic=task.topic, schema=Event, format="json",
        json_field_paths={"event_id": "/id"}, name="events",
        autocommit_duration_ms=int(BLOCK_SECONDS * MILLISECONDS), max_backlog_size=BACKLOG,
    )  # fmt: skip
    new = events.deduplicate(
        value=pw.this.sent_at, instance=pw.this.event_id, acceptor=lambda _new, _old: False, name="dedup"
    )
    pw.io.python.write(new, Blocks(task), name="clickhouse")
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(
            pw.persistence.Backend.filesystem(task.state),
            snapshot_interval_ms=int(BLOCK_SECONDS * MILLISECONDS),
        ),
    )


if __name__ == "__main__":
    # Read when the engine starts.
    os.environ.setdefault("PATHWAY_THREADS", os.environ["BENCH_PARTITIONS"])
    main()
