"""The transforms between source and sink: deduplication, filters and stateless transforms.

This project's extensions: `dedup.config.keys`, `dedup.config.clock` with its settings, and more than one filter and
stateless transform.
"""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from glassflow_dagster.definition.model.fields import Duration, Part, PositiveDuration, Text, TimeUnit

MAX_DEDUP_WINDOW = timedelta(days=7)
# The resolution of Spark's batch time; a shorter window would have no effect.
MIN_PROCESSING_WINDOW = timedelta(milliseconds=1)
# Limit of allowed_lateness in windows. Per key, the state holds the times of the accepted events that the watermark has
# not passed, at most one per window, in one value, which is read in each batch with the key.
MAX_WINDOWS_LATE = 1000


class DedupConfig(Part):
    """The key of an event, how long it is remembered after its first appearance, and by which clock."""

    key: Text | None = None
    keys: tuple[Text, ...] = ()
    time_window: PositiveDuration
    clock: Literal["processing", "event"] = Field(
        default="processing", description="processing: the time of the batch; event: the time in event_time"
    )
    event_time: Text | None = Field(default=None, description="the field with the time of the event")
    event_time_unit: TimeUnit | None = Field(default=None, description="of a number in event_time; s by default")
    late: Literal["drop", "keep", "dead_letter"] | None = Field(
        default=None, description="what happens to an event behind the watermark; drop by default"
    )
    allowed_lateness: Duration | None = Field(
        default=None, description="how far behind the newest event an event may be; time_window by default"
    )

    @property
    def key_fields(self) -> tuple[str, ...]:
        """The fields that make up the key, in order."""
        return self.keys or ((self.key,) if self.key else ())

    @property
    def time_unit(self) -> TimeUnit:
        """The unit of a number in the event time field."""
        return self.event_time_unit or "s"

    @property
    def when_late(self) -> Literal["drop", "keep", "dead_letter"]:
        """The treatment of an event behind the watermark; by default it is dropped."""
        return self.late or "drop"

    @property
    def lateness(self) -> timedelta:
        """The distance of the watermark from the newest event; by default the window."""
        return self.time_window if self.allowed_lateness is None else self.allowed_lateness


class Dedup(Part):
    """Keeps the first event of a key, and drops and counts its repetitions within the window."""

    type: Literal["dedup"]
    source_id: Text
    config: DedupConfig


class FilterConfig(Part):
    """The condition of a filter."""

    expression: Text = Field(description="true keeps the event, false drops it")


class Filter(Part):
    """Keeps the events for which an expression is true; drops and counts the rest."""

    type: Literal["filter"]
    source_id: Text
    config: FilterConfig


class Output(Part):
    """A field that is the result of an expression."""

    expression: Text
    output_name: Text
    output_type: str = Field(
        default="", description="string, int, float64, bool, []string ...; empty: the type of the expression's result"
    )


class StatelessConfig(Part):
    """The fields of the event behind this transform; other fields are dropped."""

    transforms: tuple[Output, ...]


class Stateless(Part):
    """Replaces the fields of an event by the results of expressions."""

    type: Literal["stateless"]
    source_id: Text
    config: StatelessConfig


Transform = Annotated[Dedup | Filter | Stateless, Field(discriminator="type")]
