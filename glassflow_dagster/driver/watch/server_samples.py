"""Asks the servers now and then what only they know: the topics' end offsets, and the dead letters that wait.

A thread for each server, so that one that does not answer delays neither the query, the heartbeat nor the figures of
the other one. While one does not answer, its figures are left out: no figure is better than an old one.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.driver.watch.lag_history import LagHistory
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.dead_letters.store import DeadLetterStore
from glassflow_dagster.stores.kafka.end_offsets import EndOffsets
from glassflow_dagster.stores.kafka.topics import offsets_if_there

# Prometheus asks every 15 to 60 s. Two requests to a broker every five seconds are no load.
LAG_INTERVAL = 5.0  # seconds
# The dead letters are counted by a query; people act on them within minutes.
_DEAD_LETTER_INTERVAL = 30.0  # seconds

# The next offsets to read, by topic and partition.
Reached = Callable[[], Mapping[str, Mapping[int, int]]]


@contextmanager
def sampled_servers(run: RunContext, reached: Reached) -> Iterator[None]:
    """Write lag and waiting dead letters into the heartbeat while the block runs."""
    stopped = threading.Event()
    samples = ServerSamples(run.config, reached)

    def repeat(sample: Callable[[], dict[str, Any]], interval: float) -> None:
        while True:
            run.heartbeat.update(sample())
            if stopped.wait(interval):
                return

    for server, sample, interval in (
        ("kafka", samples.lags, LAG_INTERVAL),
        # ClickHouse may take two minutes not to answer.
        ("clickhouse", samples.dead_letters, _DEAD_LETTER_INTERVAL),
    ):
        threading.Thread(target=repeat, args=(sample, interval), name=f"samples of {server}", daemon=True).start()
    try:
        yield
    finally:
        # Not joined: daemon threads that wait for a server must not delay the driver's end.
        stopped.set()


def report_behind_transactions(run: RunContext) -> None:
    """Warn of records that a run until caught up has not read, as a transaction before them is still open."""
    config = run.config
    try:
        partitions = [
            (topic, partition) for topic in config.topics for partition in offsets_if_there(config.connection, topic)
        ]
        _, behind = EndOffsets.open(config.connection, config.source.isolation).read_with_behind(partitions)
    except GlassflowError as error:
        # All that could be read is written.
        run.warn(f"whether records wait behind open transactions is not known: {error}")
        return
    for (topic, partition), records in behind.items():
        run.warn(
            f"topic {topic!r}, partition {partition}: up to {records:,} records wait behind an open transaction; run "
            "again when its producer has ended it, or Kafka has after the producer's transaction.timeout.ms "
            "(kafka-transactions.sh find-hanging and abort, for one that does not end)"
        )


def _by_topic(behind: Mapping[tuple[str, int], int]) -> dict[str, int]:
    """Return the sums of partitions' numbers by topic."""
    sums: dict[str, int] = {}
    for (topic, _), number in behind.items():
        sums[topic] = sums.get(topic, 0) + number
    return sums


@dataclass
class ServerSamples:
    """The samples of one pipeline as fields of a heartbeat."""

    config: PipelineConfig
    reached: Reached
    _history: LagHistory = field(default_factory=LagHistory)
    _ends: EndOffsets | None = None
    _store: DeadLetterStore | None = None

    def lags(self) -> dict[str, Any]:
        """Return the lag of each partition that was read from, and what is behind open transactions.

        Empty while the brokers do not answer.
        """
        # Before the brokers are asked: a batch in between would read more than they said there is.
        reached = self.reached()
        try:
            self._ends = self._ends or EndOffsets.open(self.config.connection, self.config.source.isolation)
            partitions = [(topic, partition) for topic, offsets in reached.items() for partition in offsets]
            ends, behind = self._ends.read_with_behind(partitions)
        except GlassflowError:
            return {"partition_lags": {}, "behind_transactions": {}}
        return {
            "partition_lags": self._history.lags(time.monotonic(), ends, reached),
            "behind_transactions": _by_topic(behind),
        }

    def dead_letters(self) -> dict[str, Any]:
        """Return the number of dead letters that wait; None while ClickHouse does not answer."""
        try:
            self._store = self._store or DeadLetterStore.open(self.config)
            return {"dead_letters_waiting": self._store.count(self._store.waiting())}
        except GlassflowError:
            return {"dead_letters_waiting": None}
