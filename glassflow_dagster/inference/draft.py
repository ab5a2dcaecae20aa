"""The parts of a definition, as a sample or a person's answers give them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.definition.shared_tables import Writer
from glassflow_dagster.inference.topic_sample import TopicSample

WINDOW = "1h"


@dataclass(frozen=True)
class EventClock:
    """The clock of deduplication that is a field of the event. Empty texts: the definition's defaults."""

    field: str
    unit: str = ""
    late: str = ""
    lateness: str = ""


@dataclass
class Side:
    """A topic that the pipeline reads, and what is done with its events before a join.

    registry, schema: `schema_registry` and `schema` as in a definition.
    key: the fields of the key, empty for no deduplication.
    clock: None for the time of arrival.
    key_encoding: `key_format` and `key_schema`, of Kafka's keys.
    """

    sample: TopicSample
    registry: dict[str, Any] | None = None
    key: tuple[str, ...] = ()
    window: str = WINDOW
    start: str = "earliest"
    filter: str = ""
    clock: EventClock | None = None
    schema: dict[str, str] | None = None
    key_encoding: Mapping[str, Any] = field(default_factory=dict)

    @property
    def topic(self) -> str:
        """The topic, whose name is the `source_id`, too."""
        return self.sample.topic


@dataclass(frozen=True)
class Computed:
    """A field that is the result of an expression, and the kind of field that it is."""

    name: str
    expression: str
    kind: FieldKind = "string"


@dataclass(frozen=True)
class JoinChoice:
    """How left events find their right event.

    type: left or inner.
    match: latest or all.
    left_clock, right_clock: the fields with the events' times; None for the time of arrival.
    """

    left_key: str
    right_key: str
    window: str = WINDOW
    type: str = "left"
    match: str = "latest"
    left_clock: EventClock | None = None
    right_clock: EventClock | None = None


@dataclass(frozen=True)
class ServerColumn:
    """A column of an existing table. has_default: whether a row may leave it out."""

    name: str
    type: str
    has_default: bool


@dataclass(frozen=True)
class Target:
    """The table.

    columns: of an existing one; None for a new one.
    shared: other pipelines write to it, and say so.
    """

    database: str
    table: str
    columns: tuple[ServerColumn, ...] | None = None
    shared: bool = False


@dataclass(frozen=True)
class MappedColumn:
    """A field and the column that it fills; `used` is False for a field that is left out."""

    field: str
    column: str
    type: str
    used: bool = True


@dataclass(frozen=True)
class Available:
    """A field that the mapping can use. may_be_null: why, empty where it cannot."""

    name: str
    kind: FieldKind
    column_type: str
    remark: str = ""
    examples: tuple[str, ...] = ()


@dataclass
class PipelineDraft:
    """What is known of a pipeline; a whole definition follows from it at any time (`definition_of`).

    left: the first topic.
    right: that of a join.
    target: None for a new table.
    writers: the definitions that are there.
    """

    kafka: dict[str, Any] | None = None
    left: Side | None = None
    computed: tuple[Computed, ...] = ()
    right: Side | None = None
    join: JoinChoice | None = None
    clickhouse: dict[str, Any] | None = None
    target: Target | None = None
    mapping: tuple[MappedColumn, ...] = ()
    order_by: str = ""
    rows: int = 10_000
    delay: str = "1s"
    pipeline_id: str = ""
    name: str = ""
    writers: Sequence[Writer] = ()

    @property
    def source(self) -> Side:
        """The first topic."""
        assert self.left is not None
        return self.left
