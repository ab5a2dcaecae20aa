"""Checks that a checkpoint, the ledger and the topics still belong together, before a driver reads any record.

Each of them may be restored, copied or rebuilt without the others. To continue then would silently lose or duplicate
rows: a recreated topic has other records at the same offsets, and a checkpoint that is older than the ledger reads
records again whose rows are in the table.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.ledger import LEDGER, last_batch, read_offsets
from glassflow_dagster.stores.clickhouse.inserts.batch_begin import read_state
from glassflow_dagster.stores.clickhouse.queries import translate_errors
from glassflow_dagster.stores.clickhouse.tables.token_window import read_window
from glassflow_dagster.stores.clickhouse.tables.views import View, find_written_tables
from glassflow_dagster.stores.kafka.errors import TopicMissing
from glassflow_dagster.stores.kafka.topics import Offsets, offsets_if_there, require_readable, topic_ids, wait_for_topic
from glassflow_dagster.stream.checkpoint.checkpoint import (
    BatchPlan,
    Checkpoint,
    CheckpointError,
    CheckpointIdentity,
    or_none,
    state_shape,
)
from glassflow_dagster.stream.checkpoint.restore import RESTORE

_LOST = (
    "to continue without them, run it with --accept-loss, which records what is skipped; or empty the table and run "
    "it with --start-over"
)

# Brokers that have just started may not know their topics yet: a topic that existed before is looked up again for this
# long before it counts as deleted.
_DELETED_AFTER = 5.0  # seconds


def require_same_definition(config: PipelineConfig, checkpoint: Checkpoint) -> None:
    """Raise `CheckpointError` if the definition has another table, other topics or another state than the checkpoint.

    These are fixed when a checkpoint is created; routes to further tables may change, and topics may be added, behind
    the others, so that these keep their order. The state of a join has positions of records with the number of their
    topic, so it takes no further topic. No server is contacted.
    """
    identity, table = checkpoint.identity(), config.sink.table_name
    if identity is None:
        return
    if identity.table != table:
        raise CheckpointError(
            f"{checkpoint.location}: writes to {identity.table}, but the definition says {table}; give the definition "
            "a new pipeline_id to fill another table from the beginning"
        )
    _require_same_topics(config, checkpoint, identity.topics)
    if identity.state != state_shape(config):
        raise CheckpointError(
            f"{checkpoint.location}: was built for {identity.state}, but the definition says {state_shape(config)}; "
            "undo the edit, or give the definition a new pipeline_id and table"
        )


def _require_same_topics(config: PipelineConfig, checkpoint: Checkpoint, topics: tuple[str, ...]) -> None:
    """Raise `CheckpointError` if the definition does not have the checkpoint's topics, or in another order.

    topics: the checkpoint's. A pattern may be edited: its driver also reads the topics that the checkpoint has.
    """
    if config.source.topic_pattern:
        return
    # The last topic is the replay topic, which follows from the pipeline_id.
    known, wanted = topics[:-1], config.source_topics
    if known != wanted[: len(known)] or (config.join and known != wanted):
        remedy = "undo the edit" if config.join else "keep these topics in this order, and add others behind them"
        raise CheckpointError(
            f"{checkpoint.location}: reads topic {', '.join(known)}, but the definition says {', '.join(wanted)}; "
            f"{remedy}, or give the definition a new pipeline_id and table"
        )


def require_committed_in_ledger(
    client: Client, config: PipelineConfig, checkpoint: Checkpoint, identity: CheckpointIdentity
) -> None:
    """Raise `CheckpointError` unless the ledger has the batch that the checkpoint has committed last, or a later one.

    Unlike `require_ledger` it may be called while another driver goes on with the checkpoint: the ledger's row of a
    batch is written before the batch is committed.
    """
    committed = checkpoint.next_batch - 1
    newest = last_batch(client, config.sink.connection_params.database, config.pipeline_id, identity.checkpoint_id)
    if committed >= 0 and (newest is None or newest - identity.batches_before < committed):
        raise CheckpointError(_lacks_batch(config, checkpoint, committed))


def require_ledger(
    client: Client, config: PipelineConfig, checkpoint: Checkpoint, identity: CheckpointIdentity
) -> None:
    """Raise `CheckpointError` unless checkpoint and ledger have the same batches, with the same offsets.

    A batch's ledger row is written before Spark commits the batch. So the ledger must have every committed batch, may
    have the one that is open, and none beyond.
    """
    database = config.sink.connection_params.database
    ledger, begun = f"{database}.{LEDGER.name}", checkpoint.last_begun
    newest = last_batch(client, database, config.pipeline_id, identity.checkpoint_id)
    # The ledger's batch ids go on from those of the lost checkpoint that this one replaces, Spark's begin at 0 again.
    # Negative: the ledger has no batch of this checkpoint since then.
    newest = -1 if newest is None else newest - identity.batches_before
    if newest >= 0 and (begun is None or newest > begun):
        raise CheckpointError(
            f"{checkpoint.location}: ends with batch {or_none(begun)}, but {ledger} has batch {newest} of this "
            "checkpoint: this is an older copy, or another copy has continued, and it would read records again whose "
            f"rows are in the table. Name the newer state folder (--state DIR), or {RESTORE}"
        )
    if begun is None:
        return
    committed = checkpoint.next_batch - 1
    # Of the last committed batch, and of the open one, if the ledger has it; earlier starts have compared older ones.
    from_batch = identity.batches_before + max(committed, 0)
    offsets = read_offsets(client, database, config.pipeline_id, identity.checkpoint_id, from_batch)
    ledger_offsets = {batch_id - identity.batches_before: ranges for batch_id, ranges in offsets.items()}
    if committed >= 0 and committed not in ledger_offsets:
        raise CheckpointError(_lacks_batch(config, checkpoint, committed))
    for batch_id, ranges in ledger_offsets.items():
        # In a checkpoint that continues after a loss, the offsets of batches before `first_batch` were changed.
        own = checkpoint.offset_ranges(batch_id)
        # A topic that was added since has its first offsets in the log of the last batch, which did not read it.
        own = {topic: partitions for topic, partitions in own.items() if topic in ranges}
        if batch_id >= identity.first_batch and ranges != own:
            raise CheckpointError(
                f"{checkpoint.location}: batch {batch_id} read other records than {ledger} has for it: another copy of "
                f"this checkpoint has continued. Name the newer state folder (--state DIR), or {RESTORE}"
            )


def _lacks_batch(config: PipelineConfig, checkpoint: Checkpoint, batch_id: int) -> str:
    """Return the message for a committed batch that is not in the ledger."""
    return (
        f"{checkpoint.location}: batch {batch_id} is done, but {config.sink.connection_params.database}.{LEDGER.name} "
        "does not have it: the database was emptied or restored from an older backup, and the table may lack rows too, "
        f"or it is another database than the checkpoint's. Restore the newer backup, or {RESTORE}"
    )


def require_known_tables(client: Client, config: PipelineConfig, plan: BatchPlan | None) -> None:
    """Raise `CheckpointError` if the table behind a view would get rows of an open batch twice.

    plan: of the open batch, None where there is none. All of its inserts are sent again, also those that a view has
    passed on to its table. That table drops them only if it had a large enough deduplication window then, and has kept
    its tokens: so if the view was not created since, nor the table replaced or altered. Not checked with at_least_once,
    where rows may come twice. To be called before windows are switched on.
    """
    if plan is None or plan.written is None or config.sink.delivery == "at_least_once":
        return
    # Not those of the definition's sink: a route may have come since then, whose table has no rows of the batch, or
    # have gone.
    for view in _views_of(client, config, plan.written):
        target = ".".join(view.target)
        if target not in plan.written:
            if not read_window(client, *view.target).suffices:
                raise CheckpointError(
                    f"view {view.name} was created while batch {plan.batch_id} was in flight, and its target {target} "
                    "has no insert tokens of that batch, so its rows would come twice. Drop the view, start the "
                    "pipeline, and recreate the view after that batch (with an empty target if it is to have all rows)"
                )
            continue
        before = plan.begin.state_of(target)
        now = translate_errors(client, partial(read_state, client, *view.target))
        if not before.is_same_table(now) or before.lost_window(now):
            raise CheckpointError(
                f"{target}, which view {view.name} writes to, was replaced or lost its deduplication window while "
                f"batch {plan.batch_id} was in flight, so it may get rows of that batch twice. Put the former table "
                "back (EXCHANGE TABLES), start the pipeline, and replace the table after that batch; or drop the view, "
                "start the pipeline, and create the view anew after that batch"
            )


def _views_of(client: Client, config: PipelineConfig, tables: Iterable[str]) -> Iterator[View]:
    """Yield the views that an insert into one of the tables triggers. tables: database.table."""
    # Names with dots cannot be told apart where the definition does not have them.
    named = {sink.table_name: sink.full_table for sink in config.sink.by_table}
    for table in tables:
        database, _, name = table.partition(".")
        yield from find_written_tables(client, *named.get(table, (database, name))).views


def wait_for_topics(
    config: PipelineConfig,
    checkpoint: Checkpoint,
    patience: float | None,
    report: Callable[[str], None],
    report_waiting: Callable[[str], None],
) -> None:
    """Wait until the sources' topics exist and may be read.

    patience: seconds to wait for a topic that never existed, None for ever.
    report: called while a topic that existed before is looked up again.
    report_waiting: while waiting for one that never existed.
    Raises `CheckpointError` for a topic that was deleted, `TopicForbidden` for one that this user may not read, and
    `TopicMissing`.
    """
    # What the checkpoint has is of topics that existed before.
    ids, next_offsets = _known_topics(checkpoint)
    for topic in config.source_topics:
        existed = topic in ids or topic in next_offsets
        try:
            if existed:
                wait_for_topic(config.connection, topic, _DELETED_AFTER, report)
            else:
                wait_for_topic(config.connection, topic, patience, report_waiting)
        except TopicMissing as problem:
            if not existed:
                raise
            raise _deleted_error(config, topic, next_offsets.get(topic)) from problem
    require_readable(config.connection, config.source_topics)


def _known_topics(checkpoint: Checkpoint) -> tuple[dict[str, str], dict[str, dict[int, int]]]:
    """Return the topics' ids (topic -> id) and next offsets (topic -> partition -> offset) that the checkpoint has."""
    try:
        return checkpoint.topic_ids(), checkpoint.next_offsets()
    except CheckpointError:
        # Only a start with --accept-loss gets here with a damaged checkpoint, and it replaces the checkpoint.
        return {}, {}


def _deleted_error(config: PipelineConfig, topic: str, following: Mapping[int, int] | None) -> CheckpointError:
    """Return the error for a deleted topic. following: its next offsets by partition, None where nothing was read."""
    gone = f"topic {topic} does not exist on {', '.join(config.connection.brokers)} any more: it was deleted after "
    if not following:
        return CheckpointError(
            f"{gone}{config.pipeline_id} first found it, before any record was read; create it again, or correct "
            "sources[].topic, then start the pipeline again"
        )
    offsets = ", ".join(f"partition {partition}: {offset}" for partition, offset in sorted(following.items()))
    # A pattern needs no single topic.
    remedy = _LOST if config.source.topic_pattern else f"create it; then, {_LOST}"
    return CheckpointError(
        f"{gone}{config.pipeline_id} read it (next offsets: {offsets}). Unread records are lost, and a recreated "
        f"topic has other records at these offsets: {remedy}"
    )


def require_topics(config: PipelineConfig, checkpoint: Checkpoint) -> None:
    """Raise `CheckpointError` unless the topics are the ones that were read, and still have all unread records.

    Keeps the topics' ids, by which a recreated topic is detected, in the checkpoint. New partitions are no error: they
    are read from their first record.
    """
    known_ids, next_offsets = checkpoint.topic_ids(), checkpoint.next_offsets()
    current_ids = topic_ids(config.connection, config.topics)
    for topic, partitions in next_offsets.items():
        if topic in known_ids and topic in current_ids and known_ids[topic] != current_ids[topic]:
            raise CheckpointError(
                f"topic {topic} was deleted and recreated since {config.pipeline_id} read it: the offsets of its "
                f"checkpoint now refer to other records; {_LOST}"
            )
        _require_offsets(topic, partitions, offsets_if_there(config.connection, topic))
    # Before anything of a topic was read, its current id replaces another.
    ids_when_read = {topic: known for topic, known in known_ids.items() if topic in next_offsets}
    if current_ids.keys() - ids_when_read.keys():
        checkpoint.keep_topic_ids({**current_ids, **ids_when_read})


def _require_offsets(topic: str, next_offsets: Mapping[int, int], existing: Mapping[int, Offsets]) -> None:
    """Raise `CheckpointError` if a topic's next offset is outside of what Kafka has, or a partition is gone.

    next_offsets: partition -> next offset to read.
    existing: partition -> first offset, and end of the partition.
    """
    for partition, offset in next_offsets.items():
        if partition not in existing:
            raise CheckpointError(
                f"topic {topic}: partition {partition}, which was read up to offset {offset}, is gone: the topic was "
                f"deleted, or recreated with fewer partitions; {_LOST}"
            )
        low, high = existing[partition]
        if offset < low:
            raise CheckpointError(
                f"topic {topic}, partition {partition}: offsets {offset} to {low - 1} were not read and are gone: "
                f"retention or a user has removed them; {_LOST}. To prevent this, raise retention.ms of the topic and "
                "watch the lag (status)"
            )
        if offset > high:
            raise CheckpointError(
                f"topic {topic}, partition {partition}: was read up to offset {offset}, but ends at {high}: the topic "
                f"was deleted and recreated, or its end is lost; {_LOST}"
            )
