"""How the events of two sources are brought together: GlassFlow's `join`, and this project's extensions to it.

Extensions are optional: `id`, `type: inner | left`, `match`, `clock` with what belongs to it, and `keys`. What needs
more than one field to judge is judged in `rules/join.py`.
"""

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError

from glassflow_dagster.config.model.fields import Duration, Part, PositiveDuration, Text, TimeUnit, empty_means

# As long as GlassFlow lets a window be; the state holds the events of so long a time.
MAX_JOIN_WINDOW = timedelta(days=7)

_BOOL = TypeAdapter(bool)


class JoinSide(Part):
    """One of the two sources, what its events are matched by, and how long they wait for the other's."""

    source_id: Text
    key: Annotated[Text | None, empty_means(None)] = None
    keys: tuple[Text, ...] = ()
    time_window: PositiveDuration
    event_time: Text | None = Field(default=None, description="the field that says when an event happened")
    event_time_unit: TimeUnit | None = Field(default=None, description="of a number in event_time; s by default")

    @property
    def key_fields(self) -> tuple[str, ...]:
        """The fields that make up the key, in order."""
        return self.keys or ((self.key,) if self.key else ())

    @property
    def time_unit(self) -> TimeUnit:
        """What a number in the event time counts."""
        return self.event_time_unit or "s"


class OutputField(Part):
    """A field of one side that the joined event has."""

    source_id: Text
    name: Text
    output_name: Annotated[Text | None, empty_means(None)] = Field(default=None, description="name by default")

    @property
    def made(self) -> str:
        """What the field is called in the joined event."""
        return self.output_name or self.name


class JoinConfig(Part):
    """Which events of two sources belong together, and what of them the joined event has."""

    enabled: bool
    id: Text = Field(default="join", description="the source_id of transforms behind the join")
    type: Annotated[Literal["temporal", "inner", "left"], empty_means("temporal")] = Field(
        default="temporal",
        description="temporal and inner: a left event without a match makes no row; left: it makes one with NULLs",
    )
    match: Literal["latest", "all"] = Field(
        default="latest", description="latest: at most one row for a left event; all: a row for every pair"
    )
    clock: Literal["processing", "event"] = Field(
        default="processing", description="processing: the time of the batch; event: the time that the event names"
    )
    allowed_lateness: Duration | None = Field(
        default=None,
        description="how far behind the newest event of its source an event may come; the longer window by default",
    )
    idle_timeout: PositiveDuration = Field(
        default=timedelta(minutes=5), description="a source silent for so long does not hold the event clock back"
    )
    left_source: JoinSide
    right_source: JoinSide
    output_fields: Annotated[tuple[OutputField, ...], Field(min_length=1)]

    @property
    def sides(self) -> tuple[JoinSide, JoinSide]:
        """Left and right."""
        return (self.left_source, self.right_source)

    def outputs_of(self, side: int) -> tuple[OutputField, ...]:
        """Give the fields that the joined event takes of a side, 0 for left and 1 for right."""
        return tuple(field for field in self.output_fields if field.source_id == self.sides[side].source_id)

    @property
    def keeps_unmatched(self) -> bool:
        """Whether a left event without a match makes a row."""
        return self.type == "left"

    @property
    def lateness(self) -> timedelta:
        """How far behind the newest event of its source the watermark is."""
        longer = max(side.time_window for side in self.sides)
        return longer if self.allowed_lateness is None else self.allowed_lateness


class NoJoin(Part):
    """A join that is switched off: what else it holds is not looked at."""

    model_config = ConfigDict(extra="allow")

    enabled: Literal[False]


def _off_is_none(given: Any) -> Any:
    """Take a join that is switched off, or says nothing at all, for none."""
    if not isinstance(given, dict):
        return given
    try:
        off = not given or not _BOOL.validate_python(given.get("enabled"))
    except ValidationError:
        return given
    return None if off else given


OptionalJoin = Annotated[
    JoinConfig | None, BeforeValidator(_off_is_none, json_schema_input_type=JoinConfig | NoJoin | None)
]
