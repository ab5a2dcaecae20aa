"""Writes the files of a Spark checkpoint from a set of keys and the ledger's offset ranges.

Spark itself writes the state: a query with a single batch puts the keys into it and leaves a checkpoint of one batch.
Then that checkpoint's state is renamed to the version after the ledger's last batch, and its offset and commit logs are
replaced by logs of the ledger's last batches.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.transforms import DedupConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.bookkeeping.ledger import BatchEntry, BatchRange
from glassflow_dagster.stream.checkpoint.state_files import number_first_version
from glassflow_dagster.stream.spark.spark_errors import explain_failure
from glassflow_dagster.stream.stages.dedup_in_scala import put_known

# A file of the offset log has the version, the batch's metadata as JSON, then one line per source.
_VERSION_LINE = 0
_METADATA_LINE = 1

_KEY_COLUMNS = "key BINARY, until LONG"


def write_state(spark: SparkSession, keys: DataFrame | None, dedup: DedupConfig | None, folder: Path) -> Path:
    """Let Spark write a checkpoint of one batch whose state holds the keys; return the checkpoint's folder.

    keys: columns key BINARY, until LONG, as in `put_known`; None for a pipeline without a state. Raises
    `GlassflowError` when Spark fails.
    """
    key_folder, checkpoint = folder / "keys", folder / "pattern"
    try:
        rows = keys if keys is not None else spark.createDataFrame([], _KEY_COLUMNS)
        rows.write.parquet(str(key_folder))
        key_stream = spark.readStream.schema(_KEY_COLUMNS).parquet(str(key_folder))
        query = put_known(key_stream.withColumn("source", F.lit(0)), [dedup]) if dedup is not None else key_stream
        writer = query.writeStream.format("noop").outputMode("append").trigger(availableNow=True)
        writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
    except PySparkException as error:
        raise GlassflowError(f"the state could not be written: {explain_failure(error)}") from error
    finally:
        shutil.rmtree(key_folder, ignore_errors=True)
    return checkpoint


def continue_after(checkpoint: Path, batches: Sequence[BatchEntry]) -> None:
    """Rewrite a checkpoint of one batch so that the next batch is the one after the ledger's last batch.

    batches: the ledger's last two, or its only one; Spark reads the offset logs of both when it resumes.
    """
    last = batches[-1]
    # The log of Spark's one batch, whose settings the new logs have, too.
    lines = (checkpoint / "offsets" / "0").read_text(encoding="utf-8").splitlines()
    commit = (checkpoint / "commits" / "0").read_bytes()
    for log in ("offsets", "commits", "sources"):
        shutil.rmtree(checkpoint / log, ignore_errors=True)
        (checkpoint / log).mkdir()
    for batch in batches:
        _write_offsets(checkpoint, lines, batch.batch_id, batch.batch_time_ms, batch.ranges)
        (checkpoint / "commits" / str(batch.batch_id)).write_bytes(commit)
    initial = checkpoint / "sources" / "0" / "0"
    initial.parent.mkdir()
    # The initial offsets: Spark uses them only before its first batch, so zeros are enough.
    zeros = {topic: dict.fromkeys(partitions, 0) for topic, partitions in _ends(last.ranges).items()}
    initial.write_text(f"v1\n{json.dumps(zeros)}", encoding="utf-8")
    number_first_version(checkpoint, last.batch_id + 1)


def begin_batch(checkpoint: Path, ranges: Sequence[BatchRange]) -> None:
    """Write the offset log of the next batch, so that Spark runs it with exactly the ends of these ranges.

    ranges: all of one batch; each begins where the batch before it ended.
    """
    batch_id, batch_time_ms = ranges[0].batch_id, ranges[0].batch_time_ms
    # The settings in the log are those of the batch before.
    lines = (checkpoint / "offsets" / str(batch_id - 1)).read_text(encoding="utf-8").splitlines()
    _write_offsets(checkpoint, lines, batch_id, batch_time_ms, ranges)


def _write_offsets(
    checkpoint: Path, lines: Sequence[str], batch_id: int, batch_time_ms: int, ranges: Sequence[BatchRange]
) -> None:
    """Write a batch's file of the offset log; `lines` is a file of the same log, from which the settings are copied."""
    metadata = {**json.loads(lines[_METADATA_LINE]), "batchTimestampMs": batch_time_ms}
    text = "\n".join([lines[_VERSION_LINE], json.dumps(metadata), json.dumps(_ends(ranges))])
    (checkpoint / "offsets" / str(batch_id)).write_text(text, encoding="utf-8")


def _ends(ranges: Sequence[BatchRange]) -> dict[str, dict[int, int]]:
    """Return the end offsets of the ranges: topic -> partition -> offset."""
    ends: dict[str, dict[int, int]] = {}
    for batch_range in ranges:
        ends.setdefault(batch_range.topic, {})[batch_range.partition] = batch_range.until
    return ends
