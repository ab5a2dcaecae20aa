"""The sink: a partition's rows go into ClickHouse from the executor that holds them, block by block.

One request is one block with one token: pipeline, checkpoint incarnation, batch, and the place in Kafka of the block's
first record. A replay cuts the same blocks, because rows are in a fixed order and the limits are those of the batch's
plan; ClickHouse drops a block whose token it knows. The number of Spark's partition would not do: without a shuffle
Spark numbers a topic's partitions in another order when it replays a batch from its log. Dead letters take the same
way into their own table.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields

import pyarrow as pa
import pyarrow.compute as pc
from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.client import wait_for_clickhouse
from glassflow_dagster.clickhouse.ddl import DEAD_LETTERS
from glassflow_dagster.clickhouse.inserts import insert_block
from glassflow_dagster.config.model import ClickHouseConnection
from glassflow_dagster.config.types import ColumnType
from glassflow_dagster.streaming.arrow import to_arrow
from glassflow_dagster.streaming.blocks import BlockLimits, cut

# Bytes of raw records in one block: a server parses a block in memory, several pipelines' at once.
MAX_BLOCK_BYTES = 64 * 1024 * 1024


@dataclass
class Counts:
    """What a partition's records became; all are counted from the records themselves."""

    read: int = 0
    written: int = 0
    duplicates: int = 0
    filtered: int = 0
    late: int = 0
    dead_letters: int = 0
    blocks: int = 0
    bytes: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        """Add count by count."""
        return Counts(**{f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(Counts)})

    def to_batch(self) -> pa.RecordBatch:
        """Give one row of LONG columns, in the order of `COUNTS_SCHEMA`."""
        return pa.RecordBatch.from_pylist([{f.name: getattr(self, f.name) for f in fields(Counts)}])


COUNTS_SCHEMA = ", ".join(f"{f.name} bigint" for f in fields(Counts))


@dataclass(frozen=True)
class PartitionWriter:
    """Writes one partition of a batch; called by Spark in a Python worker on the executor.

    Columns in, in the order of the first three: topic_rank, partition, offset, row STRUCT (what goes into the table),
    size, refused STRUCT (what goes to the dead letters), dropped ('filtered' or 'late': what goes nowhere), duplicates.
    At most one of row, refused and dropped is set; none of them for a record that only counts duplicates.
    Columns out: those of `Counts`, one row.
    """

    connection: ClickHouseConnection
    database: str
    table: str
    types: dict[str, ColumnType] = field(repr=False)
    pipeline_id: str
    incarnation: str
    batch_id: int
    batch_time_ms: int
    limits: BlockLimits
    retry_seconds: float

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all blocks of the partition, then report what they held."""
        counts = Counts()
        for block in cut(_stored(batches, counts), self.limits):
            # A record is in one block of its batch only, so no two blocks begin with the same one.
            first = "/".join(str(block.column(name)[0]) for name in ("topic_rank", "partition", "offset"))
            self._write(block, f"{self.pipeline_id}/{self.incarnation}/{self.batch_id}/{first}", counts)
        yield counts.to_batch()

    def _write(self, block: pa.Table, token: str, counts: Counts) -> None:
        rows = block.filter(pc.is_valid(block.column("row")))
        refused = block.filter(pc.is_valid(block.column("refused")))
        if rows.num_rows:
            self._insert(self.database, self.table, self._columns(rows), token)
            counts.blocks += 1
            counts.written += rows.num_rows
            counts.bytes += pc.sum(rows.column("size")).as_py()
        if refused.num_rows:
            database = self.connection.database
            self._insert(database, DEAD_LETTERS, self._dead_letters(refused), f"{token}/dead-letters")
            counts.dead_letters += refused.num_rows
        counts.read += block.num_rows

    def _insert(self, database: str, table: str, block: pa.Table, token: str) -> None:
        client = _client(self.connection, self.retry_seconds)
        insert_block(client, database, table, block, token, time.monotonic() + self.retry_seconds, print)

    def _columns(self, rows: pa.Table) -> pa.Table:
        flat = _struct_columns(rows, "row")
        return pa.table({name: to_arrow(column, self.types[name]) for name, column in flat.items()})

    def _dead_letters(self, refused: pa.Table) -> pa.Table:
        flat = _struct_columns(refused, "refused")
        count = refused.num_rows
        return pa.table(
            {
                "pipeline_id": pa.repeat(self.pipeline_id, count),
                "incarnation": pa.repeat(self.incarnation, count),
                "batch_id": pa.repeat(pa.scalar(self.batch_id, pa.uint64()), count),
                "batch_time": pa.repeat(pa.scalar(self.batch_time_ms, pa.timestamp("ms", "UTC")), count),
                "topic": flat["topic"],
                "partition": refused.column("partition").cast(pa.uint32()),
                "offset": refused.column("offset").cast(pa.uint64()),
                "timestamp": flat["timestamp"],
                "key": flat["key"],
                "value": flat["value"],
                "headers": flat["headers"],
                "stage": flat["stage"],
                "reason": flat["reason"],
            }
        )


def _stored(batches: Iterable[pa.RecordBatch], counts: Counts) -> Iterator[pa.RecordBatch]:
    """Pass on the records that become a row or a dead letter, and count the others, which belong to no block."""
    for batch in batches:
        duplicates = pc.sum(batch.column("duplicates")).as_py() or 0
        dropped = {entry["values"]: entry["counts"] for entry in pc.value_counts(batch.column("dropped")).to_pylist()}
        filtered, late = dropped.get("filtered", 0), dropped.get("late", 0)
        counts.duplicates += duplicates
        counts.filtered += filtered
        counts.late += late
        counts.read += duplicates + filtered + late
        yield batch.filter(pc.or_(pc.is_valid(batch.column("row")), pc.is_valid(batch.column("refused"))))


def _struct_columns(table: pa.Table, name: str) -> dict[str, pa.ChunkedArray]:
    column = table.column(name)
    return {f.name: pc.struct_field(column, index) for index, f in enumerate(column.type)}


# A worker serves many tasks; opening a connection for each would cost more than most blocks.
_clients: dict[str, Client] = {}


def _client(connection: ClickHouseConnection, patience_seconds: float) -> Client:
    key = repr(connection)
    if key not in _clients:
        # Spark ends idle workers: a server that restarts between two batches must not end the pipeline.
        _clients[key] = wait_for_clickhouse(connection, patience_seconds, print)
    return _clients[key]
