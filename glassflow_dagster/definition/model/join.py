"""The join of two sources: GlassFlow's `join` and this project's extensions.

Extensions are optional: `id`, `type: inner | left`, `match`, `clock` with its settings, and `keys`. Rules that need
more than one field are in `rules/join.py`.
"""

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from glassflow_dagster.definition.model.fields import Duration, Part, PositiveDuration, Text, TimeUnit, empty_means

# GlassFlow's limit of a window; the state store holds the events of the whole window.
MAX_JOIN_WINDOW = timedelta(days=7)

_BOOL = TypeAdapter(bool)


class JoinSide(Part):
    """One side of the join: its source, the key that events are matched by, and how long they wait for a match."""

    source_id: Text
    key: Annotated[Text | None, empty_means(None)] = None
    keys: tuple[Text, ...] = ()
    time_window: PositiveDuration
    event_time: Text | None = Field(default=None, description="the field with the time of the event")
    event_time_unit: TimeUnit | None = Field(default=None, description="of a number in event_time; s by default")

    @property
    def key_fields(self) -> tuple[str, ...]:
        """The fields that make up the key, in order."""
        return self.keys or ((self.key,) if self.key else ())

    @property
    def time_unit(self) -> TimeUnit:
        """The unit of a number in the event time field."""
        return self.event_time_unit or "s"


class OutputField(Part):
    """A field of one side that becomes a field of the joined event."""

    source_id: Text
    name: Text
    output_name: Annotated[Text | None, empty_means(None)] = Field(default=None, description="name by default")

    @property
    def joined_name(self) -> str:
        """The field's name in the joined event."""
        return self.output_name or self.name


class JoinConfig(Part):
    """Which events of two sources match, and the fields of the joined event."""

    enabled: bool
    id: Text = Field(default="join", description="the source_id of transforms after the join")
    type: Annotated[Literal["temporal", "inner", "left"], empty_means("temporal")] = Field(
        default="temporal",
        description="temporal and inner: a left event without a match produces no row; left: it adds one with NULLs",
    )
    match: Literal["latest", "all"] = Field(
        default="latest", description="latest: at most one row for a left event; all: a row for every pair"
    )
    clock: Literal["processing", "event"] = Field(
        default="processing", description="processing: the time of the batch; event: the time in event_time"
    )
    allowed_lateness: Duration | None = Field(
        default=None,
        description="how far behind the newest event of its source an event may be; the longer window by default",
    )
    idle_timeout: PositiveDuration = Field(
        default=timedelta(minutes=5),
        description="a source without events for this long does not hold back the event clock",
    )
    left_source: JoinSide
    right_source: JoinSide
    output_fields: Annotated[tuple[OutputField, ...], Field(min_length=1)]

    @property
    def sides(self) -> tuple[JoinSide, JoinSide]:
        """Left and right."""
        return (self.left_source, self.right_source)

    def outputs_of(self, side: int) -> tuple[OutputField, ...]:
        """Return the output fields that come from a side, 0 for left and 1 for right."""
        return tuple(field for field in self.output_fields if field.source_id == self.sides[side].source_id)

    @property
    def keeps_unmatched(self) -> bool:
        """True when a left event without a match becomes a row."""
        return self.type == "left"

    @property
    def lateness(self) -> timedelta:
        """The distance of the watermark from the newest event of its source; by default the longer window."""
        longer = max(side.time_window for side in self.sides)
        return longer if self.allowed_lateness is None else self.allowed_lateness


class NoJoin(Part):
    """A disabled join; its other keys are ignored."""

    model_config = ConfigDict(extra="allow")

    enabled: Literal[False]


def _disabled_is_none(raw: Any) -> Any:
    """Return None for a join that is disabled or empty; anything else, also what is invalid, unchanged."""
    if not isinstance(raw, dict):
        return raw
    try:
        disabled = not raw or not _BOOL.validate_python(raw.get("enabled"))
    except ValidationError:
        return raw
    return None if disabled else raw


OptionalJoin = Annotated[
    JoinConfig | None, BeforeValidator(_disabled_is_none, json_schema_input_type=JoinConfig | NoJoin | None)
]
