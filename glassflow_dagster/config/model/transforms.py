"""What is done to events between source and sink: deduplication, filters and stateless transforms.

This project's extensions: `dedup.config.keys` and `.clock` with what belongs to it, several filters and stateless
transforms.
"""

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from glassflow_dagster.config.model.fields import Duration, Part, PositiveDuration, Text, TimeUnit

MAX_DEDUP_WINDOW = timedelta(days=7)
# Spark tells a batch's time in milliseconds: a shorter window would be none.
MIN_PROCESSING_WINDOW = timedelta(milliseconds=1)
# So many events of one key, a window apart, are within reach of the watermark at most: the state keeps their times in
# one piece, which is read for each batch that has the key.
MAX_WINDOWS_LATE = 1000


class DedupConfig(Part):
    """The key of an event, how long it is remembered after its first appearance, and by which clock."""

    key: Text | None = None
    keys: tuple[Text, ...] = ()
    time_window: PositiveDuration
    clock: Literal["processing", "event"] = Field(
        default="processing", description="processing: the time of the batch; event: the time that the event names"
    )
    event_time: Text | None = Field(default=None, description="the field that says when an event happened")
    event_time_unit: TimeUnit | None = Field(default=None, description="of a number in event_time; s by default")
    late: Literal["drop", "keep", "dead_letter"] | None = Field(
        default=None, description="what becomes of an event behind the watermark; drop by default"
    )
    allowed_lateness: Duration | None = Field(
        default=None, description="how far behind the newest event an event may come; time_window by default"
    )

    @property
    def key_fields(self) -> tuple[str, ...]:
        """The fields that make up the key, in order."""
        return self.keys or ((self.key,) if self.key else ())

    @property
    def time_unit(self) -> TimeUnit:
        """What a number in the event time counts."""
        return self.event_time_unit or "s"

    @property
    def when_late(self) -> Literal["drop", "keep", "dead_letter"]:
        """What becomes of an event behind the watermark."""
        return self.late or "drop"

    @property
    def lateness(self) -> timedelta:
        """How far behind the newest event the watermark is."""
        return self.time_window if self.allowed_lateness is None else self.allowed_lateness


class Dedup(Part):
    """Lets the first event of a key pass, and counts those that follow within the window."""

    type: Literal["dedup"]
    source_id: Text
    config: DedupConfig


class FilterConfig(Part):
    """What an event must be like to go on."""

    expression: Text = Field(description="true keeps the event, false drops it")


class Filter(Part):
    """Lets events pass for which an expression is true, and counts the others."""

    type: Literal["filter"]
    source_id: Text
    config: FilterConfig


class Output(Part):
    """A field that an expression makes."""

    expression: Text
    output_name: Text
    output_type: str = Field(default="", description="string, int, float64, bool, []string ...; empty: as it comes")


class StatelessConfig(Part):
    """The fields of the event from here on; what is not listed is left out."""

    transforms: tuple[Output, ...]


class Stateless(Part):
    """Makes the fields of an event anew."""

    type: Literal["stateless"]
    source_id: Text
    config: StatelessConfig


Transform = Annotated[Dedup | Filter | Stateless, Field(discriminator="type")]
