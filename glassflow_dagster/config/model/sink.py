"""The sink: the ClickHouse table, the mapping to its columns, and the size of insert blocks.

This project's extensions: Kafka's own columns in `mapping` (`_topic`, `_partition`, `_offset`, `_timestamp`, `_key`,
and `_batch_time`), `create_table`, `delivery`, `deduplication_window`, `bookkeeping_engine` and `cluster`.
"""

from typing import Annotated, Literal

from pydantic import Field

from glassflow_dagster.config.model.connections import ClickHouseConnection
from glassflow_dagster.config.model.fields import DELAY, ColumnTypeText, Delay, Part, Text
from glassflow_dagster.config.model.types import ColumnType, parse_column_type

# Delivery of a repeated batch: without, or possibly with duplicate rows.
Delivery = Literal["exactly_once", "at_least_once"]
# How to treat a table that does not remember insert tokens: set its deduplication window, or refuse to start.
DeduplicationWindow = Literal["set", "require"]
# Engines for bookkeeping tables: none that replaces, sums or collapses rows.
BookkeepingEngine = Annotated[str, Field(pattern=r"^(Replicated|Shared)?MergeTree(\([^;]*\))?$")]


class Mapping(Part):
    """A field of the event and the column that it fills."""

    name: Text
    column_name: Text
    column_type: ColumnTypeText

    @property
    def parsed_type(self) -> ColumnType:
        """The column's type as a tree."""
        return parse_column_type(self.column_type)


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

    @property
    def full_table(self) -> tuple[str, str]:
        """Database and table; the definition may write the table as `database.table`."""
        database, dot, table = self.table.partition(".")
        return (database, table) if dot else (self.connection_params.database, self.table)
