"""Going on without what is lost: `run --accept-loss`.

Where records are gone from the topics, or a checkpoint cannot be used and cannot be rebuilt, a pipeline stops rather
than skip anything. This is the way out for who has decided to go on: what is skipped is written down in
`glassflow_losses` first, so that everything else can still be compared.

A checkpoint that is whole keeps its state: a copy of it, made of links, gets other offsets to go on from, and takes its
place when it is complete. Without one the pipeline goes on from the ledger's offsets with an empty state. The name of
the checkpoint stays in both cases, so ledger, dead letters and replays go on; its insert tokens are others. A batch
that was under way is read again as far as it is there, and rows of it that are in the table are told by their values.
"""

import os
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from clickhouse_connect.driver.client import Client

from glassflow_dagster.bookkeeping.fencing import begin_epoch
from glassflow_dagster.bookkeeping.ledger import BatchHistory, last_batch, read_history
from glassflow_dagster.bookkeeping.losses import Loss, LossReason, note_losses
from glassflow_dagster.bookkeeping.totals import LedgerTotals, read_totals
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.kafka.records import count_records
from glassflow_dagster.kafka.topics import Offsets, offsets_if_there, topic_ids
from glassflow_dagster.streaming.checkpoint.checkpoint import (
    BatchPlan,
    Checkpoint,
    CheckpointError,
    CheckpointIdentity,
    state_shape,
)
from glassflow_dagster.streaming.checkpoint.consistency import require_ledger
from glassflow_dagster.streaming.stages.source import MAX_BATCH_RECORDS

Report = Callable[[str], None]
Positions = dict[str, dict[int, int]]  # topic -> partition -> offset

# Spark's partitions of a state that is begun anew; the driver's own choice where it starts one.
_NO_STATE = 0


@dataclass
class _Topics:
    """The topics as they are: each partition's offsets, and those that are not the ones that were read."""

    there: dict[str, dict[int, Offsets]] = field(default_factory=dict)
    made_anew: set[str] = field(default_factory=set)


def accept_loss(client: Client, config: PipelineConfig, table: Table, checkpoint: Checkpoint, report: Report) -> None:
    """Let the next start go on without what is lost, and note what that is; nothing where nothing is.

    client: of a user who may write to the bookkeeping tables, which exist. Raises `GlassflowError` where a
    server does not answer.
    """
    database = config.sink.connection_params.database
    totals, history = (
        read_totals(client, database, config.pipeline_id),
        read_history(client, database, config.pipeline_id),
    )
    problem = _why_unusable(client, config, checkpoint)
    known = checkpoint.identity() if problem is None else None
    if known is None and not totals.batches:
        report("nothing was read yet, so nothing is lost")
        return
    topics = _look_at(config, checkpoint.topic_ids() if known else {})
    name = known.checkpoint_id if known else history.checkpoint_id
    begin_epoch(client, database, config.pipeline_id, name, str(checkpoint.folder.parent), table.rows)
    if known:
        _keep_state(client, config, checkpoint, known, topics, report)
    else:
        _begin_without_state(client, config, table, checkpoint, (totals, history), topics, str(problem), report)


def _why_unusable(client: Client, config: PipelineConfig, checkpoint: Checkpoint) -> CheckpointError | None:
    """Say why the checkpoint cannot go on; None where it can, or none was ever made."""
    try:
        checkpoint.inspect()
        found = checkpoint.identity()
        if found is None:
            return CheckpointError(f"{checkpoint.folder}: is not there")
        require_ledger(client, config, checkpoint, found)
        if found.state != state_shape(config):
            return CheckpointError(
                f"{checkpoint.folder}: was built for {found.state}, and the definition is another one"
            )
    except CheckpointError as problem:
        return problem
    return None


def _look_at(config: PipelineConfig, ids: Mapping[str, str]) -> _Topics:
    now = topic_ids(config.connection, config.topics)
    there = {topic: offsets_if_there(config.connection, topic) for topic in config.topics}
    anew = {topic for topic, name in ids.items() if topic in now and now[topic] != name}
    return _Topics({topic: found for topic, found in there.items() if found}, anew)


def _keep_state(  # noqa: PLR0913, PLR0917 - what a checkpoint is moved by
    client: Client,
    config: PipelineConfig,
    checkpoint: Checkpoint,
    known: CheckpointIdentity,
    topics: _Topics,
    report: Report,
) -> None:
    """Move a whole checkpoint to offsets that are there; its open batch, if records of it are gone, is read anew."""
    following, open_batch = checkpoint.next_batch, checkpoint.pending_plan()
    number = known.batches_before + following
    # The ledger may have the open batch: then all of it is written, and what it put into the state is lost.
    is_written = number == last_batch(
        client, config.sink.connection_params.database, config.pipeline_id, known.checkpoint_id
    )
    ends = _ends(open_batch)
    positions = ends if is_written else checkpoint.next_offsets()
    reached, losses = _reachable(positions, topics, number + is_written)
    losses += _lost_of_open_batch(config, open_batch, topics, number + is_written)
    if not losses:
        report("nothing is lost: the pipeline goes on as it is")
        return
    if is_written:
        losses.append(Loss(number + 1, LossReason.STATE))
    _note(client, config, known.checkpoint_id, losses, report)
    work = Checkpoint(checkpoint.folder.with_name("checkpoint.new"))
    shutil.rmtree(work.folder, ignore_errors=True)
    # Links, as a state may be large: its files are never changed, only removed.
    shutil.copytree(checkpoint.folder, work.folder, copy_function=os.link)
    work.forget_batch(following)
    work.set_next_offsets(reached)
    work.replace_identity(
        known.model_copy(
            update={
                "token_prefix": str(uuid.uuid4()),
                "batches_before": known.batches_before + is_written,
                "first_batch": following,
                "look_until": {} if is_written else ends,
            }
        )
    )
    work.keep_topic_ids(topic_ids(config.connection, config.topics))
    _put_in_place(work, checkpoint, report)


def _begin_without_state(  # noqa: PLR0913, PLR0917 - what a checkpoint is begun with
    client: Client,
    config: PipelineConfig,
    table: Table,
    checkpoint: Checkpoint,
    past: tuple[LedgerTotals, BatchHistory],
    topics: _Topics,
    problem: str,
    report: Report,
) -> None:
    """Begin a checkpoint with an empty state where the ledger ends."""
    totals, history = past
    report(f"the state is given up: {problem}")
    number = (history.last_batch or 0) + 1
    positions: Positions = {}
    for found in history.batches[-1].ranges:
        positions.setdefault(found.topic, {})[found.partition] = found.until
    reached, losses = _reachable(positions, topics, number)
    waiting = totals.outcomes.waiting
    losses.append(Loss(number, LossReason.STATE, waiting=waiting))
    _note(client, config, history.checkpoint_id, losses, report)
    # Where a partition was not read yet it begins at its first record.
    starting = {
        topic: {p: reached.get(topic, {}).get(p, offsets.low) for p, offsets in partitions.items()}
        for topic, partitions in topics.there.items()
    }
    # What a batch that was under way may have read at most.
    look_until = {
        topic: {p: min(topics.there[topic][p].high, first + MAX_BATCH_RECORDS) for p, first in partitions.items()}
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
            table=f"{table.database}.{table.name}",
            rows_before=totals.rows_before,
            created_at=time.time(),
            shuffle_partitions=_NO_STATE,
            state=state_shape(config),
            batches_before=number,
            look_until=look_until,
            starting=starting,
        )
    )
    _put_in_place(work, checkpoint, report)


def _ends(plan: BatchPlan | None) -> Positions:
    if plan is None:
        return {}
    return {topic: {p: until for p, (_, until) in found.items()} for topic, found in plan.offsets.items()}


def _reachable(
    positions: Mapping[str, Mapping[int, int]], topics: _Topics, number: int
) -> tuple[Positions, list[Loss]]:
    """Give from where each partition can be read on, and what is skipped by that."""
    reached: Positions = {}
    losses = []
    for topic, partitions in positions.items():
        there = topics.there.get(topic, {})
        for partition, position in partitions.items():
            found = there.get(partition)
            if found is None or topic in topics.made_anew or position > found.high:
                losses.append(Loss(number, LossReason.TOPIC, topic, partition, position, position))
                if found is None:
                    continue
                # Of the same topic, what was there is not read again.
                position = found.low if topic in topics.made_anew else found.high  # noqa: PLW2901
            elif position < found.low:
                losses.append(Loss(number, LossReason.RETENTION, topic, partition, position, found.low))
                position = found.low  # noqa: PLW2901
            reached.setdefault(topic, {})[partition] = position
    return reached, losses


def _lost_of_open_batch(config: PipelineConfig, plan: BatchPlan | None, topics: _Topics, number: int) -> list[Loss]:
    """Find the partitions of which records are gone that an open batch has read, and has to read again."""
    if plan is None:
        return []
    losses = []
    for topic, partitions in plan.offsets.items():
        counted = (plan.records or {}).get(topic, {})
        for partition, (first, until) in partitions.items():
            found = topics.there.get(topic, {}).get(partition, Offsets(0, 0))
            gone = first < until and not found.low <= first <= until <= found.high
            if not gone and partition in counted:
                span = {partition: (first, until)}
                now = count_records(config.connection, topic, span, lambda _: None, config.source.isolation)
                gone = now != counted[partition]
            if gone:
                losses.append(Loss(number, LossReason.COMPACTION, topic, partition, first, until))
    return losses


def _note(client: Client, config: PipelineConfig, checkpoint_id: str, losses: list[Loss], report: Report) -> None:
    note_losses(client, config.sink.connection_params.database, config.pipeline_id, checkpoint_id, losses)
    for loss in losses:
        report(f"LOST: {loss}")


def _put_in_place(work: Checkpoint, checkpoint: Checkpoint, report: Report) -> None:
    if checkpoint.folder.exists():
        aside = checkpoint.folder.with_name(time.strftime("checkpoint.aside-%Y%m%d-%H%M%S"))
        checkpoint.folder.rename(aside)
        report(f"the checkpoint as it was is in {aside}; remove it when the pipeline runs again")
    work.folder.rename(checkpoint.folder)
    checkpoint.follow_move()
