"""What a table of the product's own is: a list of columns, from which its DDL and the schema of its blocks come.

This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.identifiers import full_name, quote_name
from glassflow_dagster.clickhouse.inserts.insert import Inserter
from glassflow_dagster.clickhouse.inserts.tokens import Token
from glassflow_dagster.clickhouse.queries import execute
from glassflow_dagster.config.model.types import ColumnType, parse_column_type

# How rows get into the tables that decide what a driver does next: what one replica has confirmed, each must know when
# it is asked. Without replicas the quorum means nothing; with them `connect` reads accordingly.
WRITE_EVERYWHERE: Mapping[str, Any] = {"async_insert": 0, "insert_quorum": "auto", "insert_quorum_parallel": 0}

# The last second that a DateTime holds, for what is kept for ever.
NEVER = 2**32 - 1  # seconds since 1970

# A DateTime is sent as seconds since 1970.
_ARROW_TYPES = {
    "String": pa.string(),
    "UUID": pa.string(),
    "Bool": pa.bool_(),
    "UInt16": pa.uint16(),
    "UInt32": pa.uint32(),
    "UInt64": pa.uint64(),
    "DateTime": pa.uint32(),
    "DateTime64": pa.timestamp("ms", "UTC"),
}


@dataclass(frozen=True)
class Column:
    """A column: its ClickHouse type, and what rows have in it that are older than the column ('': the type's default).

    arrow: the type in which a block has it, where that does not follow from the ClickHouse type: text that is bytes.
    """

    name: str
    type: str
    default: str = ""
    arrow: pa.DataType | None = None

    @property
    def sql(self) -> str:
        """The column's part of a statement."""
        default = f" DEFAULT {self.default}" if self.default else ""
        return f"{quote_name(self.name)} {self.type}{default}"

    @property
    def parameter(self) -> str:
        """The place of a value in a statement with parameters; the parameter has the column's name."""
        return f"{{{self.name}:{parse_column_type(self.type).base}}}"

    @property
    def field(self) -> pa.Field:
        """The column of a block."""
        return pa.field(self.name, self.arrow or _arrow_type(parse_column_type(self.type)))


def _arrow_type(column: ColumnType) -> pa.DataType:
    base = column.base
    if base.name == "Array":
        return pa.list_(_arrow_type(base.inner[0]))
    if base.name == "Tuple":
        elements = zip(base.element_names, base.inner, strict=True)
        return pa.struct([(name, _arrow_type(element)) for name, element in elements])
    if base.name == "Map":
        key, item = base.inner
        return pa.map_(_arrow_type(key), _arrow_type(item))
    return _ARROW_TYPES[base.name]


@dataclass(frozen=True)
class BookkeepingTable:
    """A table of the product's own: its columns, its sorting key, and the column by which rows expire.

    settings: those that every insert into it has beside the usual ones.
    """

    name: str
    columns: tuple[Column, ...]
    order_by: str
    ttl: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns that a writer fills, in their order."""
        return tuple(column.name for column in self.columns)

    @property
    def schema(self) -> pa.Schema:
        """The schema of a block."""
        return pa.schema([column.field for column in self.columns])

    def full_name(self, database: str) -> str:
        """Write the table's name for a statement."""
        return full_name(database, self.name)

    def insert(self, inserter: Inserter, database: str, block: pa.Table, token: Token) -> None:
        """Insert a block of the table's schema under its token; raises what `Inserter.insert` raises."""
        inserter.insert(database, self.name, block, token, self.settings)

    def insert_row(self, client: Client, database: str, values: Mapping[str, Any]) -> None:
        """Insert a row without a token: whoever repeats it has it twice. Raises what `execute` raises.

        values: by column; the others get their defaults.
        """
        columns = [column for column in self.columns if column.name in values]
        names = ", ".join(quote_name(column.name) for column in columns)
        execute(
            client,
            f"INSERT INTO {self.full_name(database)} ({names}) {self.settings_clause} "
            f"SELECT {', '.join(column.parameter for column in columns)}",
            dict(values),
        )

    @property
    def settings_clause(self) -> str:
        """The settings as a clause of a statement; '' where there are none."""
        settings = ", ".join(f"{name} = {value!r}" for name, value in self.settings.items())
        return f"SETTINGS {settings}" if settings else ""

    def delete_later_batches(
        self, client: Client, database: str, pipeline_id: str, checkpoint_id: str, last_batch: int
    ) -> None:
        """Delete a checkpoint's rows of the batches after `last_batch`; raises what `execute` raises."""
        execute(
            client,
            f"ALTER TABLE {self.full_name(database)} DELETE WHERE pipeline_id = {{pipeline:String}} "
            "AND checkpoint_id = {checkpoint_id:UUID} AND batch_id > {last:UInt64} SETTINGS mutations_sync = 1",
            {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id, "last": last_batch},
        )


# Columns that several tables have.
PIPELINE_ID = Column("pipeline_id", "String")
CHECKPOINT_ID = Column("checkpoint_id", "UUID")
# Which batch a row is of.
BATCH = (PIPELINE_ID, CHECKPOINT_ID, Column("batch_id", "UInt64"))
BATCH_TIME = Column("batch_time", "DateTime64(3, 'UTC')")
# Where a record is in Kafka.
POSITION = (
    Column("topic", "LowCardinality(String)"),
    Column("partition", "UInt32"),
    Column("offset", "UInt64"),
)
KEPT_FOR_EVER = f"toDateTime({NEVER}, 'UTC')"
EXPIRES_AT = Column("expires_at", "DateTime('UTC')", KEPT_FOR_EVER)
