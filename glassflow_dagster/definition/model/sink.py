"""The sink: the ClickHouse table, the mapping to its columns, and the size of insert blocks.

This project's extensions: Kafka's own columns in `mapping` (`_topic`, `_partition`, `_offset`, `_timestamp`, `_key`,
and `_batch_time`), `create_table`, `delivery`, `deduplication_window`, `bookkeeping_engine` and `cluster`; `routes` to
further tables, with `match`, `filter` and `unrouted`; `shared_table`.
"""

from typing import Annotated, Literal, NamedTuple

from pydantic import Field, PrivateAttr

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.definition.model.fields import DELAY, ColumnTypeText, Delay, Part, Text
from glassflow_dagster.definition.model.table_names import split_table_name
from glassflow_dagster.definition.model.types import ColumnType, parse_written_type

# Delivery of a repeated batch: without, or possibly with duplicate rows.
Delivery = Literal["exactly_once", "at_least_once"]
# How to treat a table that does not remember insert tokens: set its deduplication window, or refuse to start.
DeduplicationWindow = Literal["set", "require"]
# Whether an event goes to the first table that takes it, or to each one.
Match = Literal["first", "all"]
# What becomes of an event that no table takes.
Unrouted = Literal["drop", "dead_letter"]
# Engines for bookkeeping tables: none that replaces, sums or collapses rows.
BookkeepingEngine = Annotated[str, Field(pattern=r"^(Replicated|Shared)?MergeTree(\([^;]*\))?$")]


class Mapping(Part):
    """A field of the event and the column that it fills."""

    name: Text
    column_name: Text
    column_type: ColumnTypeText

    @property
    def parsed_type(self) -> ColumnType:
        """The type as which the field's values are written, as a tree."""
        return parse_written_type(self.column_type)


class ExtraColumn(Part):
    """A column of a created table that no field fills."""

    name: Text
    type: Text
    default: Text | None = Field(default=None, description="an SQL expression, such as now()")


class CreateTable(Part):
    """The target table to create when it is missing; its mapped columns come from the mapping."""

    engine: Text = "MergeTree"
    order_by: Text = "tuple()"
    partition_by: Text | None = None
    ttl: Text | None = None
    columns: tuple[ExtraColumn, ...] = ()


class Route(Part):
    """A further table, for the events for which a condition is true.

    Each event goes to the table of the first route that takes it, with `match: all` to that of each, and to the sink's
    own table if none does.
    """

    table: Text
    filter: Text = Field(description="the condition, in the language of filters; it reads what a last filter would")
    mapping: Annotated[tuple[Mapping, ...], Field(min_length=1)] | None = Field(
        default=None, description="that of the sink, if omitted"
    )
    create_table: CreateTable | None = Field(default=None, description="that of the sink, if omitted")


class SinkPaths(NamedTuple):
    """The paths in a definition of a table, its filter, its mapping and its `create_table`, for error messages."""

    table: str = "sink.table"
    filter: str = "sink.filter"
    mapping: str = "sink.mapping"
    create_table: str = "sink.create_table"


class Sink(Part):
    """The ClickHouse table, and the size of insert blocks."""

    type: Literal["clickhouse"]
    connection_params: ClickHouseConnection
    table: Text
    # GlassFlow's documented default.
    max_batch_size: Annotated[int, Field(gt=0)] = 1000
    max_delay_time: Delay = DELAY
    mapping: Annotated[tuple[Mapping, ...], Field(min_length=1)]
    source_id: str | None = None
    delivery: Delivery = Field(
        default="exactly_once",
        description="at_least_once: also write to a table that cannot recognise a repeated insert; a batch that is "
        "repeated after a failure may duplicate rows there",
    )
    deduplication_window: DeduplicationWindow | None = Field(
        default=None,
        description="for a table without a deduplication window for insert tokens: set enables it, require refuses "
        "to start; if omitted: enabled unless others are known to write to the table",
    )
    create_table: CreateTable | None = None
    bookkeeping_engine: BookkeepingEngine = Field(
        default="MergeTree",
        description="engine with which the bookkeeping tables (glassflow_*) are created; a Replicated one if the "
        "connection leads to several servers",
    )
    cluster: Text | None = Field(
        default=None,
        description="cluster on which tables are created and altered; needed where a database is not Replicated",
    )

    # The keys from here on are excluded from dumps and digests where they are not set.
    filter: Text | None = Field(
        default=None, exclude_if=lambda condition: condition is None,
        description="the condition of the events that the own table takes; with `match: first` of those that no route "
        "takes; if omitted: all that no route takes",
    )  # fmt: skip
    routes: tuple[Route, ...] = Field(default=(), exclude_if=lambda routes: not routes)
    match: Match = Field(
        default="first", exclude_if=lambda match: match == "first",
        description="all: an event goes to each table that takes it, not only to the first",
    )  # fmt: skip
    unrouted: Unrouted | None = Field(
        default=None, exclude_if=lambda unrouted: unrouted is None,
        description="what becomes of an event that neither a route nor `filter` takes",
    )  # fmt: skip
    shared_table: bool = Field(
        default=False, exclude_if=lambda shared: not shared,
        description="true: other pipelines write to the tables too, and say so; the checks then cannot compare the "
        "number of rows",
    )  # fmt: skip
    _paths: SinkPaths = PrivateAttr(default=SinkPaths())
    # Of a sink in `by_table`: the full names of all of them.
    _all_tables: tuple[tuple[str, str], ...] = PrivateAttr(default=())

    @property
    def full_table(self) -> tuple[str, str]:
        """Database and table; the definition may write the table as `database.table`, and each in backquotes."""
        return split_table_name(self.table, self.connection_params.database)

    @property
    def table_name(self) -> str:
        """The table as `database.table`."""
        return ".".join(self.full_table)

    @property
    def paths(self) -> SinkPaths:
        """Where the sink's parts are in the definition."""
        return self._paths

    @property
    def all_tables(self) -> tuple[tuple[str, str], ...]:
        """Database and table of the own table and of each route's, also for a sink in `by_table`."""
        return self._all_tables or tuple(sink.full_table for sink in self.by_table)

    @property
    def is_own(self) -> bool:
        """Whether this is, in `by_table`, the sink of the own table, and not that of a route's."""
        return self.full_table == self.all_tables[0]

    @property
    def by_table(self) -> tuple["Sink", ...]:
        """The sink of each table, as if it were the only one: first that of the own table, then those of the routes."""
        if not self.routes:
            return (self,)
        without = self.model_copy(update={"routes": ()})
        sinks = (without, *(without._of_route(index, route) for index, route in enumerate(self.routes)))  # noqa: SLF001
        for sink in sinks:
            sink._all_tables = tuple(each.full_table for each in sinks)  # noqa: SLF001 - of this class
        return sinks

    def _of_route(self, index: int, route: Route) -> "Sink":
        """Return the sink of a route's table."""
        path, own = f"sink.routes[{index}]", self.paths
        copy = self.model_copy(
            update={
                "table": route.table,
                "filter": route.filter,
                "mapping": route.mapping or self.mapping,
                "create_table": route.create_table or self.create_table,
            }
        )
        copy._paths = SinkPaths(  # noqa: SLF001 - of this class
            table=f"{path}.table",
            filter=f"{path}.filter",
            mapping=f"{path}.mapping" if route.mapping else own.mapping,
            create_table=f"{path}.create_table" if route.create_table else own.create_table,
        )
        return copy
