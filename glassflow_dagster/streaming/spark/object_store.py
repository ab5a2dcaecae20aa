"""Spark's access to a checkpoint in an object store: Hadoop's S3A, set up for a session.

The settings go into the JVM after its start, not on its command line, which every user of the host can read.
"""

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from glassflow_dagster.config.model.state import State
from glassflow_dagster.runtime.jars import ensure_jars
from glassflow_dagster.streaming.spark.session import CHECKPOINT_FILES

# As for Python (checkpoint/object_storage.py): environment variables, then a role. S3A would also try keys of its own.
_CREDENTIALS = (
    "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider,"
    "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider,"
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider"
)

_SETTINGS = {
    "fs.s3a.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    # Requests for markers of folders, and for what else might have a file's name: there are neither.
    "fs.s3a.performance.flags": "create,delete,mkdir",
    # State files are read from their beginning to their end.
    "fs.s3a.input.stream.type": "classic",
    "fs.s3a.experimental.input.fadvise": "sequential",
    # Every instance would report to a file system that no one reads.
    "fs.s3a.audit.enabled": "false",
}


def object_store_jars(report: Callable[[str], None]) -> list[Path]:
    """Return the jars of S3A; download those that are missing first. Raises `GlassflowError`."""
    return ensure_jars("s3", report)


def use_object_store(spark: SparkSession, state: State, scratch: Path) -> None:
    """Let a session keep its checkpoints in an object store. scratch: a local folder for files on their way there."""
    settings = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
    for key, value in s3a_settings(state, scratch).items():
        settings.set(key, value)
    spark.conf.set(CHECKPOINT_FILES, "glassflow.ObjectStoreFiles")


def s3a_settings(state: State, scratch: Path) -> dict[str, str]:
    """Return the settings of Hadoop's S3A for a store, secrets among them; parameters as of `use_object_store`."""
    return {**_SETTINGS, **_access(state), "fs.s3a.buffer.dir": str(scratch / "s3a")}


def _access(state: State) -> dict[str, str]:
    """Return S3A's settings for the server and the credentials of a store."""
    settings = {"fs.s3a.endpoint.region": state.region_in()}
    if endpoint := state.endpoint_in():
        settings |= {
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": str(endpoint.startswith("https:")).lower(),
        }
    if not (state.access_key_id and state.secret_access_key):
        return {**settings, "fs.s3a.aws.credentials.provider": _CREDENTIALS}
    provider = "Temporary" if state.session_token else "Simple"
    settings |= {
        "fs.s3a.aws.credentials.provider": f"org.apache.hadoop.fs.s3a.{provider}AWSCredentialsProvider",
        "fs.s3a.access.key": state.access_key_id,
        "fs.s3a.secret.key": state.secret_access_key.get_secret_value(),
    }
    if state.session_token:
        settings["fs.s3a.session.token"] = state.session_token.get_secret_value()
    return settings
