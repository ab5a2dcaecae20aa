"""Watches a pipeline's query until it ends: updates heartbeat, report and consumer group, detects stalls, stops it."""

import time
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from glassflow_dagster.control.heartbeat import DriverState
from glassflow_dagster.control.log import Level
from glassflow_dagster.definition.model.durations import milliseconds
from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.driver.jvm import jvm_pid
from glassflow_dagster.driver.query.progress import batch_position, sampled_lag
from glassflow_dagster.driver.query.running_query import RunningQuery
from glassflow_dagster.driver.signals import StopRequest
from glassflow_dagster.driver.watch.backlog import Backlog
from glassflow_dagster.driver.watch.batch_phases import BatchPhases
from glassflow_dagster.driver.watch.key_count import KeyCount
from glassflow_dagster.driver.watch.progress_watch import ProgressWatch
from glassflow_dagster.driver.watch.schema_watch import Found, SchemaWatch, watched_schema
from glassflow_dagster.driver.watch.server_samples import report_behind_transactions, sampled_servers
from glassflow_dagster.driver.watch.shared_heartbeat import SharedHeartbeat
from glassflow_dagster.driver.watch.topic_watch import TopicWatch, watched_topics
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.bookkeeping.ledger import read_rows_by_minute
from glassflow_dagster.stores.bookkeeping.losses import read_losses
from glassflow_dagster.stores.bookkeeping.outcomes import Totals
from glassflow_dagster.stores.kafka.topics import commit_offsets, offsets_if_there
from glassflow_dagster.stream.checkpoint.checkpoint import BatchPlan
from glassflow_dagster.stream.delivery.batch_writer import WriterProgress
from glassflow_dagster.stream.spark.session import protobuf_answers

# How often at most progress is printed and offsets are committed for lag tools: there may be several batches a second.
_REPORT_SECONDS = 5.0
# The totals in a batch's message; the second ones with a join.
_FIGURES = {"read", "written", "duplicates", "filtered", "late", "dead_letters"}
_JOIN_FIGURES = {"unmatched", "waiting"}


@dataclass(frozen=True)
class QueryEnd:
    """The end of a query: the totals of its batches, and for what it was ended.

    new_topics: topics to be read as well.
    schema: what is new in the events; None for nothing.
    """

    totals: Totals
    new_topics: tuple[str, ...] = ()
    schema: Found | None = None


def watch_query(  # noqa: PLR0913, PLR0917 - what may end a query
    run: RunContext,
    running: RunningQuery,
    stop: StopRequest,
    spark: SparkSession,
    known: frozenset[str] | None,
    shared: SharedHeartbeat,
) -> QueryEnd:
    """Watch the query until it ends; stop it between two batches on request, or for a further topic or field.

    known: see `schema_watch.look`. Raises `GlassflowError` where the query fails, and `Fenced` where a newer driver has
    begun.
    """
    run.heartbeat.set_state(DriverState.RUNNING)
    run.report(f"{run.config.pipeline_id} is running")
    # An insert is retried for this long before its failure ends the driver.
    patience = run.options.timeout_seconds + run.config.sink.max_delay_time.total_seconds()
    backlog = Backlog(spark.sparkContext.defaultParallelism, run.config.sink.max_batch_size)
    run.heartbeat.update(_figures_at_start(run, running))
    with (
        sampled_servers(run, lambda: _reached(running)),
        ProgressWatch(running.written, lambda: _records_wait(running), patience, jvm_pid(spark), run.report) as watch,
        run.heartbeat.report_stalls(lambda: watch.stalled),
        watched_topics(run) as topics,
        watched_schema(run, known, protobuf_answers(spark)) as schema,
    ):
        query_watch = _QueryWatch(run, running, watch, backlog, topics, schema, shared, _key_count(run, running))
        return query_watch.watch_until_end(stop)


def _figures_at_start(run: RunContext, running: RunningQuery) -> dict[str, Any]:
    """Return what is known before the first batch, as fields of a heartbeat: epoch, events that were lost, totals."""
    epoch = running.opened.epoch
    losses = run.retry(
        lambda: read_losses(running.client, epoch.database, epoch.pipeline_id, running.opened.identity.checkpoint_id)
    )
    return {"epoch": epoch.number, "lost_waiting": sum(loss.waiting for loss in losses), "totals": running.before}


def _key_count(run: RunContext, running: RunningQuery) -> KeyCount | None:
    """Return the counter of the keys in the state; None without deduplication on the processing clock, or with a join.

    The watermark ends the windows of the event clock, and the state of a join also has its events.
    """
    dedup = run.config.dedup
    if run.config.join or dedup is None or dedup.clock != "processing":
        return None
    window_ms = milliseconds(dedup.time_window)
    epoch, after_ms = running.opened.epoch, time.time_ns() // 1_000_000 - window_ms
    scope = (epoch.database, epoch.pipeline_id, running.opened.identity.checkpoint_id)
    return KeyCount(window_ms, run.retry(lambda: read_rows_by_minute(running.client, *scope, after_ms)))


def _reached(running: RunningQuery) -> dict[str, dict[int, int]]:
    """Return the next offset to read of each partition; of a new checkpoint nothing until Spark has begun with it."""
    last = running.written().last
    return last.next_offsets if last else running.opened.checkpoint.reached_offsets()


def _records_wait(running: RunningQuery) -> bool:
    """Return whether a batch is being written, or the topics have unread records.

    False when the brokers do not answer: then the query fails by itself.
    """
    if running.written().is_writing:
        return True
    config = running.config
    try:
        # The next offsets; for a new checkpoint nothing until Spark has logged its start offsets.
        reached = running.opened.checkpoint.reached_offsets()
        return bool(reached) and any(
            offsets.high > reached.get(topic, {}).get(partition, offsets.low)
            for topic in config.topics
            for partition, offsets in offsets_if_there(config.connection, topic).items()
        )
    except GlassflowError:
        return False


@dataclass
class _QueryWatch:
    """Polls a running query every second, and reports on it."""

    run: RunContext
    running: RunningQuery
    watch: ProgressWatch
    backlog: Backlog
    topics: TopicWatch
    schema: SchemaWatch
    shared: SharedHeartbeat
    keys: KeyCount | None = None
    phases: BatchPhases = field(default_factory=BatchPhases)
    _reported_batch: int | None = field(default=None, init=False)
    _report_again: float = field(default=0.0, init=False)

    def watch_until_end(self, stop: StopRequest) -> QueryEnd:
        """Poll the query until it ends, or end it between two batches: when `stop` was asked, or for what is new.

        Raises `GlassflowError` where the query has failed, and `Fenced` where a newer driver has begun.
        """
        opened = self.running.opened
        new_topics: tuple[str, ...] = ()
        found = Found()
        committed = batch_position(opened.checkpoint.last_committed())
        self.run.heartbeat.update({"checkpoint_id": opened.identity.checkpoint_id, **committed})
        while (progress := self._poll()) is not None:
            self.run.heartbeat.update({**progress, "message": self._backlog_warning(progress)})
            # Of a join: starts a batch when events wait that time alone decides, while the topics are silent.
            if self.running.pacer:
                self.running.pacer.advance_clock()
            if self.shared.fenced:
                self.running.end()
                raise self.shared.fenced
            if stop.asked:
                self.run.report("finishing the batch ...")
                self.running.end()
                break
            if new_topics := self.topics.appeared():
                self.run.report(f"new topics: {', '.join(new_topics)}; reading them from their first records ...")
                self.running.end()
                break
            found = self.schema.found()
            if found.is_new:
                self.run.report("the events have changed; finishing the batch ...")
                self.running.end()
                break
            self._report_now_and_then()
        self.running.raise_failure()
        self.run.heartbeat.update(self._progress())
        self._report(self.running.written())
        is_followed = bool(new_topics) or found.is_new  # by the next query
        if self.run.options.until_caught_up and not (stop.asked or is_followed):
            report_behind_transactions(self.run)
        return QueryEnd(self.running.written().totals, new_topics, found if found.is_new else None)

    def _poll(self) -> dict[str, Any] | None:
        """Wait a second; return the query's progress as fields of a heartbeat, or None when the query has ended."""
        with self.watch.asking():
            if self.running.wait():
                return None
            return self._progress()

    def _progress(self) -> dict[str, Any]:
        """Return the query's progress as fields of a heartbeat; the lag as the brokers say it where Spark does not."""
        progress = {**self.running.progress(), **self._figures()}
        if progress.get("lag") is None:
            progress |= sampled_lag(self.run.heartbeat.current().partition_lags, self.run.config.source_topics)
        return progress

    def _figures(self) -> dict[str, Any]:
        """Return the figures that only metrics need, as fields of a heartbeat; note how long the last batch took."""
        if last := self.running.last_batch():
            self.watch.took(last.batch_id, last.seconds)
            self.phases.observe(last)
        written = self.running.written()
        batch_time_ms = written.last.batch_time_ms if written.last else None
        now_ms = time.time_ns() // 1_000_000
        keys = self.keys.count(written.totals.written, batch_time_ms, now_ms) if self.keys else None
        return {"batch_phases": self.phases.histograms, "state_keys": keys}

    def _backlog_warning(self, progress: dict[str, Any]) -> str:
        """Return a warning for a pipeline that cannot keep up with its topics, else an empty string."""
        offsets = progress.get("offsets", {})
        # Without the replay topic, whose partitions the user does not choose.
        partitions = sum(len(offsets.get(topic, {})) for topic in self.run.config.source_topics)
        return self.backlog.add_sample(time.monotonic(), progress.get("lag"), partitions)

    def _report_now_and_then(self) -> None:
        """Report the totals when there is a new batch, every `_REPORT_SECONDS` at most."""
        written, now = self.running.written(), time.monotonic()
        if written.last and written.last.batch_id != self._reported_batch and now > self._report_again:
            self._reported_batch, self._report_again = written.last.batch_id, now + _REPORT_SECONDS
            self._report(written)

    def _report(self, written: WriterProgress) -> None:
        """Report the totals up to the last batch, and commit its offsets for lag tools."""
        if written.last is None:
            return
        t, has_join = written.totals, self.run.config.join is not None
        text = (
            f"batch {written.last.batch_id}: so far read {t.read:,}, "
            + (f"copies {t.copies:,}, " if t.copies else "")
            + f"written {t.written:,}, "
            f"duplicates {t.duplicates:,}, filtered {t.filtered:,}, late {t.late:,}, dead letters {t.dead_letters:,}"
            + (f", unmatched {t.unmatched:,}, waiting {t.waiting:,}" if has_join else "")
        )
        figures = t.model_dump(
            include=_FIGURES | (_JOIN_FIGURES if has_join else set()) | ({"copies"} if t.copies else set())
        )
        self.run.report.message(Level.INFO, text, figures, written.last.batch_id)
        self._commit_offsets(written.last)

    def _commit_offsets(self, plan: BatchPlan) -> None:
        """Commit a batch's end offsets to the pipeline's consumer group, where lag tools read them."""
        try:
            commit_offsets(self.run.config.connection, self.run.config.pipeline_id, plan.next_offsets)
        except GlassflowError as error:
            # Only lag tools use these; the pipeline itself continues from its checkpoint.
            self.run.warn(str(error))
