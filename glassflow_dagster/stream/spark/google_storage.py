"""Spark's access to a checkpoint in Google Cloud Storage: Google's connector for Hadoop, set up for a session."""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.state import State
from glassflow_dagster.runtime.jars import ensure_jars
from glassflow_dagster.stream.spark.session import UPLOAD_FOLDER, use_store

_MIB = 1024 * 1024
_SETTINGS = {
    "fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
    # Empty objects that mark folders, and requests for what else might have a file's name: there are neither.
    "fs.gs.implicit.dir.repair.enable": "false",
    "fs.gs.create.items.conflict.check.enable": "false",
    # State files are read from their beginning to their end.
    "fs.gs.inputstream.fadvise": "SEQUENTIAL",
    # An upload has a buffer of this size, by default of 24 MiB; a batch has one for each partition of the state.
    "fs.gs.outputstream.upload.chunk.size": str(8 * _MIB),
    # Hadoop's own defaults for these are for its own connector, such as 64m, which this one cannot read.
    "fs.gs.block.size": str(64 * _MIB),
    "fs.gs.outputstream.buffer.size": str(8 * _MIB),
    "fs.gs.inputstream.inplace.seek.limit": str(8 * _MIB),
    "fs.gs.inputstream.min.range.request.size": str(2 * _MIB),
    "fs.gs.rewrite.max.chunk.size": str(512 * _MIB),
}


def google_storage_jars(report: Callable[[str], None]) -> list[Path]:
    """Return the jar of the connector; download it first if it is missing. Raises `GlassflowError`."""
    return ensure_jars("gs", report)


def use_google_storage(spark: SparkSession, state: State, scratch: Path) -> None:
    """Let a session keep its checkpoints in a bucket. scratch: a local folder for files on their way there."""
    use_store(spark, "glassflow.GoogleFiles", google_storage_settings(state, scratch), folder=UPLOAD_FOLDER)


def google_storage_settings(state: State, scratch: Path) -> dict[str, str]:
    """Return the settings of the connector for a store; parameters as of `use_google_storage`."""
    settings = {**_SETTINGS, UPLOAD_FOLDER: str(scratch / "google"), "fs.gs.auth.type": "APPLICATION_DEFAULT"}
    if endpoint := state.google_server_in():
        settings["fs.gs.storage.root.url"] = f"{endpoint}/"
        if endpoint.startswith("http:"):
            # See checkpoint/google_storage.py.
            settings["fs.gs.auth.type"] = "UNAUTHENTICATED"
    return settings
