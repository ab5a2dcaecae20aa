"""One micro-batch: plan, write, account. Spark calls it once a batch, and closes the batch when it returns.

The order is the guarantee: the plan is on disk before the first block is sent, all blocks and dead letters are in
ClickHouse before the ledger's row, and that row is there before Spark commits. A crash anywhere between repeats the
batch with the same plan, and ClickHouse drops what it has.
"""

import logging
import math
import threading
from dataclasses import dataclass, field, fields
from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that Spark's own documentation uses

from glassflow_dagster.clickhouse.ddl import NEVER
from glassflow_dagster.clickhouse.epochs import Epoch
from glassflow_dagster.clickhouse.inserts import Inserter
from glassflow_dagster.clickhouse.ledger import LedgerRow, Outcomes, insert_ledger_row
from glassflow_dagster.clickhouse.queries import persist
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.clickhouse.target_watch import TargetWatch
from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.streaming.batch_bound import BatchBound
from glassflow_dagster.streaming.batch_clock import BatchClock, Reading
from glassflow_dagster.streaming.checkpoint import BatchPlan, Checkpoint, CheckpointError, Incarnation
from glassflow_dagster.streaming.compaction import count_records, require_same_records
from glassflow_dagster.streaming.counts import COUNTS_SCHEMA, Counts, JoinAccounts, RecordAccounts, total
from glassflow_dagster.streaming.heartbeat import Totals
from glassflow_dagster.streaming.join_clock import Pace
from glassflow_dagster.streaming.letters import LetterBook
from glassflow_dagster.streaming.sink import MAX_BLOCK_BYTES, PartitionWriter

_logger = logging.getLogger(__name__)


class StopBetweenBatches(Exception):  # noqa: N818 - no error: the way to end a query without a half-done batch
    """Raised at the start of a batch, before anything of it is written, when the query is to end."""


@dataclass
class BatchWriter:
    """Writes the batches of one query. `lock` is held while a batch runs.

    pace: of a query that joins, None for others; clock: of one with windows. bound: what its source may take.
    compacted: the topics that are.
    """

    config: PipelineConfig
    table: Table
    checkpoint: Checkpoint
    incarnation: Incarnation
    target: TargetWatch
    retry_seconds: float
    epoch: Epoch
    pace: Pace | None = None
    clock: BatchClock | None = None
    bound: BatchBound | None = None
    compacted: frozenset[str] = frozenset()
    lock: threading.Lock = field(default_factory=threading.Lock)
    stopping: threading.Event = field(default_factory=threading.Event)
    only_batch: int | None = None
    ended_between_batches: bool = False
    last: BatchPlan | None = None
    totals: Totals = field(default_factory=Totals)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one batch. Columns in: those of `build_query`."""
        with self.lock:
            if self.stopping.is_set() or self.only_batch not in (None, batch_id):
                self.ended_between_batches = True
                raise StopBetweenBatches
            plan, repeated = self._plan(batch.sparkSession, batch_id)
            counts = self._write(batch, plan, repeated=repeated)
            self._account(plan, counts, repeated=repeated)
            if self.bound:
                self.bound.saw(counts.sized, counts.sized_bytes)
            self.last = plan
            if self.pace:
                self.pace.after_batch(counts)

    def _plan(self, spark: SparkSession, batch_id: int) -> tuple[BatchPlan, bool]:
        """Give the batch's plan, and whether an earlier run made it: then some of the batch may be written."""
        offsets = self.checkpoint.offset_ranges(batch_id)
        reading = Reading.now()
        plan = self.checkpoint.plan(batch_id)
        repeated = plan is not None
        if plan is None:
            batch_time_ms = self.checkpoint.batch_time_ms(batch_id)
            target = persist(self.target.look, self.retry_seconds, _logger.warning)
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
                leads=self.pace.leads if self.pace else None,
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
        accounts = JoinAccounts() if self.config.join else RecordAccounts()
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
            there=self.checkpoint.rows_there(plan.batch_id),
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
        looked = self.incarnation.look_until
        return any(
            first < looked.get(topic, {}).get(partition, 0)
            for topic, partitions in plan.offsets.items()
            for partition, (first, _) in partitions.items()
        )

    def _letters(self, plan: BatchPlan) -> LetterBook:
        return LetterBook(
            pipeline_id=self.config.pipeline_id,
            incarnation=self.incarnation.incarnation,
            tokens=self.incarnation.tokens,
            batch_id=self.incarnation.batches_before + plan.batch_id,
            batch_time_ms=plan.batch_time_ms,
            replay_topic=self.config.replay_topic,
            expires_at=plan.dead_letters_expire_at,
        )

    def _account(self, plan: BatchPlan, counts: Counts, *, repeated: bool) -> None:
        outcomes = Outcomes(**{f.name: getattr(counts, f.name) for f in fields(Outcomes)})
        outcomes.waiting += self.totals.waiting
        row = LedgerRow(
            pipeline_id=self.config.pipeline_id,
            incarnation=self.incarnation.incarnation,
            batch_id=self.incarnation.batches_before + plan.batch_id,
            batch_time_ms=plan.batch_time_ms,
            definition=plan.definition,
            offsets=plan.offsets,
            rows_before=self.incarnation.rows_before,
            outcomes=outcomes,
            blocks=counts.blocks,
            bytes=counts.bytes,
            dead_letters_expire_at=plan.dead_letters_expire_at,
        )
        token = f"{self.config.pipeline_id}/{self.incarnation.tokens}/{plan.batch_id}/ledger"
        database = self.config.sink.connection_params.database
        inserter = Inserter(
            self.target.client, self.retry_seconds, _logger.warning, self.epoch, plan.server, repeated=repeated
        )
        insert_ledger_row(inserter, database, row, token)
        self.totals += Totals.of(outcomes)


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
