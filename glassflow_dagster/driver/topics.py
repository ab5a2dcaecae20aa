"""Looks up the topics of a pattern: at a run's start, and when further ones match."""

from collections.abc import Iterable
from dataclasses import replace

from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.kafka.topic_pattern import wait_for_matching_topics, with_topics
from glassflow_dagster.kafka.topics import wait_for_brokers
from glassflow_dagster.streaming.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.streaming.checkpoint.consistency import require_topics, wait_for_topics


def with_matching_topics(run: RunContext) -> RunContext:
    """Return the run with the topics that its pattern stands for, and those that its checkpoint has read.

    With --accept-loss without the latter: those that were deleted are given up. Waits until one topic matches. A run
    without a pattern is returned unchanged. Raises what `wait_for_brokers` and `wait_for_matching_topics` raise.
    """
    if run.config.source.topic_pattern is None:
        return run
    wait_for_brokers(run.config.connection, run.options.timeout_seconds, run.report_unreachable)
    patience = run.options.timeout_seconds if run.options.until_caught_up else None
    found = wait_for_matching_topics(run.config, patience, run.report_waiting)
    identity = None if run.options.accept else Checkpoint(run.folder / "checkpoint").identity()
    return _with_topics(run, {*found, *(identity.topics[:-1] if identity else ())})


def with_further_topics(run: RunContext, checkpoint: Checkpoint, topics: Iterable[str]) -> RunContext:
    """Return the run with further topics, whose ids are stored in the checkpoint.

    Raises what `wait_for_topics` and `require_topics` raise.
    """
    further = _with_topics(run, {*run.config.source_topics, *topics})
    wait_for_topics(further.config, checkpoint, run.options.timeout_seconds, run.report, run.report)
    require_topics(further.config, checkpoint)
    return further


def _with_topics(run: RunContext, topics: Iterable[str]) -> RunContext:
    return replace(run, config=with_topics(run.config, topics))
