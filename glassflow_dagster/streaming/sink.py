"""The sink: a partition's rows go into ClickHouse from the executor that holds them, block by block.

One request is one block with one token: pipeline, checkpoint incarnation, batch, and the place in Kafka of the block's
first record. A replay cuts the same blocks, because rows are in a fixed order and the limits are those of the batch's
plan; ClickHouse drops a block whose token it knows. The number of Spark's partition would not do: without a shuffle
Spark numbers a topic's partitions in another order when it replays a batch from its log. Dead letters take the same
way into their own table.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property

import pyarrow as pa
import pyarrow.compute as pc
from clickhouse_connect.driver.client import Client
from pyspark import TaskContext

from glassflow_dagster.clickhouse.bisect import BatchName, BlockWriter, RefusedRow, read_splits
from glassflow_dagster.clickhouse.client import wait_for_clickhouse
from glassflow_dagster.clickhouse.ddl import DEAD_LETTERS
from glassflow_dagster.clickhouse.inserts import insert_block
from glassflow_dagster.config.model import ClickHouseConnection, Source
from glassflow_dagster.config.types import ColumnType
from glassflow_dagster.kafka.records import Place, fetch_records
from glassflow_dagster.streaming.arrow import to_arrow
from glassflow_dagster.streaming.blocks import BlockLimits, cut
from glassflow_dagster.streaming.letters import INSERT_STAGE, LetterBook, refused_by_server

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

    `definition` is the target's columns and constraints when the batch was begun; `repeated` says that the batch, or
    some of it, may have been written before. `topics` are in the order of their ranks.

    Columns in, in the order of the first three: topic_rank, partition, offset, row STRUCT (what goes into the table),
    size, refused STRUCT (what goes to the dead letters), dropped ('filtered' or 'late': what goes nowhere), duplicates.
    At most one of row, refused and dropped is set; none of them for a record that only counts duplicates.
    Columns out: those of `Counts`, one row.
    """

    connection: ClickHouseConnection
    database: str
    table: str
    types: dict[str, ColumnType] = field(repr=False)
    source: Source
    topics: tuple[str, ...]
    letters: LetterBook
    limits: BlockLimits
    retry_seconds: float
    definition: str = field(repr=False)
    repeated: bool

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all blocks of the partition, then report what they held."""
        counts = Counts()
        for block in cut(_stored(batches, counts), self.limits):
            # A record is in one block of its batch only, so no two blocks begin with the same one.
            first = "/".join(str(block.column(name)[0]) for name in ("topic_rank", "partition", "offset"))
            self._write(block, f"{self.letters.token}/{first}", counts)
        yield counts.to_batch()

    def _write(self, block: pa.Table, token: str, counts: Counts) -> None:
        rows = block.filter(pc.is_valid(block.column("row")))
        refused = block.filter(pc.is_valid(block.column("refused")))
        if rows.num_rows:
            by_server = self._blocks.insert(self._columns(rows), token)
            counts.blocks += 1
            counts.written += rows.num_rows - len(by_server)
            counts.bytes += pc.sum(rows.column("size")).as_py()
            if by_server:
                wrong = rows.take([found.row for found in by_server])
                counts.bytes -= pc.sum(wrong.column("size")).as_py()
                self._insert_letters(self._refused_by_server(wrong, by_server), f"{token}/dead-letters/{INSERT_STAGE}")
                counts.dead_letters += len(by_server)
        if refused.num_rows:
            self._insert_letters(self._refused_before(refused), f"{token}/dead-letters")
            counts.dead_letters += refused.num_rows
        counts.read += block.num_rows

    @cached_property
    def _client(self) -> Client:
        return _client(self.connection, self.retry_seconds)

    @cached_property
    def _blocks(self) -> BlockWriter:
        letters = self.letters
        batch = BatchName(self.connection.database, letters.pipeline_id, letters.incarnation, letters.batch_id)
        splits = read_splits(self._client, batch) if self.repeated or _is_task_repeated() else None
        return BlockWriter(
            self._client, self.database, self.table, batch, self.definition, splits, self.retry_seconds, print
        )

    def _insert_letters(self, raw: pa.Table, token: str) -> None:
        deadline = time.monotonic() + self.retry_seconds
        database = self.connection.database
        insert_block(self._client, database, DEAD_LETTERS, self.letters.letters(raw), token, deadline, print)

    def _columns(self, rows: pa.Table) -> pa.Table:
        flat = _struct_columns(rows, "row")
        return pa.table({name: to_arrow(column, self.types[name]) for name, column in flat.items()})

    def _refused_before(self, refused: pa.Table) -> pa.Table:
        flat = _struct_columns(refused, "refused")
        return pa.table({**flat, "partition": refused.column("partition"), "offset": refused.column("offset")})

    def _refused_by_server(self, rows: pa.Table, refused: Sequence[RefusedRow]) -> pa.Table:
        """Read the records of refused rows from Kafka once more: good rows have left their raw bytes behind."""
        found = rows.select(["topic_rank", "partition", "offset", "row"]).to_pylist()
        placed = [{**row, "topic": self.topics[row["topic_rank"]]} for row in found]
        places = [Place(row["topic"], row["partition"], row["offset"]) for row in placed]
        records = fetch_records(self.source.connection_params, places, self.source.isolation)
        return refused_by_server(placed, refused, records)


def _is_task_repeated() -> bool:
    """Whether Spark runs this task anew within its batch; no Spark, as in a test, repeats nothing."""
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


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
