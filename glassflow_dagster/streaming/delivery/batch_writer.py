"""One micro-batch: plan, write, account. Spark calls it once a batch, and closes the batch when it returns.

The order is the guarantee: the plan is on disk before the first block is sent, all blocks and dead letters are in
ClickHouse before the ledger's row, and that row is there before Spark commits. A crash anywhere between repeats the
batch with the same plan, and ClickHouse drops what it has.
"""

import logging
import math
import threading
from dataclasses import KW_ONLY, InitVar, dataclass, field, fields, replace
from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.bookkeeping.fencing import Epoch
from glassflow_dagster.bookkeeping.ledger import LedgerRow, Outcomes, insert_ledger_row
from glassflow_dagster.bookkeeping.schema import NEVER
from glassflow_dagster.clickhouse.inserts.insert import Inserter
from glassflow_dagster.clickhouse.inserts.tokens import Token
from glassflow_dagster.clickhouse.queries import retry
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.clickhouse.target.target_watch import TargetWatch
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.streaming.checkpoint.checkpoint import BatchPlan, Checkpoint, CheckpointError, CheckpointIdentity
from glassflow_dagster.streaming.delivery.batch_bound import BatchBound
from glassflow_dagster.streaming.delivery.batch_clock import BatchClock, Reading
from glassflow_dagster.streaming.delivery.compaction import count_records, require_same_records
from glassflow_dagster.streaming.delivery.dead_letter_rows import DeadLetterBatch
from glassflow_dagster.streaming.delivery.partition_writer import MAX_BLOCK_BYTES, PartitionWriter
from glassflow_dagster.streaming.delivery.totals import Totals
from glassflow_dagster.streaming.stages.batch_pacer import BatchPacer
from glassflow_dagster.streaming.stages.record_counter import (
    COUNTS_SCHEMA,
    Counts,
    JoinCounter,
    SingleTopicCounter,
    total,
)

_logger = logging.getLogger(__name__)


class StopBetweenBatches(Exception):
    """Raised at the start of a batch, before anything of it is written, when the query is to end."""


@dataclass(frozen=True)
class WriterProgress:
    """How far a writer is: the last batch that it wrote, the totals of its batches, and whether it writes one now."""

    last: BatchPlan | None = None
    totals: Totals = field(default_factory=Totals)
    is_writing: bool = False


@dataclass
class BatchWriter:
    """Writes the batches of one query.

    pace: of a query that joins, None for others; clock: of one with windows. bound: what its source may take.
    compacted: the topics that are. waiting: the left events of a join that waited before. only_batch: the one that is
    written, where the query is to end behind it.
    """

    config: PipelineConfig
    table: Table
    checkpoint: Checkpoint
    identity: CheckpointIdentity
    target: TargetWatch
    retry_seconds: float
    epoch: Epoch
    _: KW_ONLY
    pace: BatchPacer | None = None
    clock: BatchClock | None = None
    bound: BatchBound | None = None
    compacted: frozenset[str] = frozenset()
    waiting: InitVar[int] = 0
    only_batch: int | None = None
    # Held while a batch runs.
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _stopping: threading.Event = field(default_factory=threading.Event, init=False)
    _has_refused_batch: bool = field(default=False, init=False)
    _progress: WriterProgress = field(init=False)

    def __post_init__(self, waiting: int) -> None:
        """Begin with no batch written."""
        self._progress = WriterProgress(totals=Totals(waiting=waiting))

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one batch. Columns in: those of `build_query`."""
        with self._lock:
            if self._stopping.is_set() or self.only_batch not in (None, batch_id):
                self._has_refused_batch = True
                raise StopBetweenBatches
            plan, repeated = self._plan(batch.sparkSession, batch_id)
            counts = self._write(batch, plan, repeated=repeated)
            totals = self._account(plan, counts, repeated=repeated)
            if self.bound:
                self.bound.saw(counts.sized, counts.sized_bytes)
            # At once: other threads read it while batches run.
            self._progress = WriterProgress(plan, totals)
            if self.pace:
                self.pace.after_batch(counts)

    def progress(self) -> WriterProgress:
        """Return how far the batches are; waits for nothing."""
        return replace(self._progress, is_writing=self._lock.locked())

    def stop(self) -> BatchPlan | None:
        """Refuse every further batch, wait for the one that is written now, and return the last one's plan."""
        self._stopping.set()
        with self._lock:
            return self._progress.last

    @property
    def has_refused_batch(self) -> bool:
        """Whether the query ended because a batch was refused: between two batches, which is no failure."""
        return self._has_refused_batch

    def _plan(self, spark: SparkSession, batch_id: int) -> tuple[BatchPlan, bool]:
        """Give the batch's plan, and whether an earlier run made it: then some of the batch may be written."""
        offsets = self.checkpoint.offset_ranges(batch_id)
        reading = Reading.now()
        plan = self.checkpoint.plan(batch_id)
        repeated = plan is not None
        if plan is None:
            batch_time_ms = self.checkpoint.batch_time_ms(batch_id)
            target = retry(self.target.read, self.retry_seconds, _logger.warning)
            if self.clock:
                self.clock.require_plausible(batch_time_ms, reading, target.lead_ms)
            plan = BatchPlan(
                batch_id=batch_id,
                batch_time_ms=batch_time_ms,
                offsets=offsets,
                definition=self.config.digest,
                types=mapped_types(self.config, self.table),
                table=target.definition,
                dead_letters_expire_at=expiry(self.config.dead_letters.retention, batch_time_ms),
                rows=self.config.sink.max_batch_size,
                bytes=MAX_BLOCK_BYTES,
                leads=self.pace.max_event_times if self.pace else None,
                server=target.run,
                records=count_records(spark, self.config, offsets, self.compacted),
                written=target.written,
                server_lead_ms=target.lead_ms,
            )
            self.checkpoint.record(plan)
        elif plan.offsets != offsets or not fits(plan, self.config, self.table):
            raise CheckpointError(
                f"{self.checkpoint.folder}: batch {batch_id} was begun with other offsets or another definition; "
                "restore the checkpoint and the definition that belong together"
            )
        else:
            require_same_records(plan, count_records(spark, self.config, offsets, self.compacted))
        if self.clock:
            self.clock.follow(plan, reading)
        return plan, repeated

    def _write(self, batch: DataFrame, plan: BatchPlan, *, repeated: bool) -> Counts:
        database, table = self.config.sink.full_table
        accounts = JoinCounter() if self.config.join else SingleTopicCounter()
        writer = PartitionWriter(
            accounts=accounts,
            connection=self.config.sink.connection_params,
            database=database,
            table=table,
            types={name: column.type for name, column in self.table.columns.items()},
            source=self.config.source,
            topics=self.config.topics,
            letters=self._letters(plan),
            limits=plan.limits,
            retry_seconds=self.retry_seconds,
            definition=plan.table,
            begun=plan.server,
            repeated=repeated,
            epoch=self.epoch,
            cluster=self.config.sink.cluster,
            engine=self.table.engine,
            delivery=self.config.sink.delivery,
            there=self.checkpoint.already_written(plan.batch_id),
            look=self._may_be_written(plan),
        )
        # A fixed order, so that blocks do not depend on the order in which a shuffle fetched its rows. Offsets first:
        # Spark compares eight bytes of the first column before it takes two rows apart, and offsets mostly differ.
        ordered = batch.sortWithinPartitions("offset", *(name for name in accounts.place if name != "offset"))
        attempted = ordered.withColumn("stage_attempt", F.call_function("glassflow_stage_attempt"))
        partitions = attempted.mapInArrow(writer, COUNTS_SCHEMA).collect()
        return total(Counts(**row.asDict()) for row in partitions)

    def _may_be_written(self, plan: BatchPlan) -> bool:
        """Whether a batch of an earlier checkpoint may have written rows of this one, under other tokens."""
        looked = self.identity.look_until
        return any(
            first < looked.get(topic, {}).get(partition, 0)
            for topic, partitions in plan.offsets.items()
            for partition, (first, _) in partitions.items()
        )

    def _letters(self, plan: BatchPlan) -> DeadLetterBatch:
        return DeadLetterBatch(
            pipeline_id=self.config.pipeline_id,
            checkpoint_id=self.identity.checkpoint_id,
            token_prefix=self.identity.token_prefix,
            batch_id=self.identity.batches_before + plan.batch_id,
            batch_time_ms=plan.batch_time_ms,
            replay_topic=self.config.replay_topic,
            expires_at=plan.dead_letters_expire_at,
        )

    def _account(self, plan: BatchPlan, counts: Counts, *, repeated: bool) -> Totals:
        """Write the batch's row into the ledger; return the totals with it."""
        before = self._progress.totals
        outcomes = Outcomes(**{f.name: getattr(counts, f.name) for f in fields(Outcomes)})
        outcomes.waiting += before.waiting
        row = LedgerRow(
            pipeline_id=self.config.pipeline_id,
            checkpoint_id=self.identity.checkpoint_id,
            batch_id=self.identity.batches_before + plan.batch_id,
            batch_time_ms=plan.batch_time_ms,
            definition=plan.definition,
            offsets=plan.offsets,
            rows_before=self.identity.rows_before,
            outcomes=outcomes,
            blocks=counts.blocks,
            bytes=counts.bytes,
            dead_letters_expire_at=plan.dead_letters_expire_at,
        )
        token = Token.of_ledger_row(self.config.pipeline_id, self.identity.token_prefix, plan.batch_id)
        database = self.config.sink.connection_params.database
        inserter = Inserter(
            self.target.client, self.retry_seconds, _logger.warning, self.epoch, plan.server, repeated=repeated
        )
        insert_ledger_row(inserter, database, row, token)
        return before + Totals.of(outcomes)


def expiry(retention: timedelta | None, batch_time_ms: int) -> int:
    """Give the second since 1970 at which a batch's dead letters may go."""
    if retention is None:
        return NEVER
    return min(NEVER, math.ceil(batch_time_ms / 1000 + retention.total_seconds()))


def mapped_types(config: PipelineConfig, table: Table) -> dict[str, str]:
    """Give the target's own types of the mapped columns, as texts."""
    return {m.column_name: str(table.columns[m.column_name].type) for m in config.sink.mapping}


def fits(plan: BatchPlan, config: PipelineConfig, table: Table) -> bool:
    """Whether a definition and a table give the rows and blocks that a plan was made for."""
    return plan.definition == config.digest and plan.types == mapped_types(config, table)
