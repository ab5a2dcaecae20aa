"""Prepares a run while Spark's JVM starts: checkpoint files, ClickHouse tables, topics.

Everything that can be checked without Spark is checked here, before a session is opened: an error that comes after it
looks like a failure of the stream.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from clickhouse_connect.driver.client import Client

from glassflow_dagster.control.heartbeat import make_pipeline_folder
from glassflow_dagster.definition.load import warnings
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.rules.state import state_problems
from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.driver.start.outdated_batch import find_outdated_batch, find_tables_of
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.bookkeeping.schema_changes import effective_definition
from glassflow_dagster.stores.bookkeeping.tables import TABLES, ensure_bookkeeping
from glassflow_dagster.stores.bookkeeping.windows import Windows
from glassflow_dagster.stores.clickhouse.client import wait_for_clickhouse
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.table import Table
from glassflow_dagster.stores.clickhouse.tables.prepare import prepare_target, secure_target
from glassflow_dagster.stores.clickhouse.tables.quorum import require_replicas, rows_on_one_replica
from glassflow_dagster.stores.kafka.errors import TopicForbidden, TopicMissing
from glassflow_dagster.stores.kafka.replay_topic import ensure_replay_topic
from glassflow_dagster.stores.kafka.start_offsets import starting_offsets
from glassflow_dagster.stores.kafka.topics import cleanup_of, wait_for_brokers
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint, CheckpointError
from glassflow_dagster.stream.checkpoint.consistency import (
    require_known_tables,
    require_same_definition,
    require_topics,
    wait_for_topics,
)
from glassflow_dagster.stream.checkpoint.first_start import require_empty, require_nothing_written
from glassflow_dagster.stream.checkpoint.repartition_files import finish_replacement
from glassflow_dagster.stream.checkpoint.restore import COPY_FIRST


@dataclass(frozen=True)
class Prepared:
    """The result of the preparation.

    client: stays open during the run; its connection pool survives an outage.
    config: the definition with the fields that the pipeline took up.
    tables: the sink's, in the order of `Sink.by_table`.
    """

    client: Client
    config: PipelineConfig
    tables: tuple[Table, ...]
    checkpoint: Checkpoint
    compacted_topics: frozenset[str]


def prepare(run: RunContext) -> Prepared:
    """Wait for the servers, create tables and topics, and check definition, topics and checkpoint against each other.

    Raises `GlassflowError` where the pipeline cannot run, and `Stopped` when a signal asks it to stop meanwhile.
    """
    checkpoint = run.checkpoint()
    _prepare_checkpoint_files(run, checkpoint)
    for warning in warnings(run.config):
        run.warn(warning)
    connection = run.config.sink.connection_params
    client = wait_for_clickhouse(connection, run.options.timeout_seconds, run.report_unreachable)
    declared = run.config
    run = replace(run, config=run.retry(lambda: effective_definition(client, declared)))
    try:
        tables = prepare_tables(run, client, checkpoint)
    except TableProblem as problem:
        raise _naming_added_fields(problem, declared, run.config) from problem
    prepare_topics(run, checkpoint)
    if run.options.accept:
        run.options.accept(client, run.config, tables, checkpoint, run.report)
        require_same_definition(run.config, checkpoint)
    require_topics(run.config, checkpoint)
    if checkpoint.next_batch == 0 and checkpoint.pending_plan() is None:
        _require_first_start(run, client, checkpoint)
    _require_finishable(run, client, tables, checkpoint)
    return Prepared(client, run.config, tables, checkpoint, compacted_topics(run))


def require_store(run: RunContext) -> None:
    """Raise `GlassflowError` where the store of the checkpoint cannot be used, or not with these options."""
    state = run.config.state
    if state is None:
        return
    if state.folder is not None:
        _make_store_folder(state.folder / run.config.pipeline_id)
        return
    # The environment names the store after the rules have seen the definition, and the command line the pool.
    for problem in state_problems(run.config):
        raise GlassflowError(f"{problem.path}: {problem.text}")
    if run.options.pool:
        raise GlassflowError(f"--pool: state in {state.url} needs a JVM of its own; remove the option")
    option = "--rebuild-state" if run.options.rebuild else "--accept-loss" if run.options.accept else None
    if option:
        raise GlassflowError(f"{option}: needs the checkpoint in a folder, and it is in {state.url}; {COPY_FIRST}")
    run.checkpoint().storage.require_usable()


def _make_store_folder(folder: Path) -> None:
    """Create a pipeline's folder in a store, which only its user may read; raise `GlassflowError` where that fails."""
    try:
        make_pipeline_folder(folder)
    except OSError as error:
        raise GlassflowError(f"{folder}: cannot be written ({error.strerror}); name another folder as state") from None


def _require_finishable(run: RunContext, client: Client, tables: Sequence[Table], checkpoint: Checkpoint) -> None:
    """Raise `CheckpointError` if a batch that was begun with another definition cannot be finished, once Spark runs."""
    outdated = find_outdated_batch(run.config, tables, checkpoint)
    if outdated is not None:
        run.retry(lambda: find_tables_of(client, outdated))


def _prepare_checkpoint_files(run: RunContext, checkpoint: Checkpoint) -> None:
    """Move the checkpoint aside where the options ask for it, and check the one that is left, if any.

    With --rebuild-state a damaged one is moved aside, with --start-over any. --accept-loss checks nothing here. No
    server is contacted. Raises `CheckpointError`.
    """
    if checkpoint.storage.folder is not None:
        finish_replacement(checkpoint.folder)
    if run.options.rebuild:
        _set_damaged_aside(run, checkpoint)
    if run.options.start_over:
        _set_aside(run, checkpoint)
    if run.options.accept:
        # A checkpoint that cannot be used may be the very reason for --accept-loss.
        return
    checkpoint.inspect()
    require_same_definition(run.config, checkpoint)
    # Spark's files contain the absolute path of the checkpoint's folder, which a user may have moved.
    checkpoint.follow_move()


def _set_damaged_aside(run: RunContext, checkpoint: Checkpoint) -> None:
    """Move a damaged checkpoint aside; keep and use one that is intact."""
    try:
        checkpoint.inspect()
    except CheckpointError as problem:
        run.warn(str(problem))
        _set_aside(run, checkpoint)
        return
    if not checkpoint.is_new:
        run.report("the checkpoint is intact, so nothing is rebuilt")


def _set_aside(run: RunContext, checkpoint: Checkpoint) -> None:
    """Rename the checkpoint's folder, if there is one, so that the run begins without a checkpoint.

    Raises `CheckpointError` where it is in an object store, which has no renaming.
    """
    if checkpoint.storage.folder is None:
        if checkpoint.storage.names(""):
            raise CheckpointError(
                f"{checkpoint.location}: has a checkpoint already, which is set aside in a folder only; remove "
                "what is below it, or name another URL, then use --start-over"
            )
        return
    if checkpoint.folder.exists():
        aside = checkpoint.folder.with_name(time.strftime("checkpoint.aside-%Y%m%d-%H%M%S"))
        checkpoint.folder.rename(aside)
        run.warn(f"the old checkpoint is now in {aside}; remove it when the pipeline runs again")


def prepare_tables(run: RunContext, client: Client, checkpoint: Checkpoint) -> tuple[Table, ...]:
    """Create the sink's tables (if allowed) and the bookkeeping tables, check them, and return the sink's.

    `secure_target` sees to the deduplication windows of all tables that inserts reach.
    """
    config, options = run.config, run.options
    tables = _find_or_create(run, client)
    database = config.sink.connection_params.database
    run.retry(lambda: ensure_bookkeeping(client, database, config.sink.bookkeeping_engine, config.sink.cluster))
    # Before anything is written.
    run.retry(lambda: require_replicas(client, [(database, each.name) for each in TABLES], tables))
    if not options.accept:
        run.retry(lambda: require_known_tables(client, config, checkpoint.pending_plan()))
    if options.start_over:
        run.retry(lambda: require_empty(client, config, tables))
    if warning := rows_on_one_replica(client, tables):
        run.warn(warning)
    return secured(run, client, config, tables)


def _naming_added_fields(problem: TableProblem, declared: PipelineConfig, config: PipelineConfig) -> TableProblem:
    """Return the problem, with the remedy where it is of fields that are not in the file: the pipeline took them up.

    declared: the definition of the file.
    config: with the fields that were taken up, whose mappings are the last ones.
    """
    first = len(declared.sink.mapping)
    names = [
        mapping.name
        for index, mapping in enumerate(config.sink.mapping[first:], first)
        if f"{config.sink.paths.mapping}[{index}]" in str(problem)
    ]
    if not names:
        return problem
    return TableProblem(
        f"{problem}\nnot in the file, but taken up by schema_evolution: {', '.join(names)}; declare them in "
        "schema_fields, and map them to a column of their type, or to none: then the file counts"
    )


def find_tables(run: RunContext, client: Client) -> tuple[Table, ...]:
    """Return the sink's tables as they are now, checked against the definition and secured as at a start."""
    return secured(run, client, run.config, _find_or_create(run, client))


def _find_or_create(run: RunContext, client: Client) -> list[Table]:
    """Return the sink's tables; create missing ones where the options or the definition allow it."""
    create = run.options.create_table
    return run.retry(lambda: [prepare_target(client, of_table, create=create) for of_table in run.config.by_table])


def secured(run: RunContext, client: Client, config: PipelineConfig, tables: Sequence[Table]) -> tuple[Table, ...]:
    """Return the tables of a definition's sink as `secure_target` does, in the order of `Sink.by_table`."""
    window_notes = Windows(client, config.sink.connection_params.database)
    return tuple(
        run.retry(partial(secure_target, client, of_table, table, window_notes, run.warn))
        for of_table, table in zip(config.by_table, tables, strict=True)
    )


def prepare_topics(run: RunContext, checkpoint: Checkpoint) -> None:
    """Wait for the brokers and the topics, and create the replay topic where the brokers allow it."""
    wait_for_brokers(run.config.connection, run.options.timeout_seconds, run.report_unreachable)
    wait_for_topics(run.config, checkpoint, run.topic_patience, run.report_starting, run.report_waiting)
    try:
        ensure_replay_topic(run.config)
    except (TopicMissing, TopicForbidden) as problem:
        run.warn(f"dead letters cannot be replayed: {problem}")


def _require_first_start(run: RunContext, client: Client, checkpoint: Checkpoint) -> None:
    """Check a pipeline without a batch: nothing may be written yet, and the definition's start offsets must exist.

    Raises `GlassflowError`. Nothing is checked where the checkpoint will be rebuilt.
    """
    identity = checkpoint.identity()
    if identity is None:
        if run.options.rebuild:
            return
        if not run.options.start_over:
            run.retry(lambda: require_nothing_written(client, run.config))
    # A checkpoint that continues after a loss has start offsets of its own.
    if identity is None or not identity.starting:
        # Only for the error where they do not exist. They are read again when the query starts: a topic may have a new
        # partition by then.
        for index in range(len(run.config.inputs)):
            starting_offsets(run.config, index)


def compacted_topics(run: RunContext) -> frozenset[str]:
    """Return the compacted topics of the sources; warn of topics whose settings cannot be read."""
    cleanup = cleanup_of(run.config.connection, run.config.source_topics)
    for topic in sorted(cleanup.unknown):
        run.warn(
            f"cannot see whether topic {topic} is compacted; if it is, a batch that is repeated after a crash may "
            "duplicate rows; grant DESCRIBE_CONFIGS on the topic"
        )
    return cleanup.compacted
