"""The definition of a bookkeeping table: a list of columns, from which its DDL and its Arrow schema follow.

This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.types import ColumnType, parse_column_type
from glassflow_dagster.stores.clickhouse.identifiers import full_name, quote_name
from glassflow_dagster.stores.clickhouse.inserts.block import ArrowBlock
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.queries import execute

# Insert settings of the tables that decide what a driver does next: once an insert is confirmed, every replica that is
# read must have it. `connect` sets the matching read setting. Without replicas the quorum has no effect.
WRITE_EVERYWHERE: Mapping[str, Any] = {"async_insert": 0, "insert_quorum": "auto", "insert_quorum_parallel": 0}

# The last second that a DateTime holds: rows that never expire.
NEVER = 2**32 - 1  # seconds since 1970

# A DateTime column is sent as seconds since 1970.
_ARROW_TYPES = {
    "String": pa.string(),
    "UUID": pa.string(),
    "Bool": pa.bool_(),
    "Int32": pa.int32(),
    "Int64": pa.int64(),
    "UInt16": pa.uint16(),
    "UInt32": pa.uint32(),
    "UInt64": pa.uint64(),
    "DateTime": pa.uint32(),
    "DateTime64": pa.timestamp("ms", "UTC"),
}


@dataclass(frozen=True)
class Column:
    """A column of a bookkeeping table: its name and ClickHouse type.

    default: SQL expression for rows that are older than the column ('': the type's default).
    arrow: its type in Arrow blocks, where it does not follow from the ClickHouse type (a String of bytes).
    """

    name: str
    type: str
    default: str = ""
    arrow: pa.DataType | None = None

    @property
    def sql(self) -> str:
        """The column's definition in CREATE TABLE or ADD COLUMN."""
        default = f" DEFAULT {self.default}" if self.default else ""
        return f"{quote_name(self.name)} {self.type}{default}"

    @property
    def parameter(self) -> str:
        """The placeholder `{name:Type}` of a query parameter that has the column's name and type.

        A map has two parameters, as the client writes a map as JSON, which ClickHouse does not take for one.
        """
        kind = parse_column_type(self.type).base
        if kind.name == "Map":
            keys, values = kind.inner
            return f"mapFromArrays({{{self.name}_keys:Array({keys})}}, {{{self.name}_values:Array({values})}})"
        return f"{{{self.name}:{kind}}}"

    @property
    def field(self) -> pa.Field:
        """The column as a field of an Arrow schema."""
        return pa.field(self.name, self.arrow or _arrow_type(parse_column_type(self.type)))


def _arrow_type(column: ColumnType) -> pa.DataType:
    """Return the Arrow type in which values of a ClickHouse type are sent, whether or not it is Nullable."""
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
    """A bookkeeping table: its columns, its sorting key, and the column by which rows expire ('': they do not).

    settings: extra settings of every insert into the table.
    """

    name: str
    columns: tuple[Column, ...]
    order_by: str
    ttl: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns that a writer fills, in their order."""
        return tuple(column.name for column in self.columns)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of a block of rows."""
        return pa.schema([column.field for column in self.columns])

    def full_name(self, database: str) -> str:
        """Return the quoted name `database.table`."""
        return full_name(database, self.name)

    def insert(self, inserter: Inserter, database: str, block: pa.Table, token: Token) -> None:
        """Insert a block of rows (of `schema`) under its insert token; raises what `Inserter.insert` raises."""
        inserter.insert(database, self.name, ArrowBlock(block), token, self.settings)

    def insert_row(self, client: Client, database: str, values: Mapping[str, Any]) -> None:
        """Insert one row without an insert token: a repeated call inserts it twice. Raises what `execute` raises.

        values: column name -> value; columns that are not named get their defaults.
        """
        columns = [column for column in self.columns if column.name in values]
        names = ", ".join(quote_name(column.name) for column in columns)
        execute(
            client,
            f"INSERT INTO {self.full_name(database)} ({names}) {self.settings_clause} "
            f"SELECT {', '.join(column.parameter for column in columns)}",
            _parameters(values),
        )

    @property
    def settings_clause(self) -> str:
        """The extra insert settings as a SETTINGS clause; '' when there are none."""
        settings = ", ".join(f"{name} = {value!r}" for name, value in self.settings.items())
        return f"SETTINGS {settings}" if settings else ""

    def delete_later_batches(
        self, client: Client, database: str, pipeline_id: str, checkpoint_id: str, last_batch: int
    ) -> None:
        """Delete a checkpoint's rows of batches after `last_batch`, and wait for it; raises what `execute` raises."""
        execute(
            client,
            f"ALTER TABLE {self.full_name(database)} DELETE WHERE pipeline_id = {{pipeline:String}} "
            "AND checkpoint_id = {checkpoint_id:UUID} AND batch_id > {last:UInt64} SETTINGS mutations_sync = 1",
            {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id, "last": last_batch},
        )


# Columns that several tables have.
PIPELINE_ID = Column("pipeline_id", "String")
CHECKPOINT_ID = Column("checkpoint_id", "UUID")
# The columns that identify the batch of a row.
BATCH = (PIPELINE_ID, CHECKPOINT_ID, Column("batch_id", "UInt64"))
BATCH_TIME = Column("batch_time", "DateTime64(3, 'UTC')")
# Of the batch that first read a dead letter's record, before any replay. 1970-01-01 for dead letters of versions before
# the column was there, and for replays of them: their marks have it, too, and match no dead letter of a later version.
ORIGIN_BATCH_TIME = Column("origin_batch_time", "DateTime64(3, 'UTC')")
# The position of a record in Kafka.
POSITION = (Column("topic", "LowCardinality(String)"), Column("partition", "UInt32"), Column("offset", "UInt64"))
# The index of an event in its record; -1 for a record that is one event, or was not split into its events.
ITEM = Column("item", "Int32", "-1")
# Of an event that went to several tables (`sink.match: all`), the one that refused its row, as `database.table`; ''
# for any other event.
ONLY_TABLE = Column("only_table", "LowCardinality(String)")
KEPT_FOR_EVER = f"toDateTime({NEVER}, 'UTC')"
EXPIRES_AT = Column("expires_at", "DateTime('UTC')", KEPT_FOR_EVER)


def _parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of `Column.parameter` for the columns' values; a map is sent as two arrays."""
    parameters: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            parameters |= {f"{name}_keys": list(value), f"{name}_values": list(value.values())}
        else:
            parameters[name] = value
    return parameters
