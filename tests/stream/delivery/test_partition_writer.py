"""The tokens of the sink's blocks, and the outcome of each record of a partition."""

import time
from contextlib import nullcontext
from dataclasses import replace
from functools import reduce
from operator import add
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import uuid4

import pyarrow as pa
import pytest

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.errors import Fenced
from glassflow_dagster.runtime.clocks import steady_seconds
from glassflow_dagster.runtime.metrics.measures import Measures
from glassflow_dagster.stores.bookkeeping.dead_letter_table import RAW_SCHEMA
from glassflow_dagster.stores.bookkeeping.fencing import CHECK_VALID_SECONDS, Epoch
from glassflow_dagster.stores.clickhouse import client
from glassflow_dagster.stores.clickhouse.errors import ClickHouseUnreachable
from glassflow_dagster.stores.clickhouse.inserts.batch_begin import BatchBegin
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.table import Table
from glassflow_dagster.stream.batch_query import PlannedBatch
from glassflow_dagster.stream.checkpoint import writer_claim
from glassflow_dagster.stream.checkpoint.blocks import BlockLimits
from glassflow_dagster.stream.checkpoint.checkpoint import (
    BatchPlan,
    Checkpoint,
    CheckpointError,
    CheckpointIdentity,
    OffsetRanges,
)
from glassflow_dagster.stream.checkpoint.storage import LocalStorage
from glassflow_dagster.stream.checkpoint.writer_claim import claim_checkpoint
from glassflow_dagster.stream.delivery import batch_writer as module
from glassflow_dagster.stream.delivery import partition_writer
from glassflow_dagster.stream.delivery.batch_writer import BatchWriter
from glassflow_dagster.stream.delivery.dead_letter_rows import DeadLetterBatch
from glassflow_dagster.stream.delivery.partition_writer import BatchTable, PartitionWriter
from glassflow_dagster.stream.stages.record_counter import BatchOutcomes, ItemCounter, SingleTopicCounter

CONNECTION = ClickHouseConnection(host="127.0.0.1", port=9000, database="d", username="u")
SOURCE = Source(
    type="kafka", source_id="s", topic="t", connection_params={"brokers": ["127.0.0.1:1"]},
    schema_fields=[{"name": "n", "type": "int"}],
)  # fmt: skip
EPOCH = Epoch("d", "p", "i", 1, str(uuid4()))
Sent = dict[str, list[int]]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Sent:
    """Record the blocks that the sink inserts: token -> values of the column `n`."""
    blocks: Sent = {}

    def keep(_: Inserter, _database: str, _table: str, block: Any, token: Token, *_settings: object) -> None:
        assert token.text not in blocks
        blocks[token.text] = [row[0] for row in block.rows.to_pylist()]

    monkeypatch.setattr(Inserter, "insert", keep)
    monkeypatch.setattr(partition_writer, "worker_client", lambda *_: None)
    return blocks


def writer(rows: int) -> PartitionWriter:
    return PartitionWriter(
        counter=SingleTopicCounter(), connection=CONNECTION,
        tables=(BatchTable("d", "t", "MergeTree", (("n", "UInt8"),), ""),),
        source=SOURCE, topics=("t",), dead_letters=DeadLetterBatch("p", "i", "i", 7, 0, "replay", 0),
        limits=BlockLimits(rows, 1000), retry_seconds=0, begin=BatchBegin(), repeated=False,
        epoch=EPOCH,
    )  # fmt: skip


def records(partition: int, offsets: range) -> pa.RecordBatch:
    refused = pa.struct([("topic", pa.string())])
    return pa.record_batch({
        "topic_rank": pa.array([0] * len(offsets), pa.int32()),
        "partition": pa.array([partition] * len(offsets), pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "row": pa.array([bytes([offset]) for offset in offsets], pa.binary()),
        "size": pa.array([1] * len(offsets), pa.int32()),
        "dead_letter": pa.nulls(len(offsets), refused),
        "drop_reason": pa.nulls(len(offsets), pa.string()),
        "duplicates": pa.array([2] * len(offsets), pa.int64()),
        "timestamp": pa.array([time.time_ns() // 1_000_000 - age * 1000 for age in offsets], pa.int64()),
    })  # fmt: skip


def counted(found: list[pa.RecordBatch]) -> BatchOutcomes:
    rows = (row for batch in found for row in batch.drop_columns(["measures"]).to_pylist())
    return sum((BatchOutcomes(**row) for row in rows), BatchOutcomes())


def measured(found: list[pa.RecordBatch]) -> Measures:
    return reduce(add, (Measures.model_validate_json(batch.column("measures")[0].as_py()) for batch in found))


def test_a_block_has_the_name_of_its_first_record_whichever_task_writes_it(sent: Sent) -> None:
    for partition in (0, 1):
        list(writer(2)([records(partition, range(10, 13))]))
    first = dict(sent)
    sent.clear()
    for partition in (1, 0):
        list(writer(2)([records(partition, range(10, 13))]))
    assert sent == first
    assert first == {"p/i/7/0/0/10": [10, 11], "p/i/7/0/0/12": [12], "p/i/7/0/1/10": [10, 11], "p/i/7/0/1/12": [12]}


def test_every_record_is_counted_from_the_blocks(sent: Sent) -> None:
    counts = counted(list(writer(2)([records(0, range(3))])))
    assert counts == BatchOutcomes(
        read=9,
        records=9,
        written=3,
        duplicates=6,
        dead_letters=0,
        blocks=2,
        bytes=3,
        sized=3,
        sized_bytes=3,
        written_by_table=[3],
    )
    assert list(sent.values()) == [[0, 1], [2]]


def test_a_block_is_one_insert_for_each_table_that_it_has_rows_for(sent: Sent) -> None:
    """The rows of the first table have the token that they have without further tables."""
    batch = records(0, range(6))
    rows = [{"table": table, "values": bytes([n])} for n, table in enumerate((0, 1, 0, 2, 2, 2))]
    row = pa.array(rows, pa.struct([("table", pa.int32()), ("values", pa.binary())]))
    batch = batch.set_column(3, pa.field("row", row.type), row)
    tables = tuple(BatchTable("d", name, "MergeTree", (("n", "UInt8"),), "") for name in ("t", "a", "b"))
    counts = counted(list(replace(writer(4), tables=tables)([batch])))
    assert sent == {"p/i/7/0/0/0": [0, 2], "p/i/7/0/0/0/to/d.a": [1], "p/i/7/0/0/0/to/d.b": [3],
                    "p/i/7/0/0/4/to/d.b": [4, 5]}  # fmt: skip
    assert (counts.written, counts.by_table(3), counts.blocks) == (6, [2, 1, 3], 4)


def block_of_all(size: int, count: int, tables: int) -> tuple[PartitionWriter, pa.Table]:
    """Return events that go to each of some tables, each row of so many bytes, and their writer."""
    rows = pa.StructArray.from_arrays(
        [pa.array([*range(tables)] * count, pa.int32()), pa.array([b"x" * size] * count * tables, pa.binary())],
        ["table", "values"],
    )
    row = pa.ListArray.from_arrays(pa.array(range(0, count * tables + 1, tables), pa.int32()), rows)
    block = pa.table({"offset": pa.array(range(count), pa.int64()), "row": row, "size": pa.array([size] * count)})
    names = (BatchTable("d", f"t{index}", "MergeTree", (("n", "UInt8"),), "") for index in range(tables))
    return replace(writer(4), tables=tuple(names)), block


def test_an_event_of_several_tables_is_a_row_in_each_of_them(sent: Sent) -> None:
    batch = records(0, range(4))
    kind = pa.list_(pa.struct([("table", pa.int32()), ("values", pa.binary())]))
    of_tables = [(0, 1), (1,), (), (0, 2)]
    rows = [[{"table": at, "values": bytes([10 * at + n])} for at in tables] for n, tables in enumerate(of_tables)]
    row = pa.array([found or None for found in rows], kind)
    batch = batch.set_column(3, pa.field("row", kind), row)
    tables = tuple(BatchTable("d", name, "MergeTree", (("n", "UInt8"),), "") for name in ("t", "a", "b"))
    counts = counted(list(replace(writer(4), tables=tables)([batch])))
    assert sent == {"p/i/7/0/0/0": [0, 3], "p/i/7/0/0/0/to/d.a": [10, 11], "p/i/7/0/0/0/to/d.b": [23]}
    assert (counts.written, counts.by_table(3), counts.copies) == (5, [2, 2, 1], 2)


def test_rows_of_many_tables_are_not_copied_for_each_other_table() -> None:
    """The rows of this block, once for each table and once more for each, would be more than an array can have."""
    found, block = block_of_all(1_050, 33_000, 8)
    rows = found.rows_of(7, block)
    assert (rows.num_rows, rows.column("row").type) == (33_000, pa.binary())


@pytest.mark.usefixtures("sent")
def test_a_row_is_as_old_as_its_record_when_the_insert_is_answered() -> None:
    # Their timestamps are 2, 3, ... 9 s ago, and one is of a producer that sends nanoseconds.
    batch = records(0, range(2, 11))
    timestamps = [*batch.column("timestamp").to_pylist()[:-1], time.time_ns()]
    ages = measured(list(writer(4)([batch.set_column(8, "timestamp", pa.array(timestamps, pa.int64()))]))).event_to_row
    assert ages.count == 9
    by_bound = dict(zip(ages.bounds, ages.counts, strict=False))
    assert (by_bound[0.05], by_bound[2.5], by_bound[5.0], by_bound[10.0]) == (1, 1, 2, 5)


@pytest.mark.usefixtures("sent")
def test_the_age_of_a_joined_row_is_not_measured() -> None:
    batch = records(0, range(3))
    unknown = batch.set_column(8, "timestamp", pa.nulls(3, pa.int64()))
    assert measured(list(writer(2)([unknown]))).event_to_row.count == 0


def test_what_is_not_stored_is_counted_and_belongs_to_no_block(sent: Sent) -> None:
    batch = records(0, range(6))
    row, dropped = batch.column("row").to_pylist(), [None, "filtered", "late", None, "filtered", None]
    kept = [value if why is None else None for value, why in zip(row, dropped, strict=True)]
    batch = batch.set_column(3, "row", pa.array(kept, batch.schema.field("row").type))
    batch = batch.set_column(6, "drop_reason", pa.array(dropped, pa.string()))
    batch = batch.set_column(7, "duplicates", pa.array([0] * 6, pa.int64()))
    counts = counted(list(writer(2)([batch.slice(0, 2), batch.slice(2)])))
    assert counts == BatchOutcomes(
        read=6,
        records=6,
        written=3,
        filtered=2,
        late=1,
        blocks=2,
        bytes=3,
        sized=6,
        sized_bytes=6,
        written_by_table=[3],
    )
    assert sent == {"p/i/7/0/0/0": [0, 3], "p/i/7/0/0/5": [5]}


def test_rows_that_are_in_the_table_are_counted_and_not_sent(sent: Sent) -> None:
    found = replace(writer(2), already_written=frozenset({(0, 0, 0), (0, 0, 2), (0, 1, 1), (1, 0, 1)}))
    counts = counted(list(found([records(0, range(4))])))
    assert counts == BatchOutcomes(
        read=12, records=12, written=4, duplicates=8, blocks=2, bytes=4, sized=4, sized_bytes=4, written_by_table=[4]
    )
    assert sent == {"p/i/7/0/0/0": [1], "p/i/7/0/0/2": [3]}


def test_events_of_one_record_are_told_apart_and_records_are_counted_by_their_own_rows(sent: Sent) -> None:
    """Three events of the record 0, of which one is in the table, one of the record 1, and a row for each record."""
    batch = records(0, range(6)).set_column(2, "offset", pa.array([0, 0, 0, 0, 1, 1], pa.int64()))
    row = [None if number in (0, 4) else bytes([number]) for number in range(6)]
    batch = batch.set_column(3, "row", pa.array(row, pa.binary()))
    # Those of the records 0 and 1 have the bytes of their events, also of the duplicates.
    batch = batch.set_column(4, "size", pa.array([10, 2, 2, 2, 2, 2], pa.int32()))
    dropped = ["record" if value is None else None for value in row]
    batch = batch.set_column(6, "drop_reason", pa.array(dropped, pa.string()))
    batch = batch.set_column(7, "duplicates", pa.array([0, 2, 0, 0, 0, 0], pa.int64()))
    batch = batch.append_column("item", pa.array([-2, 0, 1, 2, -2, 0], pa.int32()))
    of_events = replace(writer(2), counter=ItemCounter(), already_written=frozenset({(0, 0, 0, 1)}))
    counts = counted(list(of_events([batch])))
    assert counts == BatchOutcomes(
        read=6, records=2, written=4, duplicates=2, blocks=2, bytes=8, sized=2, sized_bytes=12, written_by_table=[4]
    )
    assert sent == {"p/i/7/0/0/0/0": [1], "p/i/7/0/0/0/2": [3, 5]}


def test_a_new_worker_waits_for_a_server_that_restarts(monkeypatch: pytest.MonkeyPatch) -> None:
    opened, answers = object(), iter([ClickHouseUnreachable("restarts"), ClickHouseUnreachable("restarts")])

    def connect(_connection: ClickHouseConnection) -> object:
        for answer in answers:
            raise answer
        return opened

    monkeypatch.setattr(client, "connect", connect)
    monkeypatch.setattr(client, "RETRY_INTERVAL", 0.0)
    # One that no test has connected to in this process.
    connection = CONNECTION.model_copy(update={"database": str(uuid4())})
    assert partition_writer.worker_client(connection, 60.0, print) is opened


def batch_writer(folder: Path) -> BatchWriter:
    config = load_pipeline(Path("pipelines/sms_status.yaml"), {})
    identity = CheckpointIdentity(
        checkpoint_id=str(uuid4()), token_prefix="i", pipeline_id="p", topics=("t",), table="d.t", rows_before=0,
        created_at=0, shuffle_partitions=1, state="",
    )  # fmt: skip
    watch: Any = SimpleNamespace(client=None, read=None)
    table = Table("d", "t", "MergeTree", "", {}, 0, ttl=False)
    checkpoint = Checkpoint(folder)
    claim = claim_checkpoint(checkpoint.storage, EPOCH)
    return BatchWriter(config, [table], checkpoint, identity, [watch], 0, EPOCH, claim)


def batch_plan(offsets: OffsetRanges) -> BatchPlan:
    return BatchPlan(
        batch_id=0, batch_time_ms=1, offsets=offsets, definition="d", types={}, table="", dead_letters_expire_at=0,
        rows=1, bytes=1,
    )  # fmt: skip


def test_a_batch_that_spark_would_read_at_other_offsets_than_it_was_begun_with_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if all else fits, its blocks would hold other rows under the same tokens."""
    monkeypatch.setattr(module, "fits", lambda *_: True)
    batches, stages = batch_writer(tmp_path), PlannedBatch(cast("Any", SimpleNamespace(sparkSession=None)))
    batches.checkpoint.record(batch_plan({"t": {0: (0, 2)}}))
    (tmp_path / "sources/0").mkdir(parents=True)
    (tmp_path / "sources/0/0").write_text('v1\n{"t":{"0":0}}')
    (tmp_path / "offsets").mkdir()
    for until, fits in ((2, True), (3, False)):
        (tmp_path / "offsets/0").write_text(f'v1\n{{"batchTimestampMs": 1}}\n{{"t": {{"0": {until}}}}}')
        with nullcontext() if fits else pytest.raises(CheckpointError, match="was started with other offsets"):
            batches.plan_batch(stages, 0)


def test_no_batch_begins_once_a_newer_driver_has_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches, stages = batch_writer(tmp_path), PlannedBatch(cast("Any", SimpleNamespace(sparkSession=None)))
    claim_checkpoint(LocalStorage(tmp_path), replace(EPOCH, number=2))
    # The last look is too old.
    monkeypatch.setattr(writer_claim, "steady_seconds", lambda: steady_seconds() + CHECK_VALID_SECONDS)
    with pytest.raises(Fenced, match="another driver uses the checkpoint"):
        batches.write(stages, 0)


def test_every_insert_of_a_batch_asks_for_a_newer_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Applies to rows, dead letters and the ledger row."""
    asked: dict[str, Epoch | None] = {}
    monkeypatch.setattr(partition_writer, "worker_client", lambda *_: None)
    monkeypatch.setattr(Inserter, "insert", lambda self, _database, table, *_: asked.update({table: self.fence}))
    raw = pa.struct(
        [f for f in RAW_SCHEMA if f.name not in {"partition", "offset", "item", "only_table", "passed_dedup"}]
    )
    dead_letter = {"topic": "t", "value": b"x", "stage": "decode", "reason": "no JSON"}
    batch = records(0, range(2))
    refused = pa.array([None, dead_letter], raw)
    rows = pa.array([b"\1", None], batch.schema.field("row").type)
    list(writer(10)([batch.set_column(3, "row", rows).set_column(5, "dead_letter", refused)]))
    plan = batch_plan({"t": {0: (0, 2)}})
    batch_writer(tmp_path).write_ledger_row(plan, BatchOutcomes(), Measures(), repeated=False)
    assert asked == {"t": EPOCH, "glassflow_dead_letters": EPOCH, "glassflow_ledger": EPOCH}


@pytest.mark.parametrize(("task", "stage", "again"), [(0, 0, False), (1, 0, True), (0, 1, True)])
def test_a_task_whose_stage_spark_begins_anew_repeats_though_it_is_on_its_first_attempt(
    task: int, stage: int, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_writer.TaskContext, "get", lambda: SimpleNamespace(attemptNumber=lambda: task))
    assert partition_writer.is_retried(pa.table({"stage_attempt": pa.array([stage], pa.int32())})) is again
