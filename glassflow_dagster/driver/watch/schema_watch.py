"""Watches a topic for fields that the definition does not declare, while its pipeline runs (`schema_evolution`)."""

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.events import Events
from glassflow_dagster.inference.fields import Field
from glassflow_dagster.inference.new_fields import STEADY_EVENTS, FieldConflict, conflicts, undeclared_fields
from glassflow_dagster.stores.kafka.protobuf_values import Ask
from glassflow_dagster.stores.kafka.samples import sample_newest
from glassflow_dagster.stores.kafka.topics import offsets_if_there

# Seconds between two looks. One takes some 0.2 s of one core; none is taken while no record comes.
_INTERVAL = 15.0
# The newest records that a look reads, of all topics together, and for how many seconds at most.
NEWEST_RECORDS = 2_000
_READ_SECONDS = 10.0


@dataclass(frozen=True)
class Found:
    """What a look has found: fields that the definition does not declare, and declared ones that do not fit.

    is_first: no look has seen an event before; then the fields are those that the definition leaves out on purpose.
    """

    fields: tuple[Field, ...] = ()
    conflicts: tuple[FieldConflict, ...] = ()
    is_first: bool = False

    @property
    def is_new(self) -> bool:
        """Whether there is something to decide."""
        return bool(self.fields or self.conflicts or self.is_first)


def look(config: PipelineConfig, known: frozenset[str] | None, ask: Ask) -> Found:
    """Compare the newest records with the definition; return what is not known yet. Raises `GlassflowError`.

    known: the fields on which nothing is left to decide; None before the first look that sees an event.
    ask: the JVM, which reads Protobuf.
    """
    events = _newest_events(config, ask)
    if not events.objects:
        return Found()
    if known is None:
        return Found(tuple(undeclared_fields(config, events, steady=1)), is_first=True)
    return Found(
        tuple(field for field in undeclared_fields(config, events, steady=STEADY_EVENTS) if field.name not in known),
        tuple(conflict for conflict in conflicts(config, events) if conflict.field not in known),
    )


def _newest_events(config: PipelineConfig, ask: Ask) -> Events:
    # It loads a library for Avro, which most drivers do not need.
    from glassflow_dagster.inference.formats import read_with_schema
    from glassflow_dagster.inference.json_events import read_json_events

    topics = config.source_topics
    records = [
        record
        for topic in topics
        for record in sample_newest(config.connection, topic, -(-NEWEST_RECORDS // len(topics)), _READ_SECONDS)
    ]
    if config.source.encoding.has_schema:
        return read_with_schema(records, config.source, ask)
    # JSON with a schema id needs no registry.
    return read_json_events(records)


@dataclass
class SchemaWatch:
    """Looks on a thread, so that the driver never waits for a broker.

    known, ask: see `look`.
    """

    run: RunContext
    known: frozenset[str] | None
    ask: Ask
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
            return answer.result()
        except GlassflowError:
            # The query meets the same error, if it lasts, and reports it.
            return Found()

    def _look_if_moved(self) -> Found:
        """Look, unless no record has come since the last time."""
        config = self.run.config
        ends = {topic: offsets_if_there(config.connection, topic) for topic in config.source_topics}
        if ends == self._ends:
            return Found()
        found = look(config, self.known, self.ask)
        self._ends = ends
        return found


@contextmanager
def watched_schema(run: RunContext, known: frozenset[str] | None, ask: Ask) -> Iterator[SchemaWatch]:
    """Watch the topics of a run for the block. known, ask: see `look`."""
    thread = ThreadPoolExecutor(1, "schema")
    try:
        yield SchemaWatch(run, known, ask, thread)
    finally:
        # A look ends by itself, and nobody waits for what it finds.
        thread.shutdown(wait=False, cancel_futures=True)
