"""Whether a checkpoint, the ledger and the topics still belong together, asked before a driver reads anything.

Each of them may be restored, copied or rebuilt without the others. Going on then would lose rows or double them
without a word: a topic that was recreated has other records under the same offsets, and a checkpoint that is older than
the ledger reads again what is in the table.
"""

from collections.abc import Callable, Mapping

from clickhouse_connect.driver.client import Client

from glassflow_dagster.bookkeeping.ledger import LEDGER, last_batch, read_offsets
from glassflow_dagster.clickhouse.target.token_window import read_window
from glassflow_dagster.clickhouse.target.views import find_written_tables
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.kafka.errors import TopicMissing
from glassflow_dagster.kafka.topics import Offsets, offsets_if_there, require_readable, topic_ids, wait_for_topic
from glassflow_dagster.streaming.checkpoint.checkpoint import (
    RESTORE,
    BatchPlan,
    Checkpoint,
    CheckpointError,
    CheckpointIdentity,
    or_none,
    state_shape,
)

_LOST = (
    "to go on without them, run it with --accept-loss, which writes down what is skipped; or empty the table and run "
    "it with --start-over"
)

# Brokers that have just come up may not know their topics yet: for so long a topic that was there is asked for again.
_SETTLING = 5.0  # seconds


def require_same_definition(config: PipelineConfig, checkpoint: Checkpoint) -> None:
    """Raise `CheckpointError` where the definition names another table, other topics or another state.

    These are fixed for as long as a checkpoint lives; a new checkpoint takes any. No server is asked.
    """
    found, table = checkpoint.identity(), ".".join(config.sink.full_table)
    if found is None:
        return
    if found.table != table:
        raise CheckpointError(
            f"{checkpoint.folder}: writes to {found.table}, but the definition says {table}; give the definition "
            "a new pipeline_id to fill another table from the beginning"
        )
    if found.topics != config.topics:
        reads, asked = (", ".join(topics[:-1]) for topics in (found.topics, config.topics))
        raise CheckpointError(
            f"{checkpoint.folder}: reads topic {reads}, but the definition says {asked}; "
            "take the edit back, or give the definition a new pipeline_id and table"
        )
    if found.state != state_shape(config):
        raise CheckpointError(
            f"{checkpoint.folder}: was built for {found.state}, but the definition says "
            f"{state_shape(config)}; take the edit back, or give the definition a new pipeline_id and table"
        )


def require_ledger(
    client: Client, config: PipelineConfig, checkpoint: Checkpoint, identity: CheckpointIdentity
) -> None:
    """Raise `CheckpointError` unless checkpoint and ledger tell of the same batches.

    The ledger's row of a batch is written before Spark closes it. So it has every batch that is closed, perhaps the one
    that is begun, and none beyond.
    """
    database = config.sink.connection_params.database
    ledger, begun = f"{database}.{LEDGER.name}", checkpoint.last_begun
    newest = last_batch(client, database, config.pipeline_id, identity.checkpoint_id)
    # Those before are of a checkpoint whose place this one took.
    newest = -1 if newest is None else newest - identity.batches_before
    if newest >= 0 and (begun is None or newest > begun):
        raise CheckpointError(
            f"{checkpoint.folder}: ends with batch {or_none(begun)}, but {ledger} has batch {newest} "
            "of it: this is an older copy, or another copy of it went on, and it would read again what is in the "
            f"table. Name the state folder that went on (--state DIR), or {RESTORE}"
        )
    if begun is None:
        return
    closed = checkpoint.next_batch - 1
    first = identity.batches_before + max(closed, 0)
    found = read_offsets(client, database, config.pipeline_id, identity.checkpoint_id, first)
    told = {batch_id - identity.batches_before: read for batch_id, read in found.items()}
    if closed >= 0 and closed not in told:
        raise CheckpointError(
            f"{checkpoint.folder}: batch {closed} is done, but {ledger} has not got it: the database was emptied, or "
            "restored from an older copy, and rows may be missing in the table, too. Restore the newer one, or "
            f"{RESTORE}"
        )
    for batch_id, read in told.items():
        if batch_id >= identity.first_batch and read != checkpoint.offset_ranges(batch_id):
            raise CheckpointError(
                f"{checkpoint.folder}: batch {batch_id} read other records than {ledger} has for it: another copy of "
                f"this checkpoint went on. Name the state folder that went on (--state DIR), or {RESTORE}"
            )


def require_known_tables(client: Client, config: PipelineConfig, plan: BatchPlan | None) -> None:
    """Raise `CheckpointError` where a view has come since an open batch was begun, and its table would get rows twice.

    plan: of the batch that was begun and not closed. All of its inserts are sent again, also those that the view has
    passed on; only a table that remembered them then, by a window that it was made with, drops them.
    """
    if plan is None or plan.written is None or config.sink.delivery == "at_least_once":
        return
    for view in find_written_tables(client, *config.sink.full_table).views:
        target = ".".join(view.target)
        if target not in plan.written and not read_window(client, *view.target).suffices:
            raise CheckpointError(
                f"view {view.name} was made while batch {plan.batch_id} was under way, and {target}, which it writes "
                "to, does not remember what it got of that batch, which would come twice. Drop the view, start the "
                "pipeline, and make the view again after that batch (with an empty table, where the view is to have "
                "all rows)"
            )


def wait_for_topics(
    config: PipelineConfig,
    checkpoint: Checkpoint,
    patience: float | None,
    say: Callable[[str], None],
    say_waiting: Callable[[str], None],
) -> None:
    """Return once the sources' topics are there and may be read.

    patience: how many seconds to wait for a topic that was never there, None for ever. say, say_waiting: what to tell
    while one that was there is asked for again, or one that never was is waited for. Raises `CheckpointError` for a
    topic that was deleted, `TopicForbidden` for one that this user may not read, and `TopicMissing`.
    """
    ids, following = _known_topics(checkpoint)
    for source in config.inputs:
        topic = source.topic
        was_there = topic in ids or topic in following
        try:
            if was_there:
                wait_for_topic(source.connection_params, topic, _SETTLING, say)
            else:
                wait_for_topic(source.connection_params, topic, patience, say_waiting)
        except TopicMissing as problem:
            if not was_there:
                raise
            raise _deleted(config, topic, following.get(topic)) from problem
    require_readable(config.connection, [source.topic for source in config.inputs])


def _known_topics(checkpoint: Checkpoint) -> tuple[dict[str, str], dict[str, dict[int, int]]]:
    try:
        return checkpoint.topic_ids(), checkpoint.next_offsets()
    except CheckpointError:
        # It cannot be used, so nobody goes on from it: a start that gets here gives it up (--accept-loss).
        return {}, {}


def _deleted(config: PipelineConfig, topic: str, following: Mapping[int, int] | None) -> CheckpointError:
    """Say that a topic is gone. following: what would be read next of it, None where nothing was read."""
    gone = f"topic {topic} does not exist on {', '.join(config.connection.brokers)} any more: it was deleted since "
    if not following:
        return CheckpointError(
            f"{gone}{config.pipeline_id} first found it, before anything of it was read; create it again, or correct "
            "sources[].topic, then start the pipeline again"
        )
    offsets = ", ".join(f"partition {partition}: {offset}" for partition, offset in sorted(following.items()))
    return CheckpointError(
        f"{gone}{config.pipeline_id} read it (next offsets: {offsets}). What was not read is lost, and a topic that is "
        f"created again has other records under these offsets: create it; then, {_LOST}"
    )


def require_topics(config: PipelineConfig, checkpoint: Checkpoint) -> None:
    """Raise `CheckpointError` unless the topics are those that were read, with all that was not read yet.

    Notes the brokers' names of the topics. Partitions that are new are read from their first record.
    """
    known, following = checkpoint.topic_ids(), checkpoint.next_offsets()
    found = topic_ids(config.connection, config.topics)
    for topic, partitions in following.items():
        if topic in known and topic in found and known[topic] != found[topic]:
            raise CheckpointError(
                f"topic {topic} was deleted and recreated since {config.pipeline_id} read it: the offsets of its "
                f"checkpoint mean other records now; {_LOST}"
            )
        _require_offsets(topic, partitions, offsets_if_there(config.connection, topic))
    kept = known if following else {}
    if found.keys() - kept.keys():
        checkpoint.keep_topic_ids({**found, **kept})


def _require_offsets(topic: str, following: Mapping[int, int], there: Mapping[int, Offsets]) -> None:
    for partition, offset in following.items():
        if partition not in there:
            raise CheckpointError(
                f"topic {topic}: partition {partition}, which was read up to offset {offset}, is gone: the topic was "
                f"deleted, or recreated with fewer partitions; {_LOST}"
            )
        low, high = there[partition]
        if offset < low:
            raise CheckpointError(
                f"topic {topic}, partition {partition}: offsets {offset} to {low - 1} were not read and are gone: "
                f"retention has removed them, or somebody has; {_LOST}. A longer retention.ms of the topic, and a look "
                "at the lag (status), keep that from happening again"
            )
        if offset > high:
            raise CheckpointError(
                f"topic {topic}, partition {partition}: was read up to offset {offset}, but ends at {high}: the topic "
                f"was deleted and recreated, or its end is lost; {_LOST}"
            )
