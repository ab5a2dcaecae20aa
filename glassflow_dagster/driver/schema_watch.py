"""Watches a topic for fields that the definition does not declare, while its pipeline runs (`schema_evolution`)."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.events import Events
from glassflow_dagster.inference.fields import Field
from glassflow_dagster.inference.new_fields import STEADY_EVENTS, Misfit, misfits, undeclared_fields
from glassflow_dagster.kafka.samples import sample_newest
from glassflow_dagster.kafka.schema_registry import RegistryReader
from glassflow_dagster.kafka.topics import offsets_if_there

# Seconds between two looks. One takes some 0.2 s of one core; none is taken while no record comes.
_INTERVAL = 15.0
# The newest records that a look reads, of all topics together, and for how many seconds at most.
NEWEST_RECORDS = 2_000
_READ_SECONDS = 10.0


@dataclass(frozen=True)
class Found:
    """What a look has found: fields that the definition does not declare, and declared ones that do not fit."""

    fields: tuple[Field, ...] = ()
    misfits: tuple[Misfit, ...] = ()


def look(config: PipelineConfig, *, steady: int = STEADY_EVENTS) -> Found:
    """Compare the newest records with the definition. steady: see `undeclared_fields`; raises `GlassflowError`."""
    events = _newest_events(config)
    if not events.objects:
        return Found()
    return Found(tuple(undeclared_fields(config, events, steady=steady)), tuple(misfits(config, events)))


def _newest_events(config: PipelineConfig) -> Events:
    # It loads a library for Avro, which most drivers do not need.
    from glassflow_dagster.inference.formats import read_events

    topics, registry = config.source_topics, config.source.schema_registry
    records = [
        record
        for topic in topics
        for record in sample_newest(config.connection, topic, -(-NEWEST_RECORDS // len(topics)), _READ_SECONDS)
    ]
    # JSON with a schema id needs no registry.
    reader = RegistryReader(registry) if registry is not None and config.source.format == "avro" else None
    return read_events(records, reader)


@dataclass
class SchemaWatch:
    """Looks on a thread, so that the driver never waits for a broker.

    known: the fields on which nothing is left to decide.
    """

    run: RunContext
    known: frozenset[str]
    _thread: ThreadPoolExecutor
    _answer: Future[Found] | None = None
    _next_look: float = field(default_factory=lambda: time.monotonic() + _INTERVAL)
    _ends: object = None

    def found(self) -> Found:
        """Return what a finished look has found beside the known fields; empty while it looks."""
        if self._answer is None:
            if self.run.config.schema_evolution != "ignore" and time.monotonic() >= self._next_look:
                self._answer = self._thread.submit(self._look_if_moved)
            return Found()
        if not self._answer.done():
            return Found()
        answer, self._answer = self._answer, None
        self._next_look = time.monotonic() + _INTERVAL
        try:
            return without(answer.result(), self.known)
        except GlassflowError:
            # The query meets the same error, if it lasts, and reports it.
            return Found()

    def _look_if_moved(self) -> Found:
        """Look, unless no record has come since the last time."""
        config = self.run.config
        ends = {topic: offsets_if_there(config.connection, topic) for topic in config.source_topics}
        if ends == self._ends:
            return Found()
        self._ends = ends
        return look(config)


def without(found: Found, known: frozenset[str]) -> Found:
    """Return what was found, without known fields."""
    return Found(
        tuple(field for field in found.fields if field.name not in known),
        tuple(misfit for misfit in found.misfits if misfit.field not in known),
    )


@contextmanager
def watched_schema(run: RunContext, known: frozenset[str]) -> Iterator[SchemaWatch]:
    """Watch the topics of a run for the block."""
    with ThreadPoolExecutor(1, "schema") as thread:
        yield SchemaWatch(run, known, thread)
