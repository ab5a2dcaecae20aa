"""Prepare the servers, open Spark's session and the checkpoint, and run one query after the other until the end."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from glassflow_dagster.control.pipeline_metrics import read_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.driver.options import Report
from glassflow_dagster.driver.query.query_failure import CheckpointConflict
from glassflow_dagster.driver.query.start_query import QueryStarter
from glassflow_dagster.driver.signals import Stopped, StopRequest
from glassflow_dagster.driver.start.open_checkpoint import open_checkpoint
from glassflow_dagster.driver.start.prepare import Prepared, compacted_topics, prepare, require_store
from glassflow_dagster.driver.start.spark import SparkStart
from glassflow_dagster.driver.start.submission_end import require_current
from glassflow_dagster.driver.start.topics import with_further_topics, with_matching_topics
from glassflow_dagster.driver.watch.record_sample import sample_records
from glassflow_dagster.driver.watch.schema_changes import SchemaChanges, require_not_stopped
from glassflow_dagster.driver.watch.shared_heartbeat import SharedHeartbeat
from glassflow_dagster.driver.watch.watch_query import watch_query
from glassflow_dagster.runtime.metrics.server import serve_metrics
from glassflow_dagster.stores.bookkeeping.outcomes import Totals
from glassflow_dagster.stream.delivery.batch_bound import BatchBound
from glassflow_dagster.stream.inline_or_job import begins_inline
from glassflow_dagster.stream.spark.python_workers import start_workers
from glassflow_dagster.stream.spark.session import protobuf_answers

# An older driver ends with its next insert, so it writes to the checkpoint once or twice after it was replaced.
_MOST_CONFLICTS = 5
# One so long after the last has another reason: in Google's storage, a lost answer.
_CONFLICTS_SECONDS = 600.0


def run_to_end(run: RunContext, spark_start: SparkStart, stop: StopRequest) -> Totals:
    """Run the pipeline until it is stopped or has caught up; return the totals of the batches that it committed.

    Raises `Stopped` where it is stopped before its query runs, and `GlassflowError`.
    """
    with _served_metrics(run.config, run.options.state, run.report):
        with stop.ending_waits():
            require_store(run)
            run = with_matching_topics(run)
            prepared = prepare(run)
            run.retry(lambda: require_not_stopped(prepared.client, prepared.config))
            run.retry(lambda: require_current(prepared.client, prepared.config, run.options.submission))
        return _run_queries(replace(run, config=prepared.config), prepared, spark_start, stop)


def _run_queries(run: RunContext, prepared: Prepared, spark_start: SparkStart, stop: StopRequest) -> Totals:
    """Open the session and run the pipeline's query until its end; return the totals of the batches."""
    with ThreadPoolExecutor(1) as background:
        # In parallel with the start of Spark, which takes longer.
        sampling = background.submit(sample_records, run.config, prepared.checkpoint)
        with spark_start.session(run.report_starting) as spark:
            sample = sampling.result()
            has_own_jvm = run.options.pool_of(run.config) is None
            if has_own_jvm and not (sample.is_complete and begins_inline(run.config, prepared.checkpoint, spark)):
                # For jobs, now or soon; few records are an inline batch, which needs none.
                start_workers(spark)
            bound = BatchBound(spark, run.config.pipeline_id)
            bound.update_by(sample, run.config.source)
            opened = open_checkpoint(run, prepared, spark)
            shared = SharedHeartbeat(run, stop)
            shared.follow(opened)
            changes = SchemaChanges(prepared.client, opened.epoch, protobuf_answers(spark))
            totals = Totals()
            if run.config.schema_evolution != "ignore":
                # First, as a column that is added changes the table of an open batch.
                totals += QueryStarter(run, prepared, opened, spark, bound).finish_open_batch()
                run, prepared = changes.at_start(run, prepared)
            conflicts, last_conflict = 0, 0.0
            while True:
                queries = QueryStarter(run, prepared, opened, spark, bound)
                try:
                    totals += queries.finish_outdated_batch()
                    known = changes.known(run)
                    ended = watch_query(run, queries.start(), stop, spark, known, shared)
                except CheckpointConflict as conflict:
                    is_late = time.monotonic() - last_conflict > _CONFLICTS_SECONDS
                    conflicts, last_conflict = 1 if is_late else conflicts + 1, time.monotonic()
                    if conflicts > _MOST_CONFLICTS:
                        raise
                    run.warn(f"{conflict}; reading the checkpoint again")
                    opened = open_checkpoint(run, prepared, spark)
                    shared.follow(opened)
                    changes = SchemaChanges(prepared.client, opened.epoch, protobuf_answers(spark))
                    continue
                totals += ended.totals
                if not ended.new_topics and not ended.schema:
                    return totals
                try:
                    with stop.ending_waits():
                        if ended.schema:
                            run, prepared = changes.take(run, prepared, ended.schema)
                            continue
                        run = with_further_topics(run, prepared.checkpoint, ended.new_topics)
                        prepared = replace(prepared, compacted_topics=compacted_topics(run))
                except Stopped:
                    return totals


@contextmanager
def _served_metrics(config: PipelineConfig, state: Path, report: Report) -> Iterator[None]:
    """Serve the pipeline's metrics while the block runs, where the definition says so (`metrics.port`).

    Raises `GlassflowError` when the port is taken.
    """
    if config.metrics.port is None:
        yield
        return
    host = config.metrics.host
    with serve_metrics(host, config.metrics.port, lambda: read_pipeline(state, config.pipeline_id)) as port:
        report(f"metrics: http://{host}:{port}/metrics")
        yield
