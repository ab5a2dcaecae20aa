"""Starts the streaming queries of one run: reads the topics, applies the stages, writes the batches."""

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from glassflow_dagster.definition.model.join import JoinConfig
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.driver.query.running_query import RunningQuery
from glassflow_dagster.driver.start.open_checkpoint import OpenCheckpoint, batch_clock
from glassflow_dagster.driver.start.outdated_batch import OutdatedBatch, find_outdated_batch, find_tables_of
from glassflow_dagster.driver.start.prepare import Prepared, secured
from glassflow_dagster.stores.bookkeeping.ledger import read_arrivals, read_max_event_times, read_outcomes
from glassflow_dagster.stores.bookkeeping.outcomes import Totals
from glassflow_dagster.stores.bookkeeping.windows import Windows
from glassflow_dagster.stores.clickhouse.table import Table
from glassflow_dagster.stores.clickhouse.tables.target_watch import TargetWatch
from glassflow_dagster.stores.clickhouse.tables.token_window import may_be_partitioned
from glassflow_dagster.stores.kafka.replay_topic import REPLAY_PARTITION, find_replay_topic
from glassflow_dagster.stores.kafka.start_offsets import FIRST, NEXT, starting_offsets
from glassflow_dagster.stores.kafka.topics import offsets
from glassflow_dagster.stream.batch_query import BatchQuery
from glassflow_dagster.stream.delivery.batch_bound import BatchBound
from glassflow_dagster.stream.delivery.batch_writer import BatchWriter
from glassflow_dagster.stream.inline_or_job import FIRST_RECORDS, uses_watermark
from glassflow_dagster.stream.query import build_join_query, build_query
from glassflow_dagster.stream.spark.session import SPARK_SCRATCH, runs_locally
from glassflow_dagster.stream.stages.batch_pacer import BatchPacer
from glassflow_dagster.stream.stages.clock_source_in_scala import ClockSource
from glassflow_dagster.stream.stages.columns import NO_EVENT_TIME
from glassflow_dagster.stream.stages.decode.registry import declare_registries, registries_of, require_schemas
from glassflow_dagster.stream.stages.source import (
    MAX_BATCH_RECORDS,
    Subscription,
    batch_limits,
    kafka_stream,
    max_rows,
    read_records,
    task_records,
)


@dataclass(frozen=True)
class QueryStarter:
    """Starts the queries of one run on its open checkpoint. bound: knows the mean size of the next records."""

    run: RunContext
    prepared: Prepared
    opened: OpenCheckpoint
    spark: SparkSession
    bound: BatchBound

    def finish_outdated_batch(self) -> Totals:
        """Finish the open batch with its old definition, if that was edited since; return the batch's totals."""
        batch = find_outdated_batch(self.run.config, self.prepared.tables, self.opened.checkpoint)
        if batch is None:
            return Totals()
        self.run.report(f"finishing batch {batch.batch_id} with the definition it was started with")
        return self._finish(batch.batch_id, batch.config, batch.tables(self._tables_of(batch)))

    def finish_open_batch(self) -> Totals:
        """Finish the open batch, if there is one, as it was begun; return its totals."""
        pending = self.opened.checkpoint.pending_plan()
        if pending is None:
            return Totals()
        if find_outdated_batch(self.run.config, self.prepared.tables, self.opened.checkpoint):
            return self.finish_outdated_batch()
        return self._finish(pending.batch_id, self.run.config, self.prepared.tables)

    def _finish(self, batch_id: int, config: PipelineConfig, tables: Sequence[Table]) -> Totals:
        """Write an open batch, and no other; return its totals."""
        running = self._start(config, tables, only_batch=batch_id)
        running.wait_until_committed(batch_id)
        running.end()
        return running.written().totals

    def _tables_of(self, batch: OutdatedBatch) -> tuple[Table, ...]:
        """Return the tables of another definition's sink, which may have routes that the current one has not."""
        client = self.prepared.client
        tables = self.run.retry(lambda: find_tables_of(client, batch))
        return secured(self.run, client, batch.config, tables)

    def start(self) -> RunningQuery:
        """Store the definition in the checkpoint, and start the pipeline's query with it.

        A batch that was begun with an edited definition must have been finished (`finish_outdated_batch`), for which
        the definition is stored. The query ends by itself only in a run until caught up.
        """
        checkpoint, config = self.opened.checkpoint, self.run.config
        self._begin_further_topics()
        checkpoint.keep_definition(config)
        checkpoint.keep_topics(config.topics)
        return self._start(config, self.prepared.tables)

    def _begin_further_topics(self) -> None:
        """Store the first offsets of topics that the checkpoint does not know yet.

        Spark would take a first offset other than 0, as retention leaves it, for a loss of records.
        """
        checkpoint, config = self.opened.checkpoint, self.run.config
        if checkpoint.last_begun != checkpoint.next_batch - 1:
            return  # a new checkpoint has start offsets, and an open batch its own
        known = checkpoint.next_offsets()
        further = {
            topic: {partition: found.low for partition, found in offsets(config.connection, topic).items()}
            for topic in config.source_topics
            if topic not in known
        }
        if further:
            checkpoint.set_next_offsets({**known, **further})

    def _start(self, config: PipelineConfig, tables: Sequence[Table], only_batch: int | None = None) -> RunningQuery:
        """Start a query of a definition. only_batch: the one batch that it writes; None for all that come."""
        before = self._ledger_before()
        # A query of one batch is stopped after it; with availableNow it would read the topics to their end.
        until_caught_up = self.run.options.until_caught_up and only_batch is None
        subscription = self._subscription(config)
        partitioned = self._is_partitioned(tables)
        records = self._read(config, subscription, partitioned=partitioned, until_caught_up=until_caught_up)
        events, pacer = self._build(read_records(records, subscription.topics), config, tables, before.waiting)
        writer = BatchWriter(
            config,
            tables,
            self.opened.checkpoint,
            self.opened.identity,
            self._watches(config, tables),
            self.run.options.timeout_seconds,
            self.opened.epoch,
            self.opened.claim,
            pacer=pacer,
            clock=batch_clock(self.run, config, self.opened.checkpoint),
            bound=self.bound,
            compacted=self.prepared.compacted_topics,
            waiting=before.waiting,
            only_batch=only_batch,
            partitioned=partitioned,
            mutated_rows=self.run.options.mutated_rows,
        )
        if config.source.signal:
            # Until a batch has told how many events its records have.
            self.bound.begin_with(FIRST_RECORDS)
        if uses_watermark(config):
            stages, query = None, self._start_planned(events, writer, config, until_caught_up=until_caught_up)
        else:
            stages = BatchQuery(
                records,
                events,
                config.pipeline_id,
                self.opened.checkpoint.spark_location,
                self.run.folder / SPARK_SCRATCH,
            )
            if stages.may_inline(FIRST_RECORDS, self.bound.record_bytes):
                self.bound.begin_with(FIRST_RECORDS)
            query = stages.start(partial(writer.write, stages), until_caught_up=until_caught_up)
        client, more = self.prepared.client, self.run.more_memory
        return RunningQuery(config, client, self.opened, before, writer, pacer, query, stages, more)

    def _watches(self, config: PipelineConfig, tables: Sequence[Table]) -> list[TargetWatch]:
        """Return a watch of each of the sink's tables."""
        client, warn = self.prepared.client, self.run.warn
        window_notes = Windows(client, config.sink.connection_params.database)
        return [
            TargetWatch(client, of_table, table, window_notes, warn)
            for of_table, table in zip(config.by_table, tables, strict=True)
        ]

    def _start_planned(
        self, events: DataFrame, writer: BatchWriter, config: PipelineConfig, *, until_caught_up: bool
    ) -> StreamingQuery:
        """Start a query that Spark plans with all of its stages, as it must where they use its watermark."""
        stream = events.writeStream.foreachBatch(writer).queryName(config.pipeline_id).outputMode("append")
        stream = stream.option("checkpointLocation", self.opened.checkpoint.location)
        return (stream.trigger(availableNow=True) if until_caught_up else stream).start()

    def _is_partitioned(self, tables: Sequence[Table]) -> bool:
        """Return whether one of the tables, or of their views' targets, may be partitioned."""
        client = self.prepared.client
        return self.run.retry(lambda: any(may_be_partitioned(client, table.database, table.name) for table in tables))

    def _read(
        self, config: PipelineConfig, subscription: Subscription, *, partitioned: bool, until_caught_up: bool
    ) -> DataFrame:
        """Return the topics' records as a stream, in batches of the definition's size; columns of `kafka_stream`.

        The stream finds the further limit (`bound`) by its name. The limits are lower for a partitioned table, as a
        block then needs an insert token for each partition.
        """
        if config.source.signal:
            self.bound.limit_events(min(MAX_BATCH_RECORDS, max_rows(config, partitioned=partitioned)))
        limits = batch_limits(config, self.bound.record_bytes, partitioned=partitioned)
        limits = replace(limits, task_records=task_records(config, limits.max_records, self._cores()))
        if config.source.signal:
            # Spark waits for a number of records, which is fixed when the query starts.
            limits = replace(limits, start_records=self.bound.records_of(limits.start_records))
        return kafka_stream(
            self.spark, config.source, subscription, limits, self.bound.query, until_caught_up=until_caught_up
        )

    def _cores(self) -> int:
        """Return the number of tasks that run at once.

        The executors of a cluster may not be there yet; the partitions of the state were chosen for them.
        """
        found = self.spark.sparkContext.defaultParallelism
        is_alone = runs_locally(self.spark)
        return found if is_alone else max(found, self.opened.identity.shuffle_partitions)

    def _build(
        self, records: DataFrame, config: PipelineConfig, tables: Sequence[Table], waiting: int
    ) -> tuple[DataFrame, BatchPacer | None]:
        """Apply the stages: return the stream that the writer takes, and the pacer (None unless the pipeline joins).

        waiting: the number of left events that wait for a match.
        """
        checkpoint_id = self.opened.identity.checkpoint_id
        require_schemas(self.spark, config)
        schemas = self.opened.checkpoint.schemas
        # The current credentials: a definition that the checkpoint kept has none.
        registries = registries_of(config, self.run.config)
        declare_registries(self.spark, config, registries, self.run.options.timeout_seconds, schemas)
        if config.join is None:
            return build_query(records, config, tables, checkpoint_id), None
        # The stream that triggers batches for waiting events while the topics are silent. Its name must be new: an
        # earlier query of this process on the same checkpoint would share the clock of the old name.
        clock_source = ClockSource(self.spark, f"{checkpoint_id}/{uuid.uuid4()}")
        event_times = self._max_event_times() if config.join.clock == "event" else (NO_EVENT_TIME, NO_EVENT_TIME)
        arrivals = self._arrivals(config.join) if waiting else []
        pacer = BatchPacer(config.join, clock_source, waiting, event_times, arrivals)
        return build_join_query(records, clock_source.read(), config, tables, checkpoint_id), pacer

    def _arrivals(self, join: JoinConfig) -> list[float]:
        """Return when batches have read events that may still wait, seconds since 1970."""
        after = time.time() - join.left_source.time_window.total_seconds()
        return self.run.retry(lambda: read_arrivals(self.prepared.client, *self._ledger_scope, after))

    def _max_event_times(self) -> list[int]:
        """Return the newest event time of the left and the right source in all committed batches.

        In microseconds since 1970; `NO_EVENT_TIME` for a source without an event.
        """
        in_ledger = self.run.retry(
            lambda: read_max_event_times(self.prepared.client, *self._ledger_scope, self._committed_batches)
        )
        # Batches of an earlier version have none in the ledger. What a plan has is that of the batches before its own.
        last_plan = self.opened.checkpoint.last_committed()  # None before the first batch
        in_plan = (last_plan and last_plan.max_event_times) or (NO_EVENT_TIME, NO_EVENT_TIME)
        return [
            max(planned, NO_EVENT_TIME if found is None else found)
            for planned, found in zip(in_plan, in_ledger, strict=True)
        ]

    def _subscription(self, config: PipelineConfig) -> Subscription:
        """Return the topics to read (sources, and the replay topic if it exists), and where to start.

        Start offsets are for a new checkpoint only: its own if it continues after a loss, else the definition's.
        """
        identity = self.opened.identity
        topics = config.topics if find_replay_topic(config) else config.source_topics
        if not self.opened.checkpoint.is_new:
            return Subscription(topics, starting={})
        if identity.starting:
            # Topics that are read since then begin at their first records.
            first = {
                topic: identity.starting.get(topic) or dict.fromkeys(offsets(config.connection, topic), FIRST)
                for topic in topics
            }
            return Subscription(topics, first)
        starting = {t: o for index in range(len(config.inputs)) for t, o in starting_offsets(config, index).items()}
        # Dead letters that were replayed before this checkpoint was created were meant for an earlier one.
        starting[config.replay_topic] = {REPLAY_PARTITION: NEXT}
        return Subscription(topics, {topic: starting[topic] for topic in topics})

    def _ledger_before(self) -> Totals:
        """Return the totals of all batches that this checkpoint has committed, from the ledger."""
        outcomes = self.run.retry(
            lambda: read_outcomes(self.prepared.client, *self._ledger_scope, self._committed_batches.stop)
        )
        before = Totals.of(outcomes)
        # Before the first batch of a new state no event waits, whatever an earlier checkpoint's batches counted.
        return before if self._committed_batches else before.model_copy(update={"waiting": 0})

    @property
    def _ledger_scope(self) -> tuple[str, str, str]:
        """The database of this checkpoint's ledger rows, and their pipeline and checkpoint."""
        config = self.run.config
        return config.sink.connection_params.database, config.pipeline_id, self.opened.identity.checkpoint_id

    @property
    def _committed_batches(self) -> range:
        """The ids in the ledger of the batches that the state has committed.

        Where it continues after a loss, the ledger also numbers the batches before.
        """
        first = self.opened.identity.batches_before
        return range(first, first + self.opened.checkpoint.next_batch)
