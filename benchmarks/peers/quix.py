"""Quix Streams: a stateful filter on the message key and a batching sink.

Guarantee: at least once into ClickHouse; a checkpoint writes the sink's batches first, then state, then offsets, so
after a crash in between the last checkpoint's rows are written again.
State: RocksDB on disk for each partition, each change also sent to a changelog topic in Kafka, from which it is
restored; kept for ever.
Package: quixstreams
Tuned: two processes in one consumer group, one a partition, because one process uses one core; a checkpoint for each
block of rows or second. Its state is by message key and partition, so the topic is keyed by `id`; on other topics it
repartitions first.
"""

import multiprocessing
from typing import Any

from quixstreams import Application, State
from quixstreams.sinks import BatchingSink, SinkBatch

from benchmarks.peers.task import BLOCK_ROWS, BLOCK_SECONDS, Task


class ClickHouseSink(BatchingSink):
    """A sink with one insert per partition and checkpoint."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        self._task = task

    def setup(self) -> None:
        """Connect to ClickHouse."""
        self._client = self._task.client()

    def write(self, batch: SinkBatch) -> None:
        """Insert the rows that a checkpoint has collected of one partition."""
        for chunk in batch.iter_chunks(BLOCK_ROWS):
            self._task.insert(self._client, [item.value for item in chunk])


def is_new(_event: dict[str, Any], state: State) -> bool:
    """Return whether the key is new, and remember it."""
    if state.exists("seen"):
        return False
    state.set("seen", 1)
    return True


def run(task: Task, number: int) -> None:
    """Run one member of the consumer group."""
    application = Application(
        broker_address=task.brokers,
        consumer_group=task.table,
        auto_offset_reset="earliest",
        state_dir=task.state / str(number),
        commit_interval=BLOCK_SECONDS,
        commit_every=BLOCK_ROWS,
        loglevel="WARNING",
    )
    stream = application.dataframe(application.topic(task.topic, value_deserializer="json"))
    stream = stream.filter(is_new, stateful=True)
    stream.sink(ClickHouseSink(task))
    application.run()


def main() -> None:
    """Start one member per partition."""
    task = Task.from_environment()
    members = [multiprocessing.Process(target=run, args=(task, number)) for number in range(task.partitions)]
    for member in members:
        member.start()
    for member in members:
        member.join()


if __name__ == "__main__":
    main()
