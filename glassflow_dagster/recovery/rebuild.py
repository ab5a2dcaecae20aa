"""Makes a lost checkpoint anew, so that its pipeline goes on where the ledger ends: `run --rebuild-state`.

The new one has the name of the old one, so the ledger goes on, and dead letters and their replays stay its own. Its
insert tokens are others: the batch that was under way is done again with other blocks. The rows of it that are in the
table are found, and left as they are.
"""

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from clickhouse_connect.driver.client import Client
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from glassflow_dagster.bookkeeping.dead_letters import DEAD_LETTERS
from glassflow_dagster.bookkeeping.fencing import begin_epoch
from glassflow_dagster.bookkeeping.ledger import BatchRange, read_history
from glassflow_dagster.bookkeeping.splits import SPLITS
from glassflow_dagster.bookkeeping.totals import read_totals
from glassflow_dagster.clickhouse.client import connect
from glassflow_dagster.clickhouse.tables import Table, require_table
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.kafka.topics import offsets_if_there
from glassflow_dagster.recovery.checkpoint_files import as_of_batch, begin_batch, write_state
from glassflow_dagster.recovery.dedup_keys import Accepted, replay_dedup
from glassflow_dagster.recovery.errors import CannotRebuild
from glassflow_dagster.recovery.inflight_batch import following_ranges, records_there, unknown_rows
from glassflow_dagster.recovery.records import LostCheckpoint, Records
from glassflow_dagster.streaming.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.streaming.spark.session import SHUFFLE_PARTITIONS
from glassflow_dagster.streaming.spark.spark_errors import explain_failure
from glassflow_dagster.verification.exact.canonical import hashed
from glassflow_dagster.verification.exact.compare_keys import compared_columns

Report = Callable[[str], None]


def rebuild_checkpoint(
    spark: SparkSession, config: PipelineConfig, table: Table, checkpoint: Checkpoint, report: Report
) -> None:
    """Make a checkpoint that goes on behind the ledger's last batch; the old driver writes nothing from here on.

    `spark` is the session that the pipeline will run in. Raises `GlassflowError` where it cannot be made exactly.
    """
    require_possible(config)
    client = connect(config.sink.connection_params)
    past, checkpoint_id = _past(client, config)
    database = config.sink.connection_params.database
    begin_epoch(client, database, config.pipeline_id, checkpoint_id, str(checkpoint.folder.parent), table.rows)
    table = require_table(client, table.database, table.name)
    now_ms = max(int(time.time() * 1000), past.batches[-1].batch_time_ms + 1)
    compared = compared_columns(config, table)
    records = Records(spark, config, table, checkpoint_id, hashed(compared.values)[0].alias("row_hash"))
    totals = read_totals(client, database, config.pipeline_id)
    try:
        accepted = replay_dedup(records, past, now_ms, report)
        ranges = following_ranges(past, now_ms)
        report(f"looking for rows of a batch that was under way in {table.database}.{table.name} ...")
        there = records_there(records, ranges, accepted, compared, unknown_rows(config, table, totals))
        work = checkpoint.folder.with_name("checkpoint.new")
        shutil.rmtree(work, ignore_errors=True)
        made = _write(records, past, accepted, work, now_ms)
    except PySparkException as error:
        raise GlassflowError(
            f"{config.pipeline_id}: the state could not be rebuilt: {explain_failure(error)}"
        ) from error
    finally:
        spark.catalog.clearCache()
    # The batch that was under way is done again, and writes these again.
    for bookkeeping in (DEAD_LETTERS, SPLITS):
        last = past.batches[-1].batch_id
        bookkeeping.delete_later_batches(client, database, config.pipeline_id, checkpoint_id, last)
    if there:
        begin_batch(made.folder, _up_to(config, ranges, there))
        made.keep_already_written(past.batches[-1].batch_id + 1, there)
    partitions = int(str(spark.conf.get(SHUFFLE_PARTITIONS)))
    made.create(config, f"{table.database}.{table.name}", totals.rows_before, partitions, checkpoint_id)
    # What is there is new: of topics, their names only.
    shutil.rmtree(checkpoint.folder, ignore_errors=True)
    made.folder.rename(checkpoint.folder)
    shutil.rmtree(work, ignore_errors=True)
    checkpoint.follow_move()
    report(
        f"the state is rebuilt behind batch {past.batches[-1].batch_id}; "
        f"{len(there):,} rows of the batch that was under way are in the table and stay"
    )


def require_possible(config: PipelineConfig) -> None:
    """Raise `CannotRebuild` for a pipeline whose state cannot be read from topic and ledger."""
    dedup = config.dedup_of(config.source)
    why = ""
    if config.join:
        why = "what waits in a join depends on the moments at which its events came, which is kept nowhere"
    elif dedup is not None and dedup.clock == "event":
        why = "on the event clock it depends on the watermark of each batch, which is kept nowhere"
    if why:
        raise CannotRebuild(config.pipeline_id, why)


def _past(client: Client, config: PipelineConfig) -> tuple[LostCheckpoint, str]:
    history = read_history(client, config.sink.connection_params.database, config.pipeline_id)
    if not history.batches:
        raise GlassflowError(
            f"{config.pipeline_id}: has no batch in the ledger, so there is no state to make anew; run it without "
            "--rebuild-state"
        )
    known = {topic: found for topic in config.topics if (found := offsets_if_there(config.connection, topic))}
    return LostCheckpoint(history.batches, known), history.checkpoint_id


def _write(records: Records, past: LostCheckpoint, accepted: Accepted, work: Path, now_ms: int) -> Checkpoint:
    dedup = records.config.dedup_of(records.config.source)
    known = accepted.known(dedup, now_ms) if dedup is not None else None
    pattern = write_state(records.spark, known, dedup, work)
    as_of_batch(pattern, past.batches[-2:])
    return Checkpoint(pattern)


def _up_to(
    config: PipelineConfig, ranges: Iterable[BatchRange], there: Sequence[tuple[int, int, int]]
) -> list[BatchRange]:
    """Narrow the ranges to what has all of these records, and no more than the batch that was under way."""
    farthest: dict[tuple[str, int], int] = defaultdict(int)
    for rank, partition, offset in there:
        place = config.topics[rank], partition
        farthest[place] = max(farthest[place], offset + 1)
    return [replace(r, until=max(r.first, farthest[r.topic, r.partition])) for r in ranges]
