"""The sink: a partition's rows go into ClickHouse from the executor that holds them, block by block.

One request is one block with one token: pipeline, checkpoint, batch, and the position in Kafka of the block's first
record. A replay cuts the same blocks, because rows are in a fixed order and the limits are those of the batch's
plan; ClickHouse drops a block whose token it knows. The number of Spark's partition would not do: without a shuffle
Spark numbers a topic's partitions in another order when it replays a batch from its log. Dead letters take the same
way into their own table.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from clickhouse_connect.driver.client import Client
from pyspark import TaskContext

from glassflow_dagster.bookkeeping.dead_letters import INSERT_STAGE, RAW_SCHEMA, insert_dead_letters
from glassflow_dagster.bookkeeping.fencing import Epoch
from glassflow_dagster.bookkeeping.splits import BatchName, RefusedRow, read_splits
from glassflow_dagster.clickhouse.client import wait_for_clickhouse
from glassflow_dagster.clickhouse.inserts.already_written import written_rows
from glassflow_dagster.clickhouse.inserts.insert import Inserter
from glassflow_dagster.clickhouse.inserts.tokens import Token
from glassflow_dagster.clickhouse.queries import retry, translate_errors
from glassflow_dagster.clickhouse.server_run import ServerRun
from glassflow_dagster.config.model.connections import ClickHouseConnection
from glassflow_dagster.config.model.sink import Delivery
from glassflow_dagster.config.model.source import Source
from glassflow_dagster.config.model.types import ColumnType
from glassflow_dagster.kafka.records import Place, fetch_records
from glassflow_dagster.streaming.checkpoint.blocks import BlockLimits, cut
from glassflow_dagster.streaming.delivery.arrow import to_arrow
from glassflow_dagster.streaming.delivery.block_writer import BlockWriter, WholeBlockWriter
from glassflow_dagster.streaming.delivery.dead_letter_rows import DeadLetterBatch, Refused, dead_letters_of_rows
from glassflow_dagster.streaming.stages.record_counter import Counts, RecordCounter

# Bytes of raw records in one block: a server parses a block in memory, several pipelines' at once.
MAX_BLOCK_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class PartitionWriter:
    """Writes one partition of a batch; called by Spark in a Python worker on the executor.

    `definition` is the target's columns and constraints when the batch was begun, `engine` what it is, `begun` the
    run of the server then; `cluster` is where tables are altered; `repeated` says that the batch, or some of it,
    may have been written before; `epoch` is the driver's. `topics` are in the order of their ranks. `accounts` say
    how records are told apart and counted. `there` are the places (topic_rank, partition, offset) of records whose
    rows a run has left in the table that could not close the batch and lost its checkpoint; with `look` such rows
    are told by their values. Columns in, in the order of the accounts' place: topic_rank, partition, offset, row
    STRUCT (what goes into the table), size, refused STRUCT (what goes to the dead letters; without a topic where
    the record has to be read once more), dropped ('filtered' or 'late': what goes nowhere), and those that the
    accounts take. At most one of row, refused and dropped is set; none of them for a record that only counts.
    stage_attempt INT: how often Spark has begun the stage before. Columns out: those of `Counts`, one row.
    """

    accounts: RecordCounter
    connection: ClickHouseConnection
    database: str
    table: str
    types: dict[str, ColumnType] = field(repr=False)
    source: Source
    topics: tuple[str, ...]
    letters: DeadLetterBatch
    limits: BlockLimits
    retry_seconds: float
    definition: str = field(repr=False)
    begun: ServerRun | None
    repeated: bool
    epoch: Epoch
    engine: str = "MergeTree"
    delivery: Delivery = "exactly_once"
    cluster: str | None = None
    look: bool = False
    there: frozenset[tuple[int, int, int]] = frozenset()

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all blocks of the partition, then report what they held."""
        counts = Counts()
        writers: _Writers | None = None
        for block in cut(self._stored(batches, counts), self.limits):
            writers = writers or self._open(repeated=self.repeated or _is_retried(block))
            # A row is in one block of its batch only, so no two blocks begin with the same one.
            first = [block.column(name)[0].as_py() for name in self.accounts.place]
            self._write(writers, block, self.letters.token(first), counts)
        yield counts.to_batch()

    def _write(self, writers: "_Writers", block: pa.Table, token: Token, counts: Counts) -> None:
        rows = block.filter(pc.is_valid(block.column("row")))
        refused = block.filter(pc.is_valid(block.column("dead_letter")))
        if rows.num_rows and self.look:
            rows = self._without_written(writers, rows, counts)
        if rows.num_rows:
            by_server = writers.rows.insert(self._columns(rows), token)
            counts.blocks += 1
            counts.written += rows.num_rows - len(by_server)
            counts.bytes += pc.sum(rows.column("size")).as_py()
            if by_server:
                wrong = rows.take([found.row for found in by_server])
                counts.bytes -= pc.sum(wrong.column("size")).as_py()
                raw = self._refused_by_server(wrong, by_server)
                self._insert_letters(writers, raw, token.dead_letters_of_server())
                self.accounts.count_dead_letters(wrong, counts)
        if refused.num_rows:
            self._insert_letters(writers, self._refused_before(refused), token.dead_letters())
            self.accounts.count_dead_letters(refused, counts)
        self.accounts.count_stored(block, counts)

    def _without_written(self, writers: "_Writers", rows: pa.Table, counts: Counts) -> pa.Table:
        """Count the rows whose values are in the table already, and give the others."""
        client, inserter = writers.inserter.client, writers.inserter
        block = self._columns(rows)

        def ask() -> list[int]:
            return translate_errors(
                client, lambda: written_rows(client, inserter.layout(self.database, self.table), block)
            )

        written = set(retry(ask, self.retry_seconds, print))
        is_written = pa.array([row in written for row in range(rows.num_rows)], pa.bool_())
        counts.written += len(written)
        counts.bytes += pc.sum(rows.filter(is_written).column("size")).as_py() or 0
        return rows.filter(pc.invert(is_written))

    def _open(self, *, repeated: bool) -> "_Writers":
        """Open what the partition is written with; repeated: an earlier attempt may have written some of it."""
        client = _client(self.connection, self.retry_seconds)
        inserter = Inserter(client, self.retry_seconds, print, self.epoch, self.begun, repeated=repeated)
        if self.engine == "Distributed" and self.delivery == "exactly_once":
            return _Writers(inserter, WholeBlockWriter(inserter, self.database, self.table))
        letters = self.letters
        batch = BatchName(self.connection.database, letters.pipeline_id, letters.checkpoint_id, letters.batch_id)
        splits = retry(lambda: read_splits(client, batch), self.retry_seconds, print) if repeated else None
        how = (self.delivery, self.cluster)
        writer = BlockWriter(inserter, self.database, self.table, batch, self.definition, splits, *how)
        return _Writers(inserter, writer)

    def _insert_letters(self, writers: "_Writers", raw: pa.Table, token: Token) -> None:
        insert_dead_letters(writers.inserter, self.connection.database, self.letters.letters(raw), token)

    def _columns(self, rows: pa.Table) -> pa.Table:
        flat = _struct_columns(rows, "row")
        return pa.table({name: to_arrow(column, self.types[name]) for name, column in flat.items()})

    def _refused_before(self, refused: pa.Table) -> pa.Table:
        """Put together what is known of records that never reached the server; for `DeadLetterBatch.letters`."""
        flat = pa.table(_struct_columns(refused, "dead_letter"))
        with_raw = pc.is_valid(flat.column("topic"))
        known = flat.filter(with_raw)
        places = refused.filter(with_raw).select(["partition", "offset"])
        passed = pa.repeat(False, known.num_rows)  # noqa: FBT003 - a value
        raw = pa.table({**_columns_of(known), **_columns_of(places), "passed_dedup": passed}).select(RAW_SCHEMA.names)
        wrong = refused.filter(pc.invert(with_raw))
        if not wrong.num_rows:
            return raw
        reasons = flat.filter(pc.invert(with_raw)).to_pylist()
        rows = [
            Refused(place, letter["stage"], letter["reason"], letter["value"])
            for place, letter in zip(self._places(wrong), reasons, strict=True)
        ]
        return pa.concat_tables([raw.cast(RAW_SCHEMA), self._with_raw(rows)])

    def _refused_by_server(self, rows: pa.Table, refused: Sequence[RefusedRow]) -> pa.Table:
        values = (json.dumps(row, default=str, ensure_ascii=False).encode() for row in rows.column("row").to_pylist())
        return self._with_raw(
            [
                Refused(place, INSERT_STAGE, reason, value)
                for place, (_, reason), value in zip(self._places(rows), refused, values, strict=True)
            ]
        )

    def _places(self, rows: pa.Table) -> list[Place]:
        found = rows.select(["topic_rank", "partition", "offset"]).to_pylist()
        return [Place(self.topics[row["topic_rank"]], row["partition"], row["offset"]) for row in found]

    def _with_raw(self, rows: Sequence[Refused]) -> pa.Table:
        """Read the records of refused rows from Kafka once more: good rows have left their raw bytes behind."""
        places = [row.place for row in rows]
        return dead_letters_of_rows(rows, fetch_records(self.source.connection_params, places, self.source.isolation))

    def _stored(self, batches: Iterable[pa.RecordBatch], counts: Counts) -> Iterator[pa.RecordBatch]:
        """Pass on the records that become a row or a dead letter, and count the others, which belong to no block."""
        for batch in batches:
            self.accounts.count_dropped(batch, counts)
            sizes = batch.column("size")
            counts.sized += pc.sum(pc.greater(sizes, 0)).as_py() or 0
            counts.sized_bytes += pc.sum(sizes).as_py() or 0
            stored = batch.filter(pc.or_(pc.is_valid(batch.column("row")), pc.is_valid(batch.column("dead_letter"))))
            yield self._missing(stored, counts) if self.there else stored

    def _missing(self, batch: pa.RecordBatch, counts: Counts) -> pa.RecordBatch:
        """Count the rows that are in the table already, and pass on the others."""
        places = zip(*(batch.column(name).to_pylist() for name in self.accounts.place), strict=True)
        is_there = pa.array((place in self.there for place in places), pa.bool_())
        found = pa.Table.from_batches([batch.filter(is_there)])
        self.accounts.count_stored(found, counts)
        counts.written += found.num_rows
        counts.bytes += pc.sum(found.column("size")).as_py() or 0
        return batch.filter(pc.invert(is_there))


@dataclass(frozen=True)
class _Writers:
    """What a partition's rows and its dead letters are written with."""

    inserter: Inserter
    rows: BlockWriter | WholeBlockWriter


def _is_retried(block: pa.Table) -> bool:
    """Whether Spark runs this task, or its stage, anew within the batch; no Spark, as in a test, repeats nothing."""
    context = TaskContext.get()
    return context is not None and (context.attemptNumber() > 0 or block.column("stage_attempt")[0].as_py() > 0)


def _struct_columns(table: pa.Table, name: str) -> dict[str, pa.ChunkedArray]:
    column = table.column(name)
    return {f.name: pc.struct_field(column, index) for index, f in enumerate(column.type)}


def _columns_of(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


# A worker serves many tasks; opening a connection for each would cost more than most blocks.
_clients: dict[str, Client] = {}


def _client(connection: ClickHouseConnection, patience_seconds: float) -> Client:
    key = repr(connection)
    if key not in _clients:
        # Spark ends idle workers: a server that restarts between two batches must not end the pipeline.
        _clients[key] = wait_for_clickhouse(connection, patience_seconds, print)
    return _clients[key]
