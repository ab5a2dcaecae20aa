"""Spark's access to a checkpoint in an object store: Hadoop's S3A, set up for a session.

The settings go into the JVM after its start, not on its command line, which every user of the host can read.
"""

import os
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.state import State
from glassflow_dagster.runtime.jars import ensure_jars
from glassflow_dagster.stream.spark.session import use_store

# As for Python (checkpoint/object_storage.py) without keys: a role. S3A would also try keys of its own.
_CREDENTIALS = (
    "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider,"
    "org.apache.hadoop.fs.s3a.auth.IAMInstanceCredentialsProvider"
)

_BUFFERS = "fs.s3a.buffer.dir"
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
    use_store(spark, "glassflow.S3Files", s3a_settings(state, scratch), folder=_BUFFERS)


def s3a_settings(state: State, scratch: Path) -> dict[str, str]:
    """Return the settings of Hadoop's S3A for a store, secrets among them; parameters as of `use_object_store`."""
    return {**_SETTINGS, **_access(state), _BUFFERS: str(scratch / "s3a")}


def _access(state: State) -> dict[str, str]:
    """Return S3A's settings for the server and the credentials of a store."""
    settings = {"fs.s3a.endpoint.region": state.region_in()}
    if endpoint := state.endpoint_in():
        settings |= {
            "fs.s3a.endpoint": endpoint,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": str(endpoint.startswith("https:")).lower(),
        }
    keys = _keys(state)
    if keys is None:
        return {**settings, "fs.s3a.aws.credentials.provider": _CREDENTIALS}
    access_key, secret_key, token = keys
    provider = "Temporary" if token else "Simple"
    settings |= {
        "fs.s3a.aws.credentials.provider": f"org.apache.hadoop.fs.s3a.{provider}AWSCredentialsProvider",
        "fs.s3a.access.key": access_key,
        "fs.s3a.secret.key": secret_key,
    }
    return {**settings, "fs.s3a.session.token": token} if token else settings


def _keys(state: State) -> tuple[str, str, str | None] | None:
    """Return access key, secret key and session token, as the definition or the environment has them; None for a role.

    Of the environment, too: executors on other hosts do not have the driver's.
    """
    if state.access_key_id and state.secret_access_key:
        token = state.session_token.get_secret_value() if state.session_token else None
        return state.access_key_id, state.secret_access_key.get_secret_value(), token
    access_key, secret_key = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    return (access_key, secret_key, os.environ.get("AWS_SESSION_TOKEN")) if access_key and secret_key else None
