"""Changes the number of partitions of a stopped pipeline's state: `state repartition`.

It is done only on request, not when a start finds other settings: it takes as long as reading and writing the whole
state, during which the pipeline stands still. A driver warns instead (`start/open_checkpoint.py`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from clickhouse_connect.driver.client import Client
from pyspark.sql import SparkSession

from glassflow_dagster.control.lock import PipelineLock
from glassflow_dagster.control.log import DriverLog, log_of
from glassflow_dagster.control.state_folder import prepare_folder
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.failures import disk_failures
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.start.spark import fit_to_state, spark_settings_of, starting_spark
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.bookkeeping.fencing import begin_epoch
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.table import require_table
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint, CheckpointError, CheckpointIdentity
from glassflow_dagster.stream.checkpoint.consistency import require_ledger, require_same_definition
from glassflow_dagster.stream.checkpoint.open_storage import open_storage
from glassflow_dagster.stream.checkpoint.repartition_files import (
    complete,
    finish_replacement,
    new_checkpoint,
    replace_checkpoint,
    take_over_logs,
)
from glassflow_dagster.stream.checkpoint.writer_claim import claim_checkpoint, last_claimed_epoch
from glassflow_dagster.stream.repartition import read_states, write_states


@dataclass(frozen=True)
class Repartitioned:
    """The number of partitions of a state before and after. rows: of the state; None where nothing was written."""

    before: int
    after: int
    rows: int | None = None


def repartition_state(
    config: PipelineConfig, state: Path, partitions: int, report: Callable[[str], None]
) -> Repartitioned:
    """Write the state of a stopped pipeline anew with so many partitions; it continues with its next batch.

    All keys, waiting events, timers and clocks are kept. Until the new checkpoint is complete, the old one stays as it
    is, so this may be killed at any time.

    state: the folder of all pipelines.
    report: receives progress.
    Raises `AlreadyRunning` while a driver of this host runs the pipeline, and `GlassflowError` where the checkpoint
    cannot be used: it is in an object store, has an open batch, or does not fit the definition or the ledger.
    """
    log = log_of(report)
    # A JVM of its own, which the other pipelines of a pool do not wait for.
    config = config.model_copy(update={"pool": None})
    folder = prepare_folder(state, config.pipeline_id)
    checkpoint = Checkpoint(open_storage(config.state, folder, config.pipeline_id))
    with disk_failures(folder), PipelineLock(folder) as lock:
        finish_replacement(checkpoint.folder)
        identity = _usable_identity(config, checkpoint)
        before = identity.shuffle_partitions
        if before == partitions:
            return Repartitioned(before, partitions)
        if checkpoint.is_new:
            # No batch has begun, so there is no state yet.
            checkpoint.replace_identity(identity.model_copy(update={"shuffle_partitions": partitions}))
            return Repartitioned(before, partitions)
        options = RunOptions(state)
        with starting_spark(config, options, folder, lock, log) as start:
            client = _fence_off(config, checkpoint, identity, folder)
            # Of a batch without a plan nothing was read; it is not part of the new checkpoint.
            checkpoint.forget_unplanned()
            require_ledger(client, config, checkpoint, identity)
            _require_no_open_batch(config, checkpoint, state)
            with start.session(log) as spark:
                fit_to_state(spark, partitions, spark_settings_of(config, options))
                rows = _Repartitioning(config, checkpoint, identity, partitions, log).write(spark)
        # Spark has ended, so nothing writes into either of them.
        replace_checkpoint(checkpoint.folder)
        checkpoint.follow_move()
        return Repartitioned(before, partitions, rows)


def _usable_identity(config: PipelineConfig, checkpoint: Checkpoint) -> CheckpointIdentity:
    """Return the identity of a checkpoint that the definition fits; raise `CheckpointError` for any other."""
    if not config.has_state:
        raise CheckpointError(
            f"{config.pipeline_id}: neither deduplicates nor joins, so it has no state; its tasks follow from the "
            "partitions of its topics"
        )
    checkpoint.inspect()
    require_same_definition(config, checkpoint)
    identity = checkpoint.identity()
    if identity is None:
        raise CheckpointError(
            f"{checkpoint.location}: has no checkpoint of {config.pipeline_id}; name the state that it runs with "
            "(--state DIR)"
        )
    checkpoint.follow_move()
    return identity


def _fence_off(config: PipelineConfig, checkpoint: Checkpoint, identity: CheckpointIdentity, folder: Path) -> Client:
    """Begin an epoch and claim the checkpoint, so that no driver, on any host, writes any more; return the client."""
    client, database = connect(config.sink.connection_params), config.sink.connection_params.database
    ensure_bookkeeping(client, database, config.sink.bookkeeping_engine, config.sink.cluster)
    tables = [require_table(client, *sink.full_table) for sink in config.sink.by_table]
    rows = {table.full_name: table.rows for table in tables}
    scope = (database, config.pipeline_id, identity.checkpoint_id)
    epoch = begin_epoch(client, *scope, str(folder), rows, last_claimed_epoch(checkpoint.storage))
    claim_checkpoint(checkpoint.storage, epoch)
    return client


def _require_no_open_batch(config: PipelineConfig, checkpoint: Checkpoint, state: Path) -> None:
    """Raise `CheckpointError` where a batch is open: its blocks are cut by the present partitions."""
    if checkpoint.open_batch is None:
        return
    raise CheckpointError(
        f"{config.pipeline_id}: batch {checkpoint.open_batch} is open, and can be repeated with the present partitions "
        f"only; finish it first: glassflow-dagster run FILE --until-caught-up --state {state}"
    )


@dataclass(frozen=True)
class _Repartitioning:
    """Writes the new checkpoint beside the old one.

    identity: of the old one.
    partitions: of the new one.
    """

    config: PipelineConfig
    checkpoint: Checkpoint
    identity: CheckpointIdentity
    partitions: int
    log: DriverLog

    def write(self, spark: SparkSession) -> int:
        """Write the new checkpoint, and compare what both hold; return the rows of the state.

        spark: has as many shuffle partitions as the new state. Raises `GlassflowError` where they differ, or the old
        one has changed meanwhile; then the new one is not complete.
        """
        config, checkpoint = self.config, self.checkpoint
        last_batch = checkpoint.next_batch - 1
        old = read_states(spark, config, checkpoint)
        self.log(f"writing the state after batch {last_batch} with {self.partitions} partitions ...")
        new = new_checkpoint(checkpoint.folder)
        write_states(old, config, new.spark_location, checkpoint.batch_time_ms(last_batch))
        take_over_logs(checkpoint, new, self.partitions)
        self.log("comparing the new state with the old one ...")
        sums = old.sums()
        if read_states(spark, config, new).sums() != sums:
            raise GlassflowError(
                f"{new.location}: does not hold what {checkpoint.location} holds, which stays in use; report this as "
                "a defect"
            )
        if checkpoint.last_begun != last_batch:
            raise CheckpointError(
                f"{checkpoint.location}: a driver has written meanwhile; stop the pipeline, then repartition again"
            )
        complete(new, self.identity.model_copy(update={"shuffle_partitions": self.partitions}))
        return sum(rows for rows, _ in sums)
