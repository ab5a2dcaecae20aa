"""Continues a pipeline without lost records or a lost checkpoint: `run --accept-loss`.

When records are missing from the topics, or a checkpoint is unusable and cannot be rebuilt, a pipeline stops instead of
skipping anything. With this option the operator accepts the loss: the skipped offset ranges are first recorded in
`glassflow_losses`, so that verification can still compare everything else.

A usable checkpoint keeps its state: a copy made of hard links gets new start offsets and replaces the original when it
is complete. Without a usable checkpoint, the pipeline continues from the ledger's offsets with an empty state. The
checkpoint id stays the same in both cases, so ledger, dead letters and replays continue; the token prefix is new, so
blocks get new insert tokens. An open batch is read again as far as its records exist; its rows that are already in the
table are recognized by their values.
"""

import os
import shutil
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.recovery.open_batch import fence_off, why_in_other_tables
from glassflow_dagster.stores.bookkeeping.ledger import BatchHistory, last_batch, read_history
from glassflow_dagster.stores.bookkeeping.losses import Loss, LossReason, note_losses
from glassflow_dagster.stores.bookkeeping.totals import LedgerTotals, read_totals
from glassflow_dagster.stores.clickhouse.table import Table
from glassflow_dagster.stores.kafka.records import count_records
from glassflow_dagster.stores.kafka.topics import Offsets, offsets_if_there, topic_ids
from glassflow_dagster.stream.checkpoint.checkpoint import (
    BatchPlan,
    Checkpoint,
    CheckpointError,
    CheckpointIdentity,
    state_shape,
)
from glassflow_dagster.stream.checkpoint.consistency import require_ledger
from glassflow_dagster.stream.stages.source import MAX_BATCH_RECORDS

Report = Callable[[str], None]
Positions = dict[str, dict[int, int]]  # topic -> partition -> offset

# `shuffle_partitions` of a checkpoint without a state: the driver sets the number when it starts the state.
_NO_STATE = 0


@dataclass
class _Topics:
    """The existing topics: offsets of each partition, and the topics that were recreated since they were read."""

    offsets: dict[str, dict[int, Offsets]] = field(default_factory=dict)
    recreated: set[str] = field(default_factory=set)


def accept_loss(
    client: Client, config: PipelineConfig, tables: Sequence[Table], checkpoint: Checkpoint, report: Report
) -> None:
    """Record which records are lost, and prepare a checkpoint that continues without them.

    A usable checkpoint keeps its state, and where nothing is lost it stays as it is; without one the state is lost,
    too. client: with the right to write to the bookkeeping tables, which must exist. Raises `GlassflowError` when a
    server does not answer.
    """
    database = config.sink.connection_params.database
    totals, history = (
        read_totals(client, database, config.pipeline_id),
        read_history(client, database, config.pipeline_id),
    )
    problem = _why_unusable(client, config, checkpoint)
    identity = checkpoint.identity() if problem is None else None
    if identity is None and not totals.batches:
        report("nothing was read yet, so nothing is lost")
        return
    open_batch = checkpoint.pending_plan() if identity else None
    # Without a usable checkpoint, the ledger's last batch tells of the definition.
    begun_with = history.batches[-1].definition if identity is None else open_batch and open_batch.definition
    if begun_with and (why := why_in_other_tables(config, totals, begun_with)):
        raise CheckpointError(f"{config.pipeline_id}: {why}; undo the edit, run it with --accept-loss, then edit again")
    topics = _read_topics(config, checkpoint.topic_ids() if identity else {})
    checkpoint_id = identity.checkpoint_id if identity else history.checkpoint_id
    # From now on no driver on another host writes rows that the losses would not account for.
    fence_off(client, config, checkpoint, checkpoint_id, tables)
    if identity:
        _keep_state(client, config, checkpoint, identity, topics, report)
    else:
        _begin_without_state(client, config, checkpoint, (totals, history), topics, str(problem), report)


def _why_unusable(client: Client, config: PipelineConfig, checkpoint: Checkpoint) -> CheckpointError | None:
    """Return why the pipeline cannot continue from the checkpoint; None when it can."""
    try:
        checkpoint.inspect()
        identity = checkpoint.identity()
        if identity is None:
            return CheckpointError(f"{checkpoint.location}: does not exist")
        require_ledger(client, config, checkpoint, identity)
        if identity.state != state_shape(config):
            return CheckpointError(f"{checkpoint.location}: was built for {identity.state}, but the definition differs")
    except CheckpointError as problem:
        return problem
    return None


def _read_topics(config: PipelineConfig, known_ids: Mapping[str, str]) -> _Topics:
    """Read which offsets the topics have, and which topics were recreated: their id is not the checkpoint's any more.

    known_ids: topic -> id, as the checkpoint has them. Topics that do not exist are left out of the offsets.
    """
    current_ids = topic_ids(config.connection, config.topics)
    offsets = {topic: offsets_if_there(config.connection, topic) for topic in config.topics}
    recreated = {topic for topic, known in known_ids.items() if topic in current_ids and current_ids[topic] != known}
    return _Topics({topic: partitions for topic, partitions in offsets.items() if partitions}, recreated)


def _keep_state(  # noqa: PLR0913, PLR0917 - all that a checkpoint depends on
    client: Client,
    config: PipelineConfig,
    checkpoint: Checkpoint,
    identity: CheckpointIdentity,
    topics: _Topics,
    report: Report,
) -> None:
    """Move a usable checkpoint to offsets that exist, and record what is skipped; do nothing when nothing is lost.

    An open batch is removed from the checkpoint: the next batch reads its records again, as far as they exist.
    """
    next_batch, open_batch = checkpoint.next_batch, checkpoint.pending_plan()
    number = identity.batches_before + next_batch  # of the batch after the last committed one, in the ledger
    # When the ledger already has the open batch, its rows are complete, but its changes of the state are lost.
    is_written = number == last_batch(
        client, config.sink.connection_params.database, config.pipeline_id, identity.checkpoint_id
    )
    ends_of_open_batch = _ends(open_batch)
    positions = ends_of_open_batch if is_written else checkpoint.next_offsets()
    next_number = number + 1 if is_written else number  # of the batch that comes next in the ledger
    available, losses = _move_to_available(positions, topics, next_number)
    losses += _losses_of_open_batch(config, open_batch, topics, next_number)
    if not losses:
        report("nothing is lost: the pipeline continues unchanged")
        return
    if is_written:
        losses.append(Loss(next_number, LossReason.STATE))
    _record_losses(client, config, identity.checkpoint_id, losses, report)
    work = Checkpoint(checkpoint.folder.with_name("checkpoint.new"))
    shutil.rmtree(work.folder, ignore_errors=True)
    # Hard links, as a state may be large. This is safe: Spark never changes a state file, it only removes them.
    shutil.copytree(checkpoint.folder, work.folder, copy_function=os.link)
    work.forget_batch(next_batch)
    work.set_next_offsets(available)
    work.replace_identity(
        identity.model_copy(
            update={
                "token_prefix": str(uuid.uuid4()),
                "topics": config.topics,
                # The ledger has one more batch than Spark's log, from which the open one was removed.
                "batches_before": identity.batches_before + is_written,
                "first_batch": next_batch,
                "look_until": {} if is_written else ends_of_open_batch,
            }
        )
    )
    work.keep_topic_ids(topic_ids(config.connection, config.topics))
    _replace_checkpoint(work, checkpoint, report)


def _begin_without_state(  # noqa: PLR0913, PLR0917 - all that a checkpoint depends on
    client: Client,
    config: PipelineConfig,
    checkpoint: Checkpoint,
    past: tuple[LedgerTotals, BatchHistory],
    topics: _Topics,
    problem: str,
    report: Report,
) -> None:
    """Create a checkpoint with an empty state that continues after the ledger's last batch, and record the loss.

    past: the ledger's totals and batches, at least one.
    problem: why the old checkpoint cannot be used.
    """
    totals, history = past
    report(f"the state is discarded: {problem}")
    number = (history.last_batch or 0) + 1  # of the next batch in the ledger
    positions: Positions = {}
    for last_range in history.batches[-1].ranges:
        positions.setdefault(last_range.topic, {})[last_range.partition] = last_range.until
    available, losses = _move_to_available(positions, topics, number)
    waiting = totals.outcomes.waiting
    losses.append(Loss(number, LossReason.STATE, waiting=waiting))
    _record_losses(client, config, history.checkpoint_id, losses, report)
    # A partition that was not read yet starts at its first record.
    starting = {
        topic: {p: available.get(topic, {}).get(p, offsets.low) for p, offsets in partitions.items()}
        for topic, partitions in topics.offsets.items()
    }
    # The offsets that an open batch can have read at most: rows below them may be in the table already.
    look_until = {
        topic: {p: min(topics.offsets[topic][p].high, first + MAX_BATCH_RECORDS) for p, first in partitions.items()}
        for topic, partitions in starting.items()
    }
    work = Checkpoint(checkpoint.folder.with_name("checkpoint.new"))
    shutil.rmtree(work.folder, ignore_errors=True)
    work.replace_identity(
        CheckpointIdentity(
            checkpoint_id=history.checkpoint_id,
            token_prefix=str(uuid.uuid4()),
            pipeline_id=config.pipeline_id,
            topics=config.topics,
            table=config.sink.table_name,
            rows_before=totals.rows_before,
            rows_before_by_table=totals.by_table.named_before,
            created_at=time.time(),
            shuffle_partitions=_NO_STATE,
            state=state_shape(config),
            batches_before=number,
            look_until=look_until,
            starting=starting,
        )
    )
    _replace_checkpoint(work, checkpoint, report)


def _ends(plan: BatchPlan | None) -> Positions:
    """Return the end offsets of a batch plan; empty for None."""
    return plan.next_offsets if plan else {}


def _move_to_available(
    positions: Mapping[str, Mapping[int, int]], topics: _Topics, number: int
) -> tuple[Positions, list[Loss]]:
    """Move each position to an offset that exists; return the positions and the losses.

    Lost is the unread part of a partition that is gone, recreated, or shorter than what was read (TOPIC; how many
    records is unknown), and records that retention has removed (RETENTION). A partition that is gone has no position in
    the result.

    positions: the next offsets to read.
    number: the batch of the losses.
    """
    available: Positions = {}
    losses = []
    for topic, partitions in positions.items():
        offsets_of_topic = topics.offsets.get(topic, {})
        for partition, position in partitions.items():
            offsets = offsets_of_topic.get(partition)
            if offsets is None or topic in topics.recreated or position > offsets.high:
                losses.append(Loss(number, LossReason.TOPIC, topic, partition, first=position, until=position))
                if offsets is None:
                    continue
                # A recreated topic is read from its beginning; in the same topic, earlier records were read before.
                position = offsets.low if topic in topics.recreated else offsets.high  # noqa: PLW2901
            elif position < offsets.low:
                losses.append(Loss(number, LossReason.RETENTION, topic, partition, first=position, until=offsets.low))
                position = offsets.low  # noqa: PLW2901
            available.setdefault(topic, {})[partition] = position
    return available, losses


def _losses_of_open_batch(config: PipelineConfig, plan: BatchPlan | None, topics: _Topics, number: int) -> list[Loss]:
    """Find the offset ranges of the in-flight batch of which records are gone, so that it cannot be repeated as it was.

    Gone are ranges that retention or a deleted topic has shortened, and in compacted topics (those of which the plan
    has record counts) ranges with fewer records than when the batch began.

    plan: that of the batch, None without one.
    number: the batch of the losses in the ledger.
    """
    if plan is None:
        return []
    losses = []
    for topic, partitions in plan.offsets.items():
        planned_counts = (plan.records or {}).get(topic, {})
        for partition, (first, until) in partitions.items():
            # A partition that is gone counts as empty.
            offsets = topics.offsets.get(topic, {}).get(partition, Offsets(low=0, high=0))
            is_available = offsets.low <= first <= until <= offsets.high
            is_lost = first < until and not is_available
            if not is_lost and partition in planned_counts:
                span = {partition: (first, until)}
                count = count_records(
                    config.connection, topic, span, report=lambda _: None, isolation=config.source.isolation
                )
                is_lost = count != planned_counts[partition]
            if is_lost:
                losses.append(Loss(number, LossReason.IN_FLIGHT, topic, partition, first=first, until=until))
    return losses


def _record_losses(
    client: Client, config: PipelineConfig, checkpoint_id: str, losses: list[Loss], report: Report
) -> None:
    """Write the losses to `glassflow_losses` and report them."""
    note_losses(client, config.sink.connection_params.database, config.pipeline_id, checkpoint_id, losses)
    for loss in losses:
        report(f"LOST: {loss}")


def _replace_checkpoint(work: Checkpoint, checkpoint: Checkpoint, report: Report) -> None:
    """Rename the new checkpoint (`work`) to the old one's folder; the old one is kept under another name."""
    if checkpoint.folder.exists():
        aside = checkpoint.folder.with_name(time.strftime("checkpoint.aside-%Y%m%d-%H%M%S"))
        checkpoint.folder.rename(aside)
        report(f"the old checkpoint is in {aside}; remove it when the pipeline runs again")
    work.folder.rename(checkpoint.folder)
    checkpoint.follow_move()
