"""The sink: each executor inserts the rows of its partitions into ClickHouse, block by block.

One insert is one block with one token: pipeline, checkpoint, batch, and the position in Kafka of the block's first
record. A replay cuts the same blocks, because the rows are in a fixed order and the limits are those of the batch's
plan; ClickHouse drops a block whose token it knows. The number of Spark's partition cannot be part of the token:
without a shuffle Spark numbers a topic's partitions in another order when it replays a batch from its log. Dead letters
are inserted into their own table in the same way. Where the sink has several tables, a block is one insert for each
table that it has rows for.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from clickhouse_connect.driver.client import Client
from pyspark import TaskContext

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.definition.model.sink import Delivery
from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.runtime.metrics.measures import Measures
from glassflow_dagster.stores.bookkeeping.dead_letter_table import (
    DEAD_LETTERS,
    INSERT_STAGE,
    RAW_SCHEMA,
    insert_dead_letters,
)
from glassflow_dagster.stores.bookkeeping.fencing import Epoch
from glassflow_dagster.stores.bookkeeping.splits import BatchName, RefusedRow, read_splits
from glassflow_dagster.stores.clickhouse.client import wait_for_clickhouse
from glassflow_dagster.stores.clickhouse.inserts.already_written import written_rows
from glassflow_dagster.stores.clickhouse.inserts.batch_begin import BatchBegin
from glassflow_dagster.stores.clickhouse.inserts.block import RowBinaryBlock
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.interrupted import MutatedRows
from glassflow_dagster.stores.clickhouse.inserts.rows_as_json import read_as_json
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.queries import retry, translate_errors
from glassflow_dagster.stores.clickhouse.tables.distributed import require_more_tokens_on_shards
from glassflow_dagster.stores.clickhouse.tables.token_window import keep_more_tokens_if_allowed, require_more_tokens
from glassflow_dagster.stores.kafka.records import RecordPosition, fetch_records
from glassflow_dagster.stores.kafka.replay_headers import WHOLE_RECORD
from glassflow_dagster.stream.checkpoint.blocks import BlockLimits, cut
from glassflow_dagster.stream.delivery.block_writer import BlockWriter, WholeBlockWriter
from glassflow_dagster.stream.delivery.dead_letter_rows import (
    DeadLetterBatch,
    DeadLetterWithoutRaw,
    dead_letters_of_rows,
)
from glassflow_dagster.stream.delivery.token_room import TokenRoom, TokenShare
from glassflow_dagster.stream.stages.columns import EVENT, ITEM, STAGE_ATTEMPT
from glassflow_dagster.stream.stages.record_counter import BATCH_OUTCOMES_SCHEMA, BatchOutcomes, RecordCounter

# Bytes of raw records in one block: the server parses blocks in memory, those of several pipelines at once.
MAX_BLOCK_BYTES = 64 * 1024 * 1024

# The columns that `PartitionWriter` returns: those of `BatchOutcomes`, and `Measures` as JSON.
PARTITION_RESULT_SCHEMA = f"{BATCH_OUTCOMES_SCHEMA}, measures string"


@dataclass(frozen=True)
class BatchTable:
    """A table that a batch writes to.

    columns: (name, type) of each value of a row, the type as the server writes it.
    ddl: its columns and constraints when the batch was begun.
    has_position: whether each row has its record's position in Kafka, and no other row has.
    """

    database: str
    name: str
    engine: str
    columns: tuple[tuple[str, str], ...] = field(repr=False)
    ddl: str = field(repr=False)
    has_position: bool = False

    def block(self, rows: pa.Table) -> RowBinaryBlock:
        """Return rows as ClickHouse is sent them. Column in: row BINARY."""
        return RowBinaryBlock(self.columns, rows.column("row"), self.has_position)


@dataclass(frozen=True)
class PartitionWriter:
    """Writes one partition of a batch, in a Python worker on the executor; or a whole batch, inline in the driver.

    Columns in, sorted by the counter's position columns: these, `PAYLOAD`, `STAGE_ATTEMPT`, of a source whose records
    are many events `ITEM` and `EVENT`, and those that the counter takes. Columns out: `PARTITION_RESULT_SCHEMA`; one
    row.

    counter: counts the records of this kind of query.
    tables: the sink's.
    topics: in the order of topic_rank.
    begin: the ClickHouse server when the batch began.
    repeated: some of the batch may have been written before.
    mutated_rows: see `Inserter`.
    epoch: the driver's number, for fencing.
    cluster: where tables are altered.
    to_all_tables: an event may go to several tables.
    already_written: positions (of the counter's columns, and with several tables the table's index) of rows that an
        earlier run wrote before its checkpoint was lost.
    compare_values: find such rows by their values instead.
    token_share: of this task, where the batch may have more blocks than the tables keep tokens; None where it cannot.
    report: prints a line for the user.
    """

    counter: RecordCounter
    connection: ClickHouseConnection
    tables: tuple[BatchTable, ...]
    source: Source
    topics: tuple[str, ...]
    dead_letters: DeadLetterBatch
    limits: BlockLimits
    retry_seconds: float
    begin: BatchBegin
    repeated: bool
    epoch: Epoch
    delivery: Delivery = "exactly_once"
    cluster: str | None = None
    to_all_tables: bool = False
    compare_values: bool = False
    mutated_rows: MutatedRows | None = None
    token_share: TokenShare | None = None
    already_written: frozenset[tuple[int, ...]] = frozenset()
    report: Callable[[str], None] = print

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write all blocks of the partition, then yield one row with the outcomes of its records.

        The connection to ClickHouse is opened with the first block, as a partition may have none.
        """
        outcomes = BatchOutcomes()
        writers: _Writers | None = None
        for block in cut(self._stored(batches, outcomes), self.limits):
            writers = writers or self._open(repeated=self.repeated or is_retried(block))
            # No two blocks of a batch begin with the same row, so the first row's position identifies the block.
            first = [block.column(name)[0].as_py() for name in self.counter.position_columns]
            self._write(writers, block, self.dead_letters.token(first), outcomes)
        measures = writers.inserter.measures if writers else Measures()
        yield outcomes.to_batch().append_column("measures", pa.array([measures.model_dump_json()]))

    def _write(self, writers: "_Writers", block: pa.Table, token: Token, outcomes: BatchOutcomes) -> None:
        """Insert a block's rows and its dead letters, and count its records. token: the block's.

        Rows that the server refuses become dead letters, too. With `compare_values`, rows that the table already has
        are counted and not inserted.
        """
        dead_letters = block.filter(pc.is_valid(block.column("dead_letter")))
        for index, table in enumerate(self.tables):
            if (rows := self.rows_of(index, block)).num_rows:
                # As it was before a sink had several tables.
                of_table = token.to_table(f"{table.database}.{table.name}") if index else token
                self._write_rows(writers, index, rows, of_table, outcomes)
        if dead_letters.num_rows:
            self._insert_dead_letters(writers, self._raw_of_dead_letters(dead_letters), token.dead_letters())
            self.counter.count_dead_letters(dead_letters, outcomes)
        self.counter.count_stored(block, outcomes)
        outcomes.copies += _copies(block.column("row"))

    def rows_of(self, index: int, records: pa.Table) -> pa.Table:
        """Return the records that are rows of a table; their column row is BINARY then. index: in `tables`."""
        row, others = records.column("row"), records.drop_columns(["row"])
        if len(self.tables) == 1:
            return records.filter(pc.is_valid(row))
        if pa.types.is_list(row.type):
            of_all = row.combine_chunks()
            parents, row = pc.list_parent_indices(of_all), pc.list_flatten(of_all)
            is_of_table = pc.equal(pc.struct_field(row, "table"), index)
            # Only these, and without the column row: an event has the values of all of its tables in it.
            rows = others.take(parents.filter(is_of_table))
        else:
            is_of_table = pc.equal(pc.struct_field(row, "table"), index)
            rows = others.filter(is_of_table)
        values = pc.struct_field(row.filter(is_of_table), "values")
        return rows.add_column(records.column_names.index("row"), "row", values)

    def _write_rows(
        self, writers: "_Writers", index: int, rows: pa.Table, token: Token, outcomes: BatchOutcomes
    ) -> None:
        """Insert rows into a table, and count them.

        index: of the table.
        token: of these rows of the block.
        """
        table = self.tables[index]
        if self.already_written:
            rows = self._without(self._positions_written(index, rows), index, rows, outcomes)
        if self.compare_values:
            rows = self._without(self._values_written(writers, index, rows), index, rows, outcomes)
        if not rows.num_rows:
            return
        refused = writers.rows[index].insert(table.block(rows), token)
        _measure_ages(rows.column("timestamp"), writers.inserter.measures)
        outcomes.blocks += 1
        outcomes.count_written(index, rows.num_rows - len(refused))
        outcomes.bytes += pc.sum(rows.column("size")).as_py()
        if refused:
            refused_rows = rows.take([entry.row for entry in refused])
            outcomes.bytes -= pc.sum(refused_rows.column("size")).as_py()
            raw = self._raw_of_refused(writers, table, refused_rows, refused)
            self._insert_dead_letters(writers, raw, token.dead_letters_of_server())
            self.counter.count_dead_letters(refused_rows, outcomes)

    @staticmethod
    def _without(is_written: pa.Array, index: int, rows: pa.Table, outcomes: BatchOutcomes) -> pa.Table:
        """Return the rows that a table does not have yet; count the others as written. is_written: BOOLEAN, by row.

        Those were written before the checkpoint was lost: under other tokens, so that ClickHouse would not drop them.
        """
        written = rows.filter(is_written)
        outcomes.count_written(index, written.num_rows)
        # The sum of no rows is NULL.
        outcomes.bytes += pc.sum(written.column("size")).as_py() or 0
        return rows.filter(pc.invert(is_written))

    def _positions_written(self, index: int, rows: pa.Table) -> pa.Array:
        """Return of each row of a table whether its position is in `already_written`, BOOLEAN."""
        of_table = (index,) if len(self.tables) > 1 else ()
        positions = zip(*(rows.column(name).to_pylist() for name in self.counter.position_columns), strict=True)
        return pa.array(((*position, *of_table) in self.already_written for position in positions), pa.bool_())

    def _values_written(self, writers: "_Writers", index: int, rows: pa.Table) -> pa.Array:
        """Return of each row whether its table has it already, by its values, BOOLEAN."""
        client, inserter, table = writers.inserter.client, writers.inserter, self.tables[index]
        block = table.block(rows)

        def find_written() -> list[int]:
            return translate_errors(
                client, lambda: written_rows(client, inserter.layout(table.database, table.name), block)
            )

        written = set(retry(find_written, self.retry_seconds, self.report))
        return pa.array([row in written for row in range(rows.num_rows)], pa.bool_())

    def _open(self, *, repeated: bool) -> "_Writers":
        """Return the writers of the partition. repeated: an earlier attempt may have written some of it.

        Blocks for a Distributed table with exactly-once delivery are written as a whole or not at all. All others are
        split where the server refuses rows; a repeated batch continues with the splits that are noted in ClickHouse.
        """
        client = worker_client(self.connection, self.retry_seconds, self.report)
        inserter = Inserter(
            client, self.retry_seconds, self.report, self.epoch, self.begin,
            repeated=repeated, mutated_rows=self.mutated_rows,
        )  # fmt: skip
        ids = self.dead_letters
        batch = BatchName(self.connection.database, ids.pipeline_id, ids.checkpoint_id, ids.batch_id)
        splits = retry(lambda: read_splits(client, batch), self.retry_seconds, self.report) if repeated else None

        def writer(table: BatchTable) -> BlockWriter | WholeBlockWriter:
            room = self._room(client, table)
            if table.engine == "Distributed" and self.delivery == "exactly_once":
                return WholeBlockWriter(inserter, table.database, table.name, room)
            return BlockWriter(
                inserter, table.database, table.name, batch, table.ddl, splits,
                delivery=self.delivery, cluster=self.cluster, room=room,
            )  # fmt: skip

        return _Writers(inserter, tuple(writer(table) for table in self.tables), self._room_of_dead_letters(client))

    def _room(self, client: Client, table: BatchTable) -> TokenRoom | None:
        """Return the room for the tokens of this task in a table of the sink; None where it need not be checked."""
        share, name = self.token_share, (table.database, table.name)
        if share is None or self.delivery != "exactly_once":
            return None
        if table.engine == "Distributed":
            ask: Callable[[int], None] = partial(require_more_tokens_on_shards, client, *name)
        elif share.may_enlarge:
            ask = partial(keep_more_tokens_if_allowed, client, *name, cluster=self.cluster)
        else:
            ask = partial(require_more_tokens, client, *name, cluster=self.cluster)
        return TokenRoom(share.tasks, share.tokens_per_insert, self._retried(ask))

    def _room_of_dead_letters(self, client: Client) -> TokenRoom | None:
        """Return the room for the tokens of this task in the table of dead letters, which has no partitions."""
        if self.token_share is None:
            return None
        name = (self.connection.database, DEAD_LETTERS.name)
        ask = partial(keep_more_tokens_if_allowed, client, *name, cluster=self.cluster)
        return TokenRoom(self.token_share.tasks, 1, self._retried(ask))

    def _retried(self, ask: Callable[[int], None]) -> Callable[[int], None]:
        return lambda tokens: retry(lambda: ask(tokens), self.retry_seconds, self.report)

    def _insert_dead_letters(self, writers: "_Writers", raw: pa.Table, token: Token) -> None:
        """Insert records into the dead letter table. Columns of `raw`: those of `RAW_SCHEMA`."""
        if writers.dead_letters:
            writers.dead_letters.reserve()
        insert_dead_letters(writers.inserter, self.connection.database, self.dead_letters.rows(raw), token)

    def _raw_of_dead_letters(self, records: pa.Table) -> pa.Table:
        """Return the raw records of dead letters that a stage of the query made; columns out: those of `RAW_SCHEMA`.

        They carry their raw record, except joined rows (their topic is NULL): of these, the left event's record is read
        from Kafka again.
        """
        flat = pa.table(_struct_columns(records, "dead_letter"))
        has_raw = pc.is_valid(flat.column("topic"))
        complete = flat.filter(has_raw)
        of_complete = records.filter(has_raw)
        positions = of_complete.select(["partition", "offset"]).append_column(ITEM, _items(of_complete))
        # Deduplication has accepted none of these records: they failed before it, or were late.
        passed_dedup = pa.repeat(False, complete.num_rows)  # noqa: FBT003 - a value
        # They went to no table.
        no_table = pa.repeat("", complete.num_rows)
        of_all = {"passed_dedup": passed_dedup, "only_table": no_table}
        columns = {**_columns_of(complete), **_columns_of(positions), **of_all}
        raw = pa.table(columns).select(RAW_SCHEMA.names)
        incomplete = records.filter(pc.invert(has_raw))
        if not incomplete.num_rows:
            return raw
        dead_letters = flat.filter(pc.invert(has_raw)).to_pylist()
        rows = [
            DeadLetterWithoutRaw(position, dead_letter["stage"], dead_letter["reason"], row=dead_letter["value"])
            for position, dead_letter in zip(self._positions(incomplete), dead_letters, strict=True)
        ]
        return pa.concat_tables([raw.cast(RAW_SCHEMA), self._fetch_raw(rows)])

    def _raw_of_refused(
        self, writers: "_Writers", table: BatchTable, rows: pa.Table, refused: Sequence[RefusedRow]
    ) -> pa.Table:
        """Return the raw records of rows that the server refused for a table; columns out: those of `RAW_SCHEMA`.

        A row goes along as JSON, for the case that Kafka no longer has its record. An event that is one of many in its
        record goes along as it is, since Kafka does not have it. refused: in the order of the rows.
        """
        client, block = writers.inserter.client, table.block(rows)
        rows_as_json = retry(
            lambda: translate_errors(client, lambda: read_as_json(client, block)), self.retry_seconds, self.report
        )
        has_items = EVENT in rows.column_names
        events = rows.column(EVENT).to_pylist() if has_items else [None] * rows.num_rows
        found = zip(self._positions(rows), refused, rows_as_json, _items(rows).to_pylist(), events, strict=True)
        only_table = f"{table.database}.{table.name}" if self.to_all_tables else ""
        return self._fetch_raw(
            [
                DeadLetterWithoutRaw(position, INSERT_STAGE, reason, row_as_json, item, event, only_table)
                for position, (_, reason), row_as_json, item, event in found
            ]
        )

    def _positions(self, rows: pa.Table) -> list[RecordPosition]:
        """Return the positions of the rows' records in Kafka; of a joined row that of its left event."""
        columns = rows.select(["topic_rank", "partition", "offset"]).to_pylist()
        return [RecordPosition(self.topics[row["topic_rank"]], row["partition"], row["offset"]) for row in columns]

    def _fetch_raw(self, rows: Sequence[DeadLetterWithoutRaw]) -> pa.Table:
        """Read the rows' raw records from Kafka again; columns out: those of `RAW_SCHEMA`."""
        positions = [row.position for row in rows]
        records = fetch_records(self.source.connection_params, positions, self.source.isolation)
        return dead_letters_of_rows(rows, records)

    def _stored(self, batches: Iterable[pa.RecordBatch], outcomes: BatchOutcomes) -> Iterator[pa.RecordBatch]:
        """Yield the records that become a row or a dead letter; count the dropped ones, which are in no block."""
        for batch in batches:
            self.counter.count_dropped(batch, outcomes)
            stored = batch.filter(pc.or_(pc.is_valid(batch.column("row")), pc.is_valid(batch.column("dead_letter"))))
            yield stored


@dataclass(frozen=True)
class _Writers:
    """The inserter of one partition, for its dead letters, and the writer of each table, for its rows.

    dead_letters: the room for the tokens of dead letters; None where it need not be checked.
    """

    inserter: Inserter
    rows: tuple[BlockWriter | WholeBlockWriter, ...]
    dead_letters: TokenRoom | None


def _copies(row: pa.ChunkedArray) -> int:
    """Return the rows beyond the first of events that go to several tables. row: of the records of a block."""
    if not pa.types.is_list(row.type):
        return 0
    return int((pc.sum(pc.list_value_length(row)).as_py() or 0) - (len(row) - row.null_count))


def is_retried(block: pa.Table) -> bool:
    """Return whether Spark runs this task, or its stage, again within the batch; False without Spark, as in a test."""
    context = TaskContext.get()
    return context is not None and (context.attemptNumber() > 0 or block.column(STAGE_ATTEMPT)[0].as_py() > 0)


def _measure_ages(timestamps: pa.ChunkedArray, measures: Measures) -> None:
    """Count the ages of rows that were just inserted. timestamps: milliseconds since 1970; NULL is not counted.

    Rows that the server refused are among them: they were decided at the same time.
    """
    known = timestamps.drop_null().to_numpy()
    # A producer's clock may be ahead of this machine's. In floating point, as Kafka takes timestamps of any size.
    measures.add_rows((time.time() - known / 1e3).clip(min=0.0))


def _struct_columns(table: pa.Table, name: str) -> dict[str, pa.ChunkedArray]:
    """Return the fields of a STRUCT column as columns."""
    column = table.column(name)
    return {member.name: pc.struct_field(column, index) for index, member in enumerate(column.type)}


def _items(rows: pa.Table) -> pa.Array | pa.ChunkedArray:
    """Return the events' indexes in their records, INT; those of whole records where rows have none."""
    if ITEM in rows.column_names:
        return rows.column(ITEM)
    return pa.repeat(pa.scalar(WHOLE_RECORD, pa.int32()), rows.num_rows)


def _columns_of(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


# A worker runs many tasks; opening a connection for each would cost more than inserting most blocks. By the connection
# with its secrets: the workers of a pool outlive a driver whose password was changed.
_clients: dict[ClickHouseConnection, Client] = {}


def worker_client(connection: ClickHouseConnection, patience_seconds: float, report: Callable[[str], None]) -> Client:
    """Return this worker's client for a server; connect first where there is none."""
    if connection not in _clients:
        # Spark ends idle workers, so a new one may connect while the server restarts: wait for it.
        _clients[connection] = wait_for_clickhouse(connection, patience_seconds, report)
    return _clients[connection]
