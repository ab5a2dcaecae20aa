"""Watches for topics that begin to match a pattern while its pipeline runs."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.kafka.topic_pattern import matching_topics

# Seconds between two looks. Each asks a broker for the names of all topics.
_INTERVAL = 15.0


@dataclass
class TopicWatch:
    """Looks up the matching topics on a thread, so that the driver never waits for a broker."""

    run: RunContext
    _thread: ThreadPoolExecutor
    _answer: Future[tuple[str, ...]] | None = None
    _next_look: float = field(default_factory=lambda: time.monotonic() + _INTERVAL)

    def appeared(self) -> tuple[str, ...]:
        """Return the topics that match and are not read yet; empty while it looks, or where no broker answers."""
        if self._answer is None:
            if self.run.config.source.topic_pattern and time.monotonic() >= self._next_look:
                self._answer = self._thread.submit(matching_topics, self.run.config)
            return ()
        if not self._answer.done():
            return ()
        answer, self._answer = self._answer, None
        self._next_look = time.monotonic() + _INTERVAL
        try:
            return tuple(topic for topic in answer.result() if topic not in self.run.config.source_topics)
        except GlassflowError:
            # The query meets the same error, if it lasts, and reports it.
            return ()


@contextmanager
def watched_topics(run: RunContext) -> Iterator[TopicWatch]:
    """Watch the topics of a run for the block."""
    with ThreadPoolExecutor(1, "topics") as thread:
        yield TopicWatch(run, thread)
