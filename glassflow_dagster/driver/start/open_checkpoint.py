"""Opens a pipeline's checkpoint for this driver: creates it if needed, fences off older drivers, checks the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.driver.start.prepare import Prepared
from glassflow_dagster.driver.start.spark import fit_to_state, shuffle_partitions, spark_settings_of
from glassflow_dagster.stores.bookkeeping.fencing import Epoch, begin_epoch
from glassflow_dagster.stores.clickhouse.server_clock import server_lead_ms
from glassflow_dagster.stores.clickhouse.table import Table, count_by_table
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint, CheckpointIdentity
from glassflow_dagster.stream.checkpoint.consistency import require_committed_in_ledger, require_ledger, require_topics
from glassflow_dagster.stream.checkpoint.first_start import require_alone, require_nothing_written
from glassflow_dagster.stream.checkpoint.writer_claim import WriterClaim, claim_checkpoint, last_claimed_epoch
from glassflow_dagster.stream.delivery.batch_clock import BatchClock, Reading, tolerance_of
from glassflow_dagster.stream.spark.session import SHUFFLE_PARTITIONS


@dataclass(frozen=True)
class OpenCheckpoint:
    """A checkpoint that only this driver may use.

    epoch: the driver's number, which every insert checks in ClickHouse.
    claim: the same in the checkpoint's storage, which every batch checks.
    """

    checkpoint: Checkpoint
    identity: CheckpointIdentity
    epoch: Epoch
    claim: WriterClaim


def open_checkpoint(run: RunContext, prepared: Prepared, spark: SparkSession) -> OpenCheckpoint:
    """Open the checkpoint for this driver: create or rebuild a missing one, fence off older drivers, check the ledger.

    The session's shuffle partitions are set to those that the checkpoint's state was created with. Raises
    `CheckpointError` where continuing from the checkpoint would lose or duplicate rows.
    """
    checkpoint = prepared.checkpoint
    identity = _with_partitions(checkpoint, _find_or_create(run, prepared, spark), spark)
    identity = _with_tables(checkpoint, identity, prepared.tables)
    run.heartbeat.update({"checkpoint_id": identity.checkpoint_id})
    settings = spark_settings_of(run.config, run.options)
    fit_to_state(spark, identity.shuffle_partitions, settings)
    if warning := _partitions_warning(run.config, settings, identity.shuffle_partitions):
        run.warn(warning)
    # Before this driver fences off one that can go on, where this one could not.
    run.retry(lambda: require_committed_in_ledger(prepared.client, run.config, checkpoint, identity))
    require_plausible_clock(run, prepared, checkpoint)
    epoch = _begin_epoch(run, prepared, identity)
    claim = claim_checkpoint(checkpoint.storage, epoch)
    if checkpoint.is_new and not run.options.start_over:
        run.retry(lambda: require_alone(prepared.client, run.config, prepared.tables, epoch))
    # Only after the epoch has begun: until then an older driver may still have written to the ledger.
    run.retry(lambda: require_ledger(prepared.client, run.config, checkpoint, identity))
    checkpoint.forget_unplanned()
    return OpenCheckpoint(checkpoint, identity, epoch, claim)


def batch_clock(run: RunContext, config: PipelineConfig, checkpoint: Checkpoint) -> BatchClock | None:
    """Return the check that batch times neither go back nor jump ahead; None for a pipeline without a window.

    The tolerance in seconds follows from the shortest window; --accept-clock skips the check of the first batch.
    """
    tolerance = tolerance_of(config)
    if tolerance is None:
        return None
    return BatchClock(tolerance, checkpoint.last_committed(), run.options.accept_clock, run.report)


def require_plausible_clock(run: RunContext, prepared: Prepared, checkpoint: Checkpoint) -> None:
    """Raise `ClockMoved` if the next batch would be refused as this host's clock does not fit the last batch."""
    clock = batch_clock(run, run.config, checkpoint)
    if clock is None or run.options.accept_clock:
        return
    lead_ms = run.retry(lambda: server_lead_ms(prepared.client))
    reading = Reading.now()
    clock.require_plausible(round(reading.wall * 1000), reading, lead_ms)


def _find_or_create(run: RunContext, prepared: Prepared, spark: SparkSession) -> CheckpointIdentity:
    """Return the checkpoint's identity; rebuild or create the checkpoint first where there is none."""
    checkpoint, tables = prepared.checkpoint, prepared.tables
    identity = checkpoint.identity()
    if identity is None and run.options.rebuild:
        run.report_starting("rebuilding the state ...")
        run.options.rebuild(spark, run.config, tables, checkpoint, run.report_starting)
        require_topics(run.config, checkpoint)
        identity = checkpoint.identity()
    if identity is not None:
        return identity
    if not run.options.start_over:
        # Checked before the session was opened, too; another driver may have written in the meantime.
        run.retry(lambda: require_nothing_written(prepared.client, run.config))
    checkpoint.storage.require_atomic_creation()
    return checkpoint.create(run.config, tables[0].rows, shuffle_partitions(spark))


def _with_partitions(checkpoint: Checkpoint, identity: CheckpointIdentity, spark: SparkSession) -> CheckpointIdentity:
    """Return the identity with its number of state partitions.

    `--accept-loss` leaves the number at 0, as the new state may have any; then it is set to the session's and written.
    """
    if identity.shuffle_partitions:
        return identity
    with_number = identity.model_copy(update={"shuffle_partitions": shuffle_partitions(spark)})
    checkpoint.replace_identity(with_number)
    return with_number


def _with_tables(checkpoint: Checkpoint, identity: CheckpointIdentity, tables: Sequence[Table]) -> CheckpointIdentity:
    """Return the identity with the row counts of all tables, where the sink has several; write those of new tables.

    A table that a route names from now on has no row of this pipeline yet.
    """
    if len(tables) == 1:
        return identity
    own, *further = tables
    rows = {table.full_name: table.rows for table in further}
    known = {**rows, own.full_name: identity.rows_before, **identity.rows_before_by_table}
    if known == identity.rows_before_by_table:
        return identity
    with_rows = identity.model_copy(update={"rows_before_by_table": known})
    checkpoint.replace_identity(with_rows)
    return with_rows


def _begin_epoch(run: RunContext, prepared: Prepared, identity: CheckpointIdentity) -> Epoch:
    """Fence off older drivers of the pipeline, on any host; return this driver's epoch.

    Its row has the row counts of the sink's tables, by which a later first start elsewhere sees whether this driver has
    written.
    """
    client, config = prepared.client, run.config
    scope = (config.sink.connection_params.database, config.pipeline_id, identity.checkpoint_id)
    rows = run.retry(lambda: count_by_table(client, prepared.tables))
    checkpoint = prepared.checkpoint
    place = str(run.folder) if checkpoint.storage.folder else checkpoint.location
    return run.retry(lambda: begin_epoch(client, *scope, place, rows, last_claimed_epoch(checkpoint.storage)))


def _partitions_warning(config: PipelineConfig, settings: Mapping[str, str], partitions: int) -> str | None:
    """Return what to do where a run asks for more tasks than the state has partitions; None where it does not.

    settings: those of `spark_settings_of`.
    """
    cores = config.resources.cores if config.resources else None
    wanted = max(int(settings.get(SHUFFLE_PARTITIONS, 0)), cores or 0)
    if wanted <= partitions or not config.has_state:
        return None
    return (
        f"the state has {partitions} partitions, so no more tasks use it at once, but the settings ask for {wanted}; "
        f"stop the pipeline and run: glassflow-dagster state repartition {config.pipeline_id} --partitions {wanted}"
    )
