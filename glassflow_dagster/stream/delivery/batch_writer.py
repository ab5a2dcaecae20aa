"""Writes a micro-batch: plan, blocks, ledger row. Spark calls it once per batch, and commits the batch afterwards.

The guarantee rests on this order: the plan is on disk before the first block is sent; all blocks and dead letters are
in ClickHouse before the ledger row; the ledger row is written before Spark commits. After a crash in between, the batch
is repeated with the same plan, and ClickHouse drops the blocks that it already has.
"""

import logging
import math
import threading
from collections.abc import Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, fields, replace
from datetime import timedelta
from functools import reduce
from operator import add
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.runtime.metrics.measures import Measures
from glassflow_dagster.stores.bookkeeping.fencing import Epoch
from glassflow_dagster.stores.bookkeeping.ledger import LedgerRow, insert_ledger_row
from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes, Totals
from glassflow_dagster.stores.bookkeeping.schema import NEVER
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.interrupted import MutatedRows
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.queries import retry
from glassflow_dagster.stores.clickhouse.table import Table, filled_columns
from glassflow_dagster.stores.clickhouse.tables.target_watch import TargetState, TargetWatch
from glassflow_dagster.stream.batch_query import BatchStages, PlannedBatch
from glassflow_dagster.stream.checkpoint.checkpoint import (
    BatchPlan,
    Checkpoint,
    CheckpointError,
    CheckpointIdentity,
    OffsetRanges,
    TablePlan,
)
from glassflow_dagster.stream.checkpoint.writer_claim import WriterClaim
from glassflow_dagster.stream.delivery.batch_bound import BatchBound
from glassflow_dagster.stream.delivery.batch_clock import BatchClock, Reading
from glassflow_dagster.stream.delivery.compaction import count_records, require_same_records
from glassflow_dagster.stream.delivery.dead_letter_rows import DeadLetterBatch
from glassflow_dagster.stream.delivery.partition_writer import (
    MAX_BLOCK_BYTES,
    PARTITION_RESULT_SCHEMA,
    BatchTable,
    PartitionWriter,
)
from glassflow_dagster.stream.delivery.read_ahead import ReadAhead
from glassflow_dagster.stream.delivery.token_room import TokenShare
from glassflow_dagster.stream.spark.session import SHUFFLE_PARTITIONS
from glassflow_dagster.stream.stages.batch_pacer import BatchPacer
from glassflow_dagster.stream.stages.columns import NO_EVENT_TIME, STAGE_ATTEMPT
from glassflow_dagster.stream.stages.record_counter import (
    BatchOutcomes,
    ItemCounter,
    JoinCounter,
    RecordCounter,
    SingleTopicCounter,
    total,
)
from glassflow_dagster.stream.stages.source import max_tokens_per_block

_logger = logging.getLogger(__name__)


class StopBetweenBatches(Exception):
    """Raised at the start of a batch, before any of it is written, to end the query between two batches."""


@dataclass(frozen=True)
class WriterProgress:
    """The progress of a writer: its last batch, totals and measures of its batches, and whether it writes one now.

    read: the records of the last batch.
    interval_ms: from the time of the batch before it to its own; 0 for the first.
    """

    last: BatchPlan | None = None
    read: int = 0
    interval_ms: int = 0
    totals: Totals = field(default_factory=Totals)
    measures: Measures = field(default_factory=Measures)
    is_writing: bool = False


@dataclass
class BatchWriter:
    """Writes the batches of one query: the function that Spark's `foreachBatch` calls, or a `BatchQuery` (`write`).

    tables: the sink's, in the order of `Sink.by_table`.
    targets: a watch of each.
    pacer: None unless the query joins.
    clock: checks the batches' times; None without windows.
    bound: limits the records of the next batch.
    compacted: the compacted topics among the sources'.
    waiting: the number of left events of a join that wait for a match at the start.
    only_batch: the only batch to write; the query ends after it.
    partitioned: whether an insert may need a token for each of several partitions.
    claim: the driver's, of the checkpoint.
    mutated_rows: see `Inserter`, for a batch that is repeated.
    """

    config: PipelineConfig
    tables: Sequence[Table]
    checkpoint: Checkpoint
    identity: CheckpointIdentity
    targets: Sequence[TargetWatch]
    retry_seconds: float
    epoch: Epoch
    claim: WriterClaim
    _: KW_ONLY
    pacer: BatchPacer | None = None
    clock: BatchClock | None = None
    bound: BatchBound | None = None
    compacted: frozenset[str] = frozenset()
    waiting: InitVar[int] = 0
    only_batch: int | None = None
    partitioned: bool = False
    mutated_rows: MutatedRows | None = None
    # Locked while a batch is written.
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _has_refused_batch: bool = field(default=False, init=False)
    _progress: WriterProgress = field(init=False)
    _target_reads: ReadAhead[list[TargetState]] = field(init=False)

    def __post_init__(self, waiting: int) -> None:
        """Begin with no batch written, and the left events that wait."""
        self._progress = WriterProgress(totals=Totals(waiting=waiting))
        self._target_reads = ReadAhead(
            self._read_targets, lambda: retry(self._read_targets, self.retry_seconds, _logger.warning)
        )

    def _read_targets(self) -> list[TargetState]:
        return [target.read() for target in self.targets]

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one micro-batch of a query that Spark plans; see `write`. Columns in: those of `build_join_query`."""
        self.write(PlannedBatch(batch), batch_id)

    def write(self, stages: BatchStages, batch_id: int) -> None:
        """Write one micro-batch: plan it, insert its blocks, then its ledger row, which is what makes it done.

        stages: their result has the columns of `build_query` or `build_join_query`. Raises `StopBetweenBatches`, before
        anything is written, when the driver is stopping, or when the query runs only to finish another batch
        (`only_batch`). The sizes of this batch's records limit the next one (`bound`); its events advance a join's
        watermark (`pacer`).
        """
        with self._lock:
            if self._stopping.is_set() or self.only_batch not in (None, batch_id):
                self._has_refused_batch = True
                raise StopBetweenBatches
            plan, repeated = self.plan_batch(stages, batch_id)
            outcomes, measures = self.write_blocks(stages, plan, repeated=repeated)
            totals = self.write_ledger_row(plan, outcomes, measures, repeated=repeated)
            if self.bound:
                self.bound.update(outcomes.sized, outcomes.sized_bytes, outcomes.read)
            before = self._progress
            interval_ms = plan.batch_time_ms - before.last.batch_time_ms if before.last else 0
            # Replaced as a whole, as other threads read it while batches run.
            self._progress = WriterProgress(plan, outcomes.read, interval_ms, totals, before.measures + measures)
            if self.pacer:
                self.pacer.after_batch(outcomes)
            self._target_reads.expect(interval_ms)

    def progress(self) -> WriterProgress:
        """Return the writer's progress without waiting; any thread may call it."""
        return replace(self._progress, is_writing=self._lock.locked())

    def stop(self) -> BatchPlan | None:
        """Refuse further batches, wait for the one that is being written, and return the last one's plan, if any."""
        self._stopping.set()
        with self._lock:
            return self._progress.last

    @property
    def has_refused_batch(self) -> bool:
        """Whether the writer has refused a batch, which ends the query between two batches and is no failure."""
        return self._has_refused_batch

    def plan_batch(self, stages: BatchStages, batch_id: int) -> tuple[BatchPlan, bool]:
        """Return the batch's plan, and whether an earlier run made it.

        A new batch gets a plan, which is on disk before its first block is sent. A batch that already has one is
        repeated: some of its blocks may be in the table, so definition, offsets and records must be those of the plan.
        Raises `CheckpointError` where they are not, `ClockMoved`, and `Fenced` where a newer driver has claimed the
        checkpoint.
        """
        self.claim.require_newest_cached()
        offsets = self.checkpoint.offset_ranges(batch_id)
        reading = Reading.now()
        plan = self.checkpoint.plan(batch_id)
        repeated = plan is not None
        if plan is None:
            plan = self._make_plan(stages, batch_id, offsets, reading)
            self.checkpoint.record(plan)
        elif plan.offsets != offsets or not fits(plan, self.config, self.tables):
            raise CheckpointError(
                f"{self.checkpoint.location}: batch {batch_id} was started with other offsets or another definition; "
                "restore the checkpoint and the definition that belong together"
            )
        else:
            require_same_records(plan, count_records(stages.spark, self.config, offsets, self.compacted))
        if self.clock:
            self.clock.follow(plan, reading)
        return plan, repeated

    def _make_plan(self, stages: BatchStages, batch_id: int, offsets: OffsetRanges, reading: Reading) -> BatchPlan:
        """Return the plan of a new batch; raise `ClockMoved` where the batch's time is not plausible.

        The columns and constraints of the tables, and ClickHouse's clock, are as the server had them when it was asked,
        at most `MAX_AGE_SECONDS` ago.
        offsets: those of Spark's log.
        reading: this machine's clocks when the batch began.
        """
        batch_time_ms = self.checkpoint.batch_time_ms(batch_id)
        targets = self._target_reads.result()
        # The server and its clock are the same for all tables; those that were asked for first are older.
        own, *_ = targets
        if self.clock:
            self.clock.require_plausible(batch_time_ms, reading, own.lead_ms)
        types = mapped_types(self.config, self.tables)
        table_plans = [TablePlan(types=t, table=target.definition) for t, target in zip(types, targets, strict=True)]
        return BatchPlan(
            batch_id=batch_id,
            batch_time_ms=batch_time_ms,
            offsets=offsets,
            definition=self.config.digest,
            types=table_plans[0].types,
            table=table_plans[0].table,
            further_tables=tuple(table_plans[1:]),
            dead_letters_expire_at=expiry(self.config.dead_letters.retention, batch_time_ms),
            rows=self.config.sink.max_batch_size,
            bytes=MAX_BLOCK_BYTES,
            max_event_times=self.pacer.max_event_times if self.pacer else None,
            server=own.run,
            records=count_records(stages.spark, self.config, offsets, self.compacted),
            inline=self._may_inline(stages, offsets),
            written=tuple(dict.fromkeys(name for target in targets for name in target.identities)),
            identities={name: identity for target in targets for name, identity in target.identities.items()},
            server_lead_ms=own.lead_ms,
        )

    def write_blocks(self, stages: BatchStages, plan: BatchPlan, *, repeated: bool) -> tuple[BatchOutcomes, Measures]:
        """Write the batch's blocks and dead letters from Spark's workers; return its records' outcomes, and measures.

        repeated: an earlier run has begun to write this batch, so that some of its blocks may be in ClickHouse already.
        The workers also get what a block's insert is checked against: the run of the ClickHouse server that the plan
        names (a token from another run is not trusted), this driver's epoch (no newer driver may have started), and
        the stage attempt (a task that Spark starts again repeats blocks, too).
        """
        writer = replace(self._partition_writer(plan, repeated=repeated), token_share=self._token_share(stages, plan))
        rows = stages.inline(plan.batch_id, plan.batch_time_ms) if plan.inline else None
        results = _write_as_job(writer, stages, plan) if rows is None else _write_inline(writer, rows)
        measures = reduce(add, (Measures.model_validate_json(row.pop("measures")) for row in results), Measures())
        return total(BatchOutcomes(**row) for row in results), measures

    def _partition_writer(self, plan: BatchPlan, *, repeated: bool) -> PartitionWriter:
        """Return the writer of the batch's partitions. repeated: see `write_blocks`."""
        names = [sink.table_name for sink in self.config.sink.by_table]
        return PartitionWriter(
            counter=_counter_of(self.config),
            connection=self.config.sink.connection_params,
            tables=tuple(
                BatchTable(
                    *of_table.sink.full_table,
                    engine=table.engine,
                    columns=tuple(
                        (m.column_name, table.columns[m.column_name].text) for m in filled_columns(of_table, table)
                    ),
                    ddl=table_plan.table,
                    has_position=has_position(of_table),
                )
                for of_table, table, table_plan in zip(self.config.by_table, self.tables, plan.tables, strict=True)
            ),
            source=self.config.source,
            topics=self.config.topics,
            dead_letters=self._dead_letter_batch(plan),
            limits=plan.limits,
            retry_seconds=self.retry_seconds,
            begin=plan.begin,
            repeated=repeated,
            mutated_rows=self.mutated_rows if repeated else None,
            epoch=self.epoch,
            cluster=self.config.sink.cluster,
            delivery=self.config.sink.delivery,
            to_all_tables=self.config.sink.match == "all",
            already_written=self.checkpoint.already_written(plan.batch_id, self.config.topics, names),
            compare_values=self._may_be_written(plan),
        )

    def _token_share(self, stages: BatchStages, plan: BatchPlan) -> TokenShare | None:
        """Return a task's share of the tokens that a table keeps; None where the batch's records limit its blocks."""
        if not self.config.source.signal:
            return None
        if plan.inline:
            tasks = 1
        elif self.config.dedup:
            tasks = int(str(stages.spark.conf.get(SHUFFLE_PARTITIONS)))
        else:
            # One for each partition of a topic that has records.
            tasks = sum(first < until for spans in plan.offsets.values() for first, until in spans.values())
        return TokenShare(
            tasks=max(1, tasks),
            tokens_per_insert=max_tokens_per_block(self.config, partitioned=self.partitioned),
            may_enlarge=self.config.sink.deduplication_window != "require",
        )

    def _may_inline(self, stages: BatchStages, offsets: OffsetRanges) -> bool:
        """Return whether the batch is small enough to be written inline, and the query can do so."""
        records = sum(until - first for spans in offsets.values() for first, until in spans.values())
        return stages.may_inline(records, self.bound.record_bytes if self.bound else 0)

    def _may_be_written(self, plan: BatchPlan) -> bool:
        """Return whether a batch of an earlier checkpoint may have written rows of this batch, with other tokens.

        That is so where this batch begins before the offsets up to which that one may have read.
        """
        may_be_written_until = self.identity.look_until
        return any(
            first < may_be_written_until.get(topic, {}).get(partition, 0)
            for topic, partitions in plan.offsets.items()
            for partition, (first, _) in partitions.items()
        )

    def _dead_letter_batch(self, plan: BatchPlan) -> DeadLetterBatch:
        """Return the values that all dead letters of the batch share."""
        return DeadLetterBatch(
            pipeline_id=self.config.pipeline_id,
            checkpoint_id=self.identity.checkpoint_id,
            token_prefix=self.identity.token_prefix,
            batch_id=self.identity.batches_before + plan.batch_id,
            batch_time_ms=plan.batch_time_ms,
            replay_topic=self.config.replay_topic,
            expires_at=plan.dead_letters_expire_at,
        )

    def write_ledger_row(
        self, plan: BatchPlan, outcomes: BatchOutcomes, measures: Measures, *, repeated: bool
    ) -> Totals:
        """Write the batch's ledger row; return the totals of this writer's batches, this one included.

        measures: the batch's, to which this insert is added.
        """
        before = self._progress.totals
        # The fields of `BatchOutcomes` that the ledger has.
        ledger_outcomes = Outcomes(**{f.name: getattr(outcomes, f.name) for f in fields(Outcomes)})
        # For `waiting` the workers count the change; the ledger has how many left events wait after the batch.
        ledger_outcomes.waiting += before.waiting
        row = LedgerRow(
            pipeline_id=self.config.pipeline_id,
            checkpoint_id=self.identity.checkpoint_id,
            batch_id=self.identity.batches_before + plan.batch_id,
            batch_time_ms=plan.batch_time_ms,
            definition=plan.definition,
            offsets=plan.offsets,
            rows_before=self.identity.rows_before,
            outcomes=ledger_outcomes,
            blocks=outcomes.blocks,
            bytes=outcomes.bytes,
            dead_letters_expire_at=plan.dead_letters_expire_at,
            **self._by_table(outcomes),
            left_max_event_time=_none_without_event(outcomes.left_max_event_time),
            right_max_event_time=_none_without_event(outcomes.right_max_event_time),
        )
        token = Token.of_ledger_row(self.config.pipeline_id, self.identity.token_prefix, plan.batch_id)
        database = self.config.sink.connection_params.database
        inserter = Inserter(
            self.targets[0].client,
            self.retry_seconds,
            _logger.warning,
            self.epoch,
            plan.begin,
            repeated=repeated,
            measures=measures,
        )
        insert_ledger_row(inserter, database, row, token)
        return before + Totals.of(ledger_outcomes)

    def _by_table(self, outcomes: BatchOutcomes) -> dict[str, dict[str, int]]:
        """Return the fields of a ledger row that only a sink with several tables has."""
        if len(self.tables) == 1:
            return {}
        names = [sink.table_name for sink in self.config.sink.by_table]
        known = self.identity.rows_before_by_table
        return {
            "written_by_table": dict(zip(names, outcomes.by_table(len(names)), strict=True)),
            "rows_before_by_table": {name: known[name] for name in names},
        }


def _none_without_event(max_event_time: int) -> int | None:
    """Return a newest event time as the ledger has it: None of a source without an event."""
    return None if max_event_time == NO_EVENT_TIME else max_event_time


def _counter_of(config: PipelineConfig) -> RecordCounter:
    """Return the counter of a pipeline's query."""
    if config.join:
        return JoinCounter()
    return ItemCounter() if config.source.signal else SingleTopicCounter()


def _write_as_job(writer: PartitionWriter, stages: BatchStages, plan: BatchPlan) -> list[dict[str, Any]]:
    """Write the batch by a Spark job; return what the writer returns for each partition.

    A batch that was planned to be written inline, by one writer, is written by one here, too, so that its blocks are
    the same.
    """
    events = stages.job(plan.batch_id, plan.batch_time_ms)
    together = events.repartition(1) if plan.inline else events
    # A fixed order, so that blocks do not depend on the order in which a shuffle fetched its rows. The offset comes
    # first: Spark first compares eight bytes of the first column, which is enough where they differ, as offsets do.
    other_columns = (name for name in writer.counter.position_columns if name != "offset")
    ordered = together.sortWithinPartitions("offset", *other_columns)
    with_attempt = ordered.withColumn(STAGE_ATTEMPT, F.call_function("glassflow_stage_attempt"))
    return [row.asDict() for row in with_attempt.mapInArrow(writer, PARTITION_RESULT_SCHEMA).collect()]


def _write_inline(writer: PartitionWriter, rows: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Write a batch's rows in this process; return what the writer returns, one entry."""
    here = replace(writer, report=_logger.warning)
    return [row for result in here(rows) for row in result.to_pylist()]


def expiry(retention: timedelta | None, batch_time_ms: int) -> int:
    """Return when a batch's dead letters may be deleted, in seconds since 1970; `NEVER` without a retention.

    `NEVER` is also the latest time that the column can have.
    """
    if retention is None:
        return NEVER
    return min(NEVER, math.ceil(batch_time_ms / 1000 + retention.total_seconds()))


def mapped_types(config: PipelineConfig, tables: Sequence[Table]) -> list[dict[str, str]]:
    """Return the mapped columns' ClickHouse types of each table: column name -> type, as the table has it.

    tables: the sink's, in the order of `Sink.by_table`.
    """
    return [
        {m.column_name: str(table.columns[m.column_name].type) for m in sink.mapping}
        for sink, table in zip(config.sink.by_table, tables, strict=True)
    ]


def has_position(config: PipelineConfig) -> bool:
    """Return True when the mapping gives each row its record's position in Kafka, so that no two rows are equal.

    Not of joined rows, which have none, nor of records that are many events. The topic counts only where there are
    several: a record of the replay topic equals one that was no row before.
    """
    has_several_topics = len(config.source_topics) > 1 or config.source.topic_pattern is not None
    needed = {"_partition", "_offset"} | ({"_topic"} if has_several_topics else set())
    mapped = {mapping.name for mapping in config.sink.mapping}
    return config.join is None and not config.source.signal and needed <= mapped


def fits(plan: BatchPlan, config: PipelineConfig, tables: Sequence[Table]) -> bool:
    """Return whether a definition and its tables still produce the rows and blocks that a plan was made for."""
    if plan.definition != config.digest:
        return False
    return [planned.types for planned in plan.tables] == mapped_types(config, tables)
