"""The driver: the process that one pipeline's query lives in.

`run_pipeline` is what `glassflow-dagster run` does in the foreground, and what `python -m
glassflow_dagster.streaming.driver` does detached. It reaches the servers, prepares the table, starts Spark, and then
writes a heartbeat every second until it is told to stop, all is read, or something fails.
"""

import argparse
import os
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from glassflow_dagster.clickhouse.client import wait_for_clickhouse
from glassflow_dagster.clickhouse.ddl import ensure_bookkeeping
from glassflow_dagster.clickhouse.epochs import Epoch, Superseded, begin_epoch
from glassflow_dagster.clickhouse.ledger import read_outcomes
from glassflow_dagster.clickhouse.queries import persist
from glassflow_dagster.clickhouse.tables import Table, count_rows
from glassflow_dagster.clickhouse.target import prepare_target, secure_target
from glassflow_dagster.clickhouse.target_watch import TargetWatch
from glassflow_dagster.clickhouse.token_window import writes_partitions
from glassflow_dagster.config.load import load_pipeline, report_rewriting, warnings
from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.config.spark import spark_settings
from glassflow_dagster.config.types import parse_column_type
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.kafka import kerberos
from glassflow_dagster.kafka.errors import TopicForbidden, TopicMissing
from glassflow_dagster.kafka.replay_topic import REPLAY_PARTITION, ensure_replay_topic, find_replay_topic
from glassflow_dagster.kafka.starting import NEXT, starting_offsets
from glassflow_dagster.kafka.topics import cleanup_of, commit_offsets, wait_for_brokers
from glassflow_dagster.streaming.backlog import Backlog
from glassflow_dagster.streaming.batch import BatchWriter, fits
from glassflow_dagster.streaming.batch_bound import BatchBound, sample_sizes
from glassflow_dagster.streaming.batch_clock import BatchClock, tolerance_of
from glassflow_dagster.streaming.checkpoint import BatchPlan, Checkpoint, CheckpointError, Incarnation, state_shape
from glassflow_dagster.streaming.continuity import require_known_tables, require_ledger, require_topics, wait_for_topics
from glassflow_dagster.streaming.counts import NO_LEAD
from glassflow_dagster.streaming.failures import explain_failure
from glassflow_dagster.streaming.first_start import require_alone, require_empty, require_nothing_written
from glassflow_dagster.streaming.heartbeat import (
    DriverState,
    Totals,
    make_pipeline_folder,
    pipeline_folder,
)
from glassflow_dagster.streaming.join_clock import Pace
from glassflow_dagster.streaming.lock import PipelineLock
from glassflow_dagster.streaming.process import give_up
from glassflow_dagster.streaming.progress import place, progress
from glassflow_dagster.streaming.progress_watch import ProgressWatch
from glassflow_dagster.streaming.pulse import Pulse, pulse
from glassflow_dagster.streaming.query import build_join_query, build_query
from glassflow_dagster.streaming.session import (
    DRIVER_JAVA_OPTIONS,
    SHUFFLE_PARTITIONS,
    SPARK_LOG,
    SPARK_SCRATCH,
    WRITE_BUFFER,
    java,
    start_session,
    stop_session,
    write_buffer_megabytes,
)
from glassflow_dagster.streaming.source import Subscription, batch_limits, read_topics
from glassflow_dagster.streaming.stopping import Stopped, StopRequest, stop_signals
from glassflow_dagster.streaming.ticks import Ticks
from glassflow_dagster.streaming.workers import start_workers

T = TypeVar("T")

Report = Callable[[str], None]

# A line, and an offset commit for lag tools, at most this often: small batches come several a second.
_REPORT_SECONDS = 5.0
# Between a batch's last write and Spark's commit lie milliseconds; past this the query is ended all the same, and
# the batch is replayed from its plan at the next start.
_COMMIT_SECONDS = 30.0


# Makes a checkpoint for a pipeline that has lost its own, of which there is nothing at the time.
Rebuild = Callable[[SparkSession, PipelineConfig, Table, Checkpoint, Report], None]
# Lets a checkpoint go on without what is lost.
AcceptLoss = Callable[[Client, PipelineConfig, Table, Checkpoint, Report], None]


@dataclass(frozen=True)
class RunOptions:
    """How a pipeline is run.

    rebuild: what to do when its checkpoint is lost or damaged, where something is to be. accept: what to do about
    records or a checkpoint that are lost for good, where the pipeline is to go on without them. start_over: whether the
    topics are read from their beginning again, into tables that are empty. accept_clock: whether the machine's clock is
    believed whatever earlier batches say.
    """

    state: Path
    until_caught_up: bool = False
    create_table: bool = False
    timeout_seconds: float = 300.0
    spark: Mapping[str, str] = field(default_factory=dict)
    rebuild: Rebuild | None = None
    accept: AcceptLoss | None = None
    start_over: bool = False
    accept_clock: bool = False


def run_pipeline(config: PipelineConfig, options: RunOptions, report: Report) -> Totals:
    """Run a pipeline until it is stopped or has caught up; gives the totals of the batches that this run committed.

    Raises `GlassflowError` when something outside is not as it must be.
    """
    folder = _make_folder(pipeline_folder(options.state.resolve(), config.pipeline_id))
    try:
        with PipelineLock(folder) as lock, pulse(folder, config) as heart, stop_signals() as stop:
            return _Run(config, options, folder, lock, heart, stop, report).run()
    except OSError as error:
        raise GlassflowError(
            f"{error.filename or folder}: {error.strerror or error}; make room, or mend the disk or the rights, then "
            "start the pipeline again"
        ) from error


@dataclass
class _Run:
    config: PipelineConfig
    options: RunOptions
    folder: Path
    lock: PipelineLock
    heart: Pulse
    stop: StopRequest
    report: Report
    # Open once the server answers; its pool of connections replaces those that an outage has cut.
    client: Client = field(init=False)
    compacted: frozenset[str] = frozenset()
    # The mean size of records, as far as it was looked at.
    record_bytes: int = 0

    def run(self) -> Totals:
        try:
            table = self._prepare()
            self.stop.be_patient()
        except Stopped:
            return Totals()
        try:
            return self._run_on_spark(table)
        except (Py4JError, ConnectionError) as error:
            raise GlassflowError(
                f"Spark's JVM ended ({type(error).__name__}): killed, or out of memory, where a larger "
                f"spark.driver.memory helps; {self.folder / SPARK_LOG} may say more; start the pipeline again, the "
                "batch will be replayed"
            ) from error
        finally:
            self._end_jvm()

    def _run_on_spark(self, table: Table) -> Totals:
        """Start a session, stream until the end, whatever it is, and stop the session."""
        with ThreadPoolExecutor(1) as beside:
            sizes = beside.submit(self._sample_sizes)
            spark = self._start_spark()
        try:
            self._bound_batches(spark, *sizes.result())
            return self._stream(spark, table)
        except (PySparkException, Py4JJavaError) as error:
            raise GlassflowError(explain_failure(error)) from error
        finally:
            stop_session(spark)

    def _end_jvm(self) -> None:
        """End Spark's JVM, which has stopped or never came up, and remove its working files.

        Left to itself it may never end: on its way out it waits for RocksDB's threads, and one of them that has
        something to log just then waits for it. It would keep its memory, and this process's output open.
        """
        self.lock.end_started()
        shutil.rmtree(self.folder / SPARK_SCRATCH, ignore_errors=True)

    def _say(self, text: str) -> None:
        self.heart.say(DriverState.STARTING, text)
        self.report(text)

    def _prepare(self) -> Table:
        _require_settings(self.options.spark)
        checkpoint = Checkpoint(self.folder / "checkpoint")
        if self.options.rebuild:
            self._set_damaged_aside(checkpoint)
        if self.options.start_over:
            self._set_aside(checkpoint)
        if not self.options.accept:
            # Before anything is asked of the servers.
            checkpoint.inspect()
            checkpoint.follow_move()
        for warning in warnings(self.config):
            self._warn(warning)
        connection = self.config.sink.connection_params
        self.client = wait_for_clickhouse(connection, self.options.timeout_seconds, self._say)
        table = self._persist(lambda: prepare_target(self.client, self.config, create=self.options.create_table))
        books = (connection.database, self.config.sink.bookkeeping_engine, self.config.sink.cluster)
        self._persist(lambda: ensure_bookkeeping(self.client, *books))
        if not self.options.accept:
            self._persist(lambda: require_known_tables(self.client, self.config, checkpoint.pending_plan()))
        if self.options.start_over:
            self._persist(lambda: require_empty(self.client, table))
        table = self._persist(lambda: secure_target(self.client, self.config, table, self._warn))
        wait_for_brokers(self.config.connection, self.options.timeout_seconds, self._say)
        # A query that is to end cannot wait for ever; one that is to stay can wait for its topic.
        patience = self.options.timeout_seconds if self.options.until_caught_up else None
        wait_for_topics(self.config, checkpoint, patience, self._say, self._say_waiting)
        try:
            ensure_replay_topic(self.config)
        except (TopicMissing, TopicForbidden) as problem:
            self._warn(f"dead letters cannot be sent again: {problem}")
        if self.options.accept:
            self.options.accept(self.client, self.config, table, checkpoint, self.report)
        require_topics(self.config, checkpoint)
        self._look_at_cleanup()
        return table

    def _look_at_cleanup(self) -> None:
        found = cleanup_of(self.config.connection, [source.topic for source in self.config.inputs])
        self.compacted = found.compacted
        for topic in sorted(found.unknown):
            self._warn(
                f"whether topic {topic} is compacted cannot be seen; if it is, a batch that is repeated after a crash "
                "may double rows; grant DESCRIBE_CONFIGS on it"
            )

    def _set_damaged_aside(self, checkpoint: Checkpoint) -> None:
        """Move a damaged checkpoint out of the way; a whole one stays, and is used."""
        try:
            checkpoint.inspect()
        except CheckpointError as problem:
            self._warn(str(problem))
            self._set_aside(checkpoint)
            return
        if not checkpoint.is_new:
            self.report("the checkpoint is whole, so nothing is made anew")

    def _set_aside(self, checkpoint: Checkpoint) -> None:
        if checkpoint.folder.exists():
            aside = self.folder / time.strftime("checkpoint.aside-%Y%m%d-%H%M%S")
            checkpoint.folder.rename(aside)
            self._warn(f"the checkpoint is in {aside} now; remove that when the pipeline runs again")

    def _warn(self, text: str) -> None:
        self.report(f"warning: {text}")

    def _persist(self, ask: Callable[[], T]) -> T:
        """Ask ClickHouse, also over a moment in which it does not answer."""
        return persist(ask, self.options.timeout_seconds, self.report)

    def _say_waiting(self, text: str) -> None:
        self.heart.say(DriverState.WAITING, text)
        self.report(text)

    def _start_spark(self) -> SparkSession:
        self._say("starting Spark ...")
        # Spark's own reaction to Ctrl-C would cancel the running batch; it is put in place when the context starts.
        handler = signal.getsignal(signal.SIGINT)
        # A driver that was killed leaves its state stores' working copies behind.
        shutil.rmtree(self.folder / SPARK_SCRATCH, ignore_errors=True)
        name, settings = f"glassflow {self.config.pipeline_id}", self._spark_settings()
        with self.lock.marking():
            spark = start_session(name, self.folder, settings, self.report)
        signal.signal(signal.SIGINT, handler)
        self.lock.remember_jvm(int(java(spark).ProcessHandle.current().pid()))
        if SHUFFLE_PARTITIONS not in settings:
            spark.conf.set(SHUFFLE_PARTITIONS, str(spark.sparkContext.defaultParallelism))
        start_workers(spark)
        return spark

    def _spark_settings(self) -> dict[str, str]:
        """What the definition means for Spark; settings of the command line go before."""
        settings = {}
        resources, options = self.config.resources, kerberos.java_options(self.config.connection)
        if resources and resources.cores and resources.cores > (os.cpu_count() or 1):
            settings["spark.master"] = f"local[{resources.cores}]"
        if resources and resources.state_partitions:
            settings[SHUFFLE_PARTITIONS] = str(resources.state_partitions)
        if options:
            settings |= {DRIVER_JAVA_OPTIONS: options, "spark.executor.extraJavaOptions": options}
        return {**settings, **self.config.spark, **self.options.spark}

    def _sample_sizes(self) -> tuple[int, int]:
        """Look at some of the records that come next; gives how many, and their bytes, both 0 where it cannot be done.

        Whatever is wrong, the query finds out, and says so.
        """
        with suppress(GlassflowError, OSError):
            last = Checkpoint(self.folder / "checkpoint").last_committed()
            if last is None:
                starts = {s.topic: starting_offsets(self.config, index) for index, s in enumerate(self.config.inputs)}
            else:
                starts = {s.topic: _untils(last, s.topic) for s in self.config.inputs}
            return sample_sizes(self.config.source, starts)
        return 0, 0

    def _bound_batches(self, spark: SparkSession, records: int, size: int) -> None:
        self.record_bytes = size // max(1, records)
        BatchBound(spark, self.config.pipeline_id).saw(records, size)

    def _stream(self, spark: SparkSession, table: Table) -> Totals:
        checkpoint = Checkpoint(self.folder / "checkpoint")
        incarnation = self._incarnation(checkpoint, table, spark)
        self._fit_state(spark, incarnation.shuffle_partitions)
        epoch = self._begin_epoch(incarnation)
        if checkpoint.is_new and not self.options.start_over:
            self._persist(lambda: require_alone(self.client, self.config, table, epoch))
        # Not before: a driver that is older now may have written until here.
        self._persist(lambda: require_ledger(self.client, self.config, checkpoint, incarnation))
        checkpoint.forget_unplanned()
        totals = self._finish_pending(spark, table, checkpoint, incarnation, epoch)
        checkpoint.keep_definition(self.config)
        before = self._ledger_before(checkpoint, incarnation)
        writer = self._writer(self.config, table, checkpoint, incarnation, epoch, before)
        query = self._start_query(spark, self.config, table, writer, until_caught_up=self.options.until_caught_up)
        backlog = Backlog(spark.sparkContext.defaultParallelism, self.config.sink.max_batch_size)
        self.heart.say(DriverState.RUNNING)
        self.report(f"{self.config.pipeline_id} is running")
        jvm = int(java(spark).ProcessHandle.current().pid())
        with (
            ProgressWatch(self.config, writer, jvm, self.options.timeout_seconds, self.report) as watch,
            self.heart.watching(lambda: watch.stalled),
        ):
            self._watch(query, writer, before, backlog, watch)
        return totals + writer.totals

    def _fit_state(self, spark: SparkSession, partitions: int) -> None:
        """Set what goes by the partitions that the state was made with, whatever cores and settings there are now."""
        # The shards of keys go by it, too.
        spark.conf.set(SHUFFLE_PARTITIONS, str(partitions))
        if WRITE_BUFFER not in self._spark_settings():
            spark.conf.set(WRITE_BUFFER, str(write_buffer_megabytes(partitions)))

    def _ledger_before(self, checkpoint: Checkpoint, incarnation: Incarnation) -> Totals:
        """What the ledger says of all batches before those that this query will commit."""
        named = self._named(incarnation)
        number = incarnation.batches_before + checkpoint.next_batch
        before = Totals.of(self._persist(lambda: read_outcomes(self.client, *named, number)))
        # A state that was begun anew behind batches of another one has nobody waiting.
        return before if checkpoint.next_batch else before.model_copy(update={"waiting": 0})

    def _begin_epoch(self, incarnation: Incarnation) -> Epoch:
        named = self._named(incarnation)
        rows = self._persist(lambda: count_rows(self.client, *self.config.sink.full_table))
        return self._persist(lambda: begin_epoch(self.client, *named, str(self.folder), rows))

    def _named(self, incarnation: Incarnation) -> tuple[str, str, str]:
        """Database, pipeline id and incarnation: what the ledger and the epochs know a checkpoint by."""
        return self.config.sink.connection_params.database, self.config.pipeline_id, incarnation.incarnation

    def _incarnation(self, checkpoint: Checkpoint, table: Table, spark: SparkSession) -> Incarnation:
        name = f"{table.database}.{table.name}"
        found = checkpoint.incarnation()
        if found is None and self.options.rebuild:
            self._say("making the state anew ...")
            self.options.rebuild(spark, self.config, table, checkpoint, self._say)
            require_topics(self.config, checkpoint)
            found = checkpoint.incarnation()
        if found is None:
            if not self.options.start_over:
                self._persist(lambda: require_nothing_written(self.client, self.config, table))
            partitions = int(str(spark.conf.get(SHUFFLE_PARTITIONS)))
            return checkpoint.create(self.config, name, table.rows, partitions)
        if found.table != name:
            raise CheckpointError(
                f"{checkpoint.folder}: writes to {found.table}, but the definition says {name}; give the definition "
                "a new pipeline_id to fill another table from the beginning"
            )
        if found.topics != self.config.topics:
            reads, asked = (", ".join(topics[:-1]) for topics in (found.topics, self.config.topics))
            raise CheckpointError(
                f"{checkpoint.folder}: reads topic {reads}, but the definition says {asked}; "
                "take the edit back, or give the definition a new pipeline_id and table"
            )
        if found.state != state_shape(self.config):
            raise CheckpointError(
                f"{checkpoint.folder}: was built for {found.state}, but the definition says "
                f"{state_shape(self.config)}; take the edit back, or give the definition a new pipeline_id and table"
            )
        if not found.shuffle_partitions:
            found = found.model_copy(update={"shuffle_partitions": int(str(spark.conf.get(SHUFFLE_PARTITIONS)))})
            checkpoint.rename(found)
        return found

    def _finish_pending(
        self, spark: SparkSession, table: Table, checkpoint: Checkpoint, incarnation: Incarnation, epoch: Epoch
    ) -> Totals:
        """Finish a half-done batch by the definition and the types that it was begun with, if they are others now."""
        pending = checkpoint.pending_plan()
        if pending is None or fits(pending, self.config, table):
            return Totals()
        kept = checkpoint.kept_definition()
        old = _with_connections_of(self.config, kept) if kept else None
        if old is None or old.digest != pending.definition:
            raise CheckpointError(
                f"{checkpoint.folder}: batch {pending.batch_id} was begun with another definition, which is not kept; "
                "take the last edit of the definition back, run once, then edit again"
            )
        self.report(f"finishing batch {pending.batch_id} as it was begun")
        table = _with_types(table, pending.types)
        before = self._ledger_before(checkpoint, incarnation)
        writer = self._writer(old, table, checkpoint, incarnation, epoch, before)
        writer.only_batch = pending.batch_id
        query = self._start_query(spark, old, table, writer, until_caught_up=False)
        while query.isActive and not checkpoint.is_committed(pending.batch_id):
            _ended(query)
        self._end(query, writer)
        return writer.totals

    def _writer(  # noqa: PLR0913, PLR0917 - what a writer is made of
        self,
        config: PipelineConfig,
        table: Table,
        checkpoint: Checkpoint,
        incarnation: Incarnation,
        epoch: Epoch,
        before: Totals,
    ) -> BatchWriter:
        seconds = self.options.timeout_seconds
        target = TargetWatch(self.client, config, table, self._warn)
        writer = BatchWriter(config, table, checkpoint, incarnation, target, seconds, epoch)
        writer.totals = Totals(waiting=before.waiting)
        writer.compacted = self.compacted
        tolerance = tolerance_of(config)
        if tolerance is not None:
            last = checkpoint.last_committed()
            writer.clock = BatchClock(tolerance, last, self.options.accept_clock, self.report)
        return writer

    def _start_query(
        self, spark: SparkSession, config: PipelineConfig, table: Table, writer: BatchWriter, *, until_caught_up: bool
    ) -> StreamingQuery:
        partitioned = self._persist(lambda: writes_partitions(self.client, table.database, table.name))
        limits = batch_limits(config, self.record_bytes, partitioned=partitioned)
        subscription = self._subscription(writer.checkpoint, writer.incarnation)
        writer.bound = BatchBound(spark, config.pipeline_id)
        query = writer.bound.query
        records = read_topics(spark, config.source, subscription, limits, query, until_caught_up=until_caught_up)
        events = self._events(records, config, table, writer)
        stream = events.writeStream.foreachBatch(writer).queryName(config.pipeline_id)
        stream = stream.option("checkpointLocation", str(writer.checkpoint.folder)).outputMode("append")
        if until_caught_up:
            stream = stream.trigger(availableNow=True)
        return stream.start()

    def _events(self, records: DataFrame, config: PipelineConfig, table: Table, writer: BatchWriter) -> DataFrame:
        if config.join is None:
            return build_query(records, config, table, writer.incarnation.incarnation)
        # A query of its own, also where a half-done batch was finished before it.
        ticks = Ticks(records.sparkSession, f"{writer.incarnation.incarnation}/{uuid.uuid4()}")
        last = writer.checkpoint.last_committed()
        leads = (last and last.leads) or (NO_LEAD, NO_LEAD)
        writer.pace = Pace(config.join, ticks, writer.totals.waiting, leads)
        return build_join_query(records, ticks.read(), config, table, writer.incarnation.incarnation)

    def _subscription(self, checkpoint: Checkpoint, incarnation: Incarnation) -> Subscription:
        *sources, replays = self.config.topics
        topics = self.config.topics if find_replay_topic(self.config) else tuple(sources)
        if not checkpoint.is_new:
            return Subscription(topics, {})
        if incarnation.starting:
            return Subscription(topics, {topic: incarnation.starting[topic] for topic in topics})
        starting = {
            source.topic: starting_offsets(self.config, index) for index, source in enumerate(self.config.inputs)
        }
        # What was sent again before this checkpoint was for an earlier one.
        starting[replays] = {REPLAY_PARTITION: NEXT}
        return Subscription(topics, {topic: starting[topic] for topic in topics})

    def _watch(
        self, query: StreamingQuery, writer: BatchWriter, before: Totals, backlog: Backlog, watch: ProgressWatch
    ) -> None:
        """Wait for the end of the query, showing progress and telling Kafka how far it came."""
        reported, report_again = None, 0.0
        self.heart.carry({"incarnation": writer.incarnation.incarnation, **place(writer.checkpoint.last_committed())})
        while True:
            with watch.asking():
                if _ended(query):
                    break
                found = progress(query, writer, before)
                if last := query.lastProgress:
                    watch.took(last.batchId, last.batchDuration / 1000)
            offsets = found.get("offsets", {})
            # Not those of the replays' topic, which a user does not choose.
            partitions = sum(len(offsets.get(source.topic, {})) for source in self.config.inputs)
            self.heart.carry({**found, "message": backlog.judge(time.monotonic(), found.get("lag"), partitions)})
            if writer.pace:
                writer.pace.go_on()
            if self.stop.asked:
                self.report("finishing the batch ...")
                self._end(query, writer)
                break
            if writer.last and writer.last.batch_id != reported and time.monotonic() > report_again:
                reported, report_again = writer.last.batch_id, time.monotonic() + _REPORT_SECONDS
                self._show(writer)
        _raise_failure(query, writer)
        self.heart.carry(progress(query, writer, before))
        self._show(writer)

    def _end(self, query: StreamingQuery, writer: BatchWriter) -> None:
        """End a query between two batches."""
        writer.stopping.set()
        with writer.lock:
            last = writer.last
        deadline = time.monotonic() + _COMMIT_SECONDS
        while (
            last
            and query.isActive
            and not writer.checkpoint.is_committed(last.batch_id)
            and time.monotonic() < deadline
        ):
            _ended(query)
        query.stop()
        _raise_failure(query, writer)

    def _show(self, writer: BatchWriter) -> None:
        if writer.last is None:
            return
        t = writer.totals
        self.report(
            f"batch {writer.last.batch_id}: so far read {t.read:,}, written {t.written:,}, "
            f"duplicates {t.duplicates:,}, filtered {t.filtered:,}, late {t.late:,}, dead letters {t.dead_letters:,}"
            + (f", unmatched {t.unmatched:,}, waiting {t.waiting:,}" if self.config.join else "")
        )
        for topic, partitions in writer.last.offsets.items():
            offsets = {partition: until for partition, (_, until) in partitions.items()}
            try:
                commit_offsets(self.config.connection, self.config.pipeline_id, topic, offsets)
            except GlassflowError as error:
                # For lag tools only: the checkpoint is what counts, so the pipeline goes on.
                self._warn(str(error))


def _untils(plan: BatchPlan, topic: str) -> dict[int, int]:
    """Give where a batch ended in each partition of a topic."""
    return {partition: until for partition, (_, until) in plan.offsets.get(topic, {}).items()}


def _ended(query: StreamingQuery) -> bool:
    """Wait a second for the end of a query; how it ended is for `_raise_failure` to tell."""
    try:
        return bool(query.awaitTermination(1))
    except StreamingQueryException:
        return True


def _raise_failure(query: StreamingQuery, writer: BatchWriter) -> None:
    error = query.exception()
    if error is not None and not writer.ended_between_batches:
        if Superseded.__name__ in str(error):
            # Raised in a worker, it is a text by now; asked again, it is itself. Without an answer the text has to do.
            with suppress(ClickHouseError, OSError):
                writer.epoch.require_newest(writer.target.client)
        raise GlassflowError(explain_failure(error)) from error


def _with_connections_of(config: PipelineConfig, kept: dict[str, Any]) -> PipelineConfig:
    old = PipelineConfig.model_validate(kept)
    connection = {"connection_params": config.connection}
    sources = tuple(source.model_copy(update=connection) for source in old.sources)
    sink = old.sink.model_copy(update={"connection_params": config.sink.connection_params})
    return old.model_copy(update={"sources": sources, "sink": sink})


def _with_types(table: Table, types: Mapping[str, str]) -> Table:
    """Give the table as it was when its mapped columns had these types."""
    before = {name: replace(table.columns[name], type=parse_column_type(text)) for name, text in types.items()}
    return replace(table, columns={**table.columns, **before})


def _require_settings(given: Mapping[str, str]) -> None:
    try:
        spark_settings(given)
    except ValueError as problem:
        raise GlassflowError(f"--conf, or spark_config of Dagster's resource: {problem}") from None


def _make_folder(folder: Path) -> Path:
    if "," in str(folder):
        # Spark takes its folder for working files apart at commas, and knows no way to write one.
        raise GlassflowError(
            f"{folder}: has a comma in its path, where Spark would cut it; name another folder with --state DIR"
        )
    try:
        make_pipeline_folder(folder)
        (folder / "writable").touch()
        (folder / "writable").unlink()
    except OSError as error:
        raise GlassflowError(
            f"{folder}: cannot be written ({error.strerror}); name another folder with --state DIR"
        ) from None
    return folder


def main(arguments: list[str] | None = None) -> int:
    """Run a driver as a process of its own; exit code 0 when it was stopped, 1 when something is not right."""
    parser = argparse.ArgumentParser(prog="glassflow_dagster.streaming.driver")
    parser.add_argument("--definition", type=Path, required=True)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--create-table", action="store_true")
    parser.add_argument("--timeout", type=float, default=300.0)
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args(arguments)

    def report(text: str) -> None:
        print(time.strftime("%Y-%m-%d %H:%M:%S"), text, file=sys.stderr, flush=True)  # noqa: T201

    try:
        config = load_pipeline(given.definition)
        report_rewriting(given.definition, report)
        options = RunOptions(
            state=given.state,
            create_table=given.create_table,
            timeout_seconds=given.timeout,
            spark=dict(pair.split("=", 1) for pair in given.conf),
        )
        run_pipeline(config, options, report)
    except Superseded as error:
        give_up(given.state, config.pipeline_id)
        report(f"failed: {error}")
        return 1
    except GlassflowError as error:
        report(f"failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
