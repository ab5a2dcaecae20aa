"""Rebuilds a lost checkpoint, so that its pipeline continues after the ledger's last batch: `run --rebuild-state`.

The rebuilt checkpoint keeps the checkpoint id, so that the ledger continues and dead letters and replays still belong
to it. Its insert tokens are new, because the in-flight batch is repeated with other blocks. The rows of that batch that
are already in the table are found and not written again.
"""

import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from clickhouse_connect.driver.client import Client
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from glassflow_dagster.checks.exact.canonical import hashed
from glassflow_dagster.checks.exact.compare_keys import compared_tables
from glassflow_dagster.checks.exact.expected import declare_for_reading
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.recovery.cannot_rebuild import CannotRebuild
from glassflow_dagster.driver.recovery.checkpoint_files import begin_batch, continue_after, write_state
from glassflow_dagster.driver.recovery.dedup_keys import Accepted, replay_dedup
from glassflow_dagster.driver.recovery.inflight_batch import InFlightBatch, Position, following_ranges, unknown_rows
from glassflow_dagster.driver.recovery.open_batch import fence_off, why_in_other_tables
from glassflow_dagster.driver.recovery.records import LostCheckpoint, Records
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.bookkeeping.dead_letter_table import DEAD_LETTERS, read_refused_by_server, read_undecoded
from glassflow_dagster.stores.bookkeeping.ledger import BatchRange, read_history
from glassflow_dagster.stores.bookkeeping.splits import SPLITS
from glassflow_dagster.stores.bookkeeping.totals import read_totals
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.table import Table
from glassflow_dagster.stores.kafka.topics import offsets_if_there
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.stream.spark.session import SHUFFLE_PARTITIONS
from glassflow_dagster.stream.spark.spark_errors import explain_failure

Report = Callable[[str], None]


def rebuild_checkpoint(
    spark: SparkSession, config: PipelineConfig, tables: Sequence[Table], checkpoint: Checkpoint, report: Report
) -> None:
    """Write a checkpoint that continues after the ledger's last batch.

    First the old driver is fenced off: it writes no more. Then deduplication is replayed from Kafka over the batches
    that the ledger has (`past`), and the records of the in-flight batch whose rows are in the table already are found,
    so that they are not written again. What that batch left in the bookkeeping tables is deleted, as it is repeated.
    Last, the new checkpoint is moved to its place.

    spark: the session that the pipeline will run in.
    tables: the sink's.
    Raises `GlassflowError` when the state cannot be rebuilt exactly.
    """
    require_possible(config)
    client = connect(config.sink.connection_params)
    past, checkpoint_id = _read_lost_checkpoint(client, config)
    database = config.sink.connection_params.database
    fence_off(client, config, checkpoint, checkpoint_id, tables)
    # The time of the next batch, which must be after the last one's.
    now_ms = max(int(time.time() * 1000), past.batches[-1].batch_time_ms + 1)
    # Reads the tables' row counts again, now that no other driver writes.
    compared = compared_tables(client, config)
    row_hash = [{"row_hash": hashed(of_table.values)[0]} for of_table in compared]
    undecoded = read_undecoded(client, database, config.pipeline_id, checkpoint_id)
    declare_for_reading(spark, config)
    refused = read_refused_by_server(client, database, config.pipeline_id, checkpoint_id)
    records = Records(spark, config, tables, checkpoint_id, row_hash, undecoded, refused)
    totals = read_totals(client, database, config.pipeline_id)
    if why := why_in_other_tables(config, totals, past.batches[-1].definition):
        raise CannotRebuild(config.pipeline_id, why, "undo the edit, rebuild the state, then edit again")
    try:
        accepted = replay_dedup(records, past, now_ms, report)
        ranges = following_ranges(past, now_ms)
        in_flight = InFlightBatch(records, ranges, accepted)
        written: dict[str, list[Position]] = {}
        for of_table in compared:
            report(f"searching {of_table.name} for rows of an in-flight batch ...")
            written[of_table.name] = in_flight.written_to(of_table, unknown_rows(of_table, totals))
        work = checkpoint.folder.with_name("checkpoint.new")
        shutil.rmtree(work, ignore_errors=True)
        rebuilt = _write_checkpoint(records, past, accepted, work, now_ms)
    except PySparkException as error:
        raise GlassflowError(
            f"{config.pipeline_id}: the state could not be rebuilt: {explain_failure(error)}"
        ) from error
    finally:
        spark.catalog.clearCache()
    # The in-flight batch is repeated, and writes its dead letters and splits again.
    for bookkeeping in (DEAD_LETTERS, SPLITS):
        last = past.batches[-1].batch_id
        bookkeeping.delete_later_batches(client, database, config.pipeline_id, checkpoint_id, last)
    # Only with rows in the table the in-flight batch must be repeated; else the next batch takes any records.
    positions = [position for of_table in written.values() for position in of_table]
    if positions:
        begin_batch(rebuilt.folder, _narrow_to_written(config, ranges, positions))
        rebuilt.keep_already_written(past.batches[-1].batch_id + 1, _named(config, written))
    partitions = int(str(spark.conf.get(SHUFFLE_PARTITIONS)))
    before = totals.by_table.named_before
    rebuilt.create(config, totals.rows_before, partitions, before, checkpoint_id)
    # This folder holds nothing but topic ids, if anything: a damaged checkpoint was moved aside before.
    shutil.rmtree(checkpoint.folder, ignore_errors=True)
    rebuilt.folder.rename(checkpoint.folder)
    # The rebuilt checkpoint was a folder below `work`.
    shutil.rmtree(work, ignore_errors=True)
    checkpoint.follow_move()
    report(
        f"the state is rebuilt after batch {past.batches[-1].batch_id}; {len(positions):,} rows of the in-flight batch "
        "are in their table and stay"
    )


def _named(config: PipelineConfig, written: Mapping[str, Sequence[Position]]) -> list[tuple[int | str, ...]]:
    """Return positions with the topic's name, and with several tables the table's, as the checkpoint keeps them.

    written: database.table -> the positions of the events whose rows are in the table.
    """
    return [
        (config.topics[rank], *rest, *((table,) if len(written) > 1 else ()))
        for table, positions in written.items()
        for rank, *rest in positions
    ]


def require_possible(config: PipelineConfig) -> None:
    """Raise `CannotRebuild` for a pipeline whose state does not follow from topic and ledger.

    That is one with a join, or with deduplication on the event clock.
    """
    dedup = config.dedup_of(config.source)
    why = ""
    if config.join:
        why = "the waiting events of a join depend on when each event arrived, which is not recorded"
    elif dedup is not None and dedup.clock == "event":
        why = "on the event clock it depends on the watermark of each batch, which is not recorded"
    if why:
        raise CannotRebuild(config.pipeline_id, why)


def _read_lost_checkpoint(client: Client, config: PipelineConfig) -> tuple[LostCheckpoint, str]:
    """Read the lost checkpoint's batches from the ledger and the available offsets from Kafka; return also its id."""
    history = read_history(client, config.sink.connection_params.database, config.pipeline_id)
    if not history.batches:
        raise GlassflowError(
            f"{config.pipeline_id}: has no batch in the ledger, so there is no state to rebuild; run it without "
            "--rebuild-state"
        )
    available = {topic: offsets for topic in config.topics if (offsets := offsets_if_there(config.connection, topic))}
    return LostCheckpoint(history.batches, available), history.checkpoint_id


def _write_checkpoint(
    records: Records, past: LostCheckpoint, accepted: Accepted, work: Path, now_ms: int
) -> Checkpoint:
    """Write the files of the rebuilt checkpoint below `work`: the state at `now_ms`, and the logs."""
    dedup = records.config.dedup_of(records.config.source)
    keys = accepted.known(dedup, now_ms) if dedup is not None else None
    folder = write_state(records.spark, keys, dedup, work)
    # Spark reads the logs of the last two batches.
    continue_after(folder, past.batches[-2:])
    return Checkpoint(folder)


def _narrow_to_written(
    config: PipelineConfig, ranges: Iterable[BatchRange], written: Sequence[Position]
) -> list[BatchRange]:
    """Return the in-flight batch's ranges, each ending with the last record that it has written to the table.

    How far the batch has read beyond that is not known: later records are left to the next batch. So a range without a
    written record becomes empty.

    ranges: all that the batch may have read.
    written: the position of each event whose row is in the table; all of them are within `ranges`.
    """
    ends: dict[tuple[str, int], int] = defaultdict(int)
    for topic_index, partition, offset, *_ in written:
        topic = config.topics[topic_index]
        ends[topic, partition] = max(ends[topic, partition], offset + 1)
    return [replace(r, until=max(r.first, ends[r.topic, r.partition])) for r in ranges]
