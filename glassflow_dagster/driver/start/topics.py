"""Looks up the topics of a pattern: at a run's start, and when further ones match."""

from collections.abc import Collection, Iterable
from dataclasses import replace

from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.stores.kafka.topic_pattern import wait_for_matching_topics, with_topics
from glassflow_dagster.stores.kafka.topics import offsets_if_there, wait_for_brokers
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint, CheckpointError
from glassflow_dagster.stream.checkpoint.consistency import require_topics, wait_for_topics


def with_matching_topics(run: RunContext) -> RunContext:
    """Return the run with the topics that its pattern stands for, and those that its checkpoint has read.

    Of the latter, those that were deleted are left out with --accept-loss, and where nothing of them was read; else the
    run is refused later. Waits until one topic matches. A run without a pattern is returned unchanged. Raises what
    `wait_for_brokers` and `wait_for_matching_topics` raise.
    """
    if run.config.source.topic_pattern is None:
        return run
    wait_for_brokers(run.config.connection, run.options.timeout_seconds, run.report_unreachable)
    found = wait_for_matching_topics(run.config, run.topic_patience, run.report_waiting)
    known, was_read = _topics_of_checkpoint(run)
    kept = {
        topic
        for topic in known
        if (topic in was_read and not run.options.accept) or offsets_if_there(run.config.connection, topic)
    }
    return _with_topics(run, {*found, *kept})


def _topics_of_checkpoint(run: RunContext) -> tuple[tuple[str, ...], Collection[str]]:
    """Return the topics of the checkpoint, and those of them that have next offsets; none where it is not used."""
    if run.options.start_over:
        return (), ()
    checkpoint = run.checkpoint()
    try:
        identity = checkpoint.identity()
        return (identity.topics[:-1], checkpoint.next_offsets()) if identity else ((), ())
    except CheckpointError:
        # What is wrong is said where the checkpoint is opened, or it is set aside there.
        return (), ()


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
