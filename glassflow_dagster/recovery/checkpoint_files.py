"""A checkpoint's files, made of a state and of what the ledger says was read.

Spark itself writes the state, in a query of one batch that has nothing but the state to make. That query's files are
the pattern: its first version of the state becomes that of the next batch, its logs tell of the ledger's last batches.
"""

import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from glassflow_dagster.bookkeeping.ledger import BatchEntry, BatchRange
from glassflow_dagster.config.model.transforms import DedupConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.streaming.spark.spark_errors import explain_failure
from glassflow_dagster.streaming.stages.dedup import put_known

# A version of a partition's state, as Spark writes it after its first batch.
_FIRST_VERSION = re.compile(r"(?P<dot>\.?)1\.(?P<kind>zip|changelog)(?P<sums>(\.crc)?)")
# In a line of the offset log: version, what Spark says of the batch, then one line a source.
_ABOUT = 1

_KEYS = "key BINARY, until LONG"


def write_state(spark: SparkSession, known: DataFrame | None, dedup: DedupConfig | None, folder: Path) -> Path:
    """Let Spark write a checkpoint of one batch whose state knows these keys; gives its folder.

    known: as `put_known` takes them; None of a pipeline without a state. Raises `GlassflowError` when Spark fails.
    """
    keys, pattern = folder / "keys", folder / "pattern"
    try:
        rows = known if known is not None else spark.createDataFrame([], _KEYS)
        rows.write.parquet(str(keys))
        stream = spark.readStream.schema(_KEYS).parquet(str(keys))
        made = put_known(stream, dedup) if dedup is not None else stream
        writer = made.writeStream.format("noop").outputMode("append").trigger(availableNow=True)
        writer.option("checkpointLocation", str(pattern)).start().awaitTermination()
    except PySparkException as error:
        raise GlassflowError(f"the state could not be written: {explain_failure(error)}") from error
    finally:
        shutil.rmtree(keys, ignore_errors=True)
    return pattern


def as_of_batch(pattern: Path, batches: Sequence[BatchEntry]) -> None:
    """Make the files of a checkpoint of one batch those of a checkpoint that has done the ledger's batches.

    batches: the last two of them, or the only one.
    """
    last = batches[-1]
    lines = (pattern / "offsets" / "0").read_text(encoding="utf-8").splitlines()
    commit = (pattern / "commits" / "0").read_bytes()
    for log in ("offsets", "commits", "sources"):
        shutil.rmtree(pattern / log, ignore_errors=True)
        (pattern / log).mkdir()
    for batch in batches:
        _write_offsets(pattern, lines, batch.batch_id, batch.batch_time_ms, batch.ranges)
        (pattern / "commits" / str(batch.batch_id)).write_bytes(commit)
    initial = pattern / "sources" / "0" / "0"
    initial.parent.mkdir()
    # Spark reads it before its first batch only, which is done.
    begun = {topic: dict.fromkeys(partitions, 0) for topic, partitions in _ends(last.ranges).items()}
    initial.write_text(f"v1\n{json.dumps(begun)}", encoding="utf-8")
    for file in (pattern / "state").glob("*/*/*"):
        found = _FIRST_VERSION.fullmatch(file.name)
        if found:
            file.rename(file.with_name(f"{found['dot']}{last.batch_id + 1}.{found['kind']}{found['sums']}"))


def begin_batch(pattern: Path, ranges: Sequence[BatchRange]) -> None:
    """Fix what the batch reads that these ranges are of: each from where the batch before it ended."""
    batch_id, batch_time_ms = ranges[0].batch_id, ranges[0].batch_time_ms
    lines = (pattern / "offsets" / str(batch_id - 1)).read_text(encoding="utf-8").splitlines()
    _write_offsets(pattern, lines, batch_id, batch_time_ms, ranges)


def _write_offsets(
    pattern: Path, lines: Sequence[str], batch_id: int, batch_time_ms: int, ranges: Sequence[BatchRange]
) -> None:
    about = {**json.loads(lines[_ABOUT]), "batchTimestampMs": batch_time_ms}
    text = "\n".join([lines[0], json.dumps(about), json.dumps(_ends(ranges))])
    (pattern / "offsets" / str(batch_id)).write_text(text, encoding="utf-8")


def _ends(ranges: Sequence[BatchRange]) -> dict[str, dict[int, int]]:
    ends: dict[str, dict[int, int]] = {}
    for found in ranges:
        ends.setdefault(found.topic, {})[found.partition] = found.until
    return ends
