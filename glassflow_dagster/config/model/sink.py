"""The ClickHouse table, the columns that are filled, and how rows are gathered into blocks.

This project's extensions: Kafka's own columns in `mapping` (`_topic`, `_partition`, `_offset`, `_timestamp`, `_key`,
and `_batch_time`), `create_table`, `delivery`, `deduplication_window`, `bookkeeping_engine` and `cluster`.
"""

from typing import Annotated, Literal

from pydantic import Field

from glassflow_dagster.config.model.connections import ClickHouseConnection
from glassflow_dagster.config.model.fields import DELAY, ColumnTypeText, Delay, Part, Text
from glassflow_dagster.config.model.types import ColumnType, parse_column_type

# What a repeated batch may do to the table: nothing, or double rows.
Delivery = Literal["exactly_once", "at_least_once"]
# Whether the pipeline may switch on a table's memory of insert tokens: always, or never.
DeduplicationWindow = Literal["set", "require"]
# A bookkeeping table is read as it was written: no engine that replaces, sums or collapses rows.
BookEngine = Annotated[str, Field(pattern=r"^(Replicated|Shared)?MergeTree(\([^;]*\))?$")]


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
    """A column of a created table that no event fills."""

    name: Text
    type: Text
    default: Text | None = Field(default=None, description="an SQL expression, such as now()")


class CreateTable(Part):
    """How to create the target table when it is missing; its mapped columns come from the mapping."""

    engine: Text = "MergeTree"
    order_by: Text = "tuple()"
    partition_by: Text | None = None
    ttl: Text | None = None
    columns: tuple[ExtraColumn, ...] = ()


class Sink(Part):
    """The ClickHouse table, and how rows are gathered into blocks."""

    type: Literal["clickhouse"]
    connection_params: ClickHouseConnection
    table: Text
    # 1,000 rows are what GlassFlow documents as its default.
    max_batch_size: Annotated[int, Field(gt=0)] = 1000
    max_delay_time: Delay = DELAY
    mapping: Annotated[tuple[Mapping, ...], Field(min_length=1)]
    source_id: str | None = None
    delivery: Delivery = Field(
        default="exactly_once",
        description="at_least_once: write to a table that cannot recognise a repeated insert, too; a batch that is "
        "repeated after a failure may double rows there",
    )
    deduplication_window: DeduplicationWindow | None = Field(
        default=None,
        description="a table's memory of insert tokens, where it is off: set switches it on, require refuses to start; "
        "left out: it is switched on unless others are known to write to the table",
    )
    create_table: CreateTable | None = None
    bookkeeping_engine: BookEngine = Field(
        default="MergeTree",
        description="engine of the project's own tables (glassflow_*) where they are made; a Replicated one where the "
        "connection leads to several servers",
    )
    cluster: Text | None = Field(
        default=None, description="makes and alters tables ON CLUSTER this; needed where a database is not Replicated"
    )

    @property
    def full_table(self) -> tuple[str, str]:
        """Database and table; a table may be written with its database."""
        database, dot, table = self.table.partition(".")
        return (database, table) if dot else (self.connection_params.database, self.table)
