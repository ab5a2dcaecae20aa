"""The object store of the local stack: versitygw, which serves a folder by the protocol of S3.

It keeps its objects as plain files, writes conditionally as S3 does, verifies signatures, and is one program of 60 MB
of memory. Go builds it once from its module, into the cache: no package of Python's or Java's has a store that keeps
its data (moto's is in memory), and MinIO takes twice as long to build. A `versitygw` on the PATH is used as it is.
"""

import http.client
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from glassflow_dagster.local.go_program import go_program

_PROGRAM = "versitygw"
_MODULE = "github.com/versity/versitygw/cmd/versitygw"
_VERSION = "v1.8.0"

# The store is on loopback only.
ACCESS_KEY = "glassflow"
SECRET_KEY = "glassflow-local"  # noqa: S105 - documented
BUCKET = "glassflow"

_SECONDS_TO_ANSWER = 1


@dataclass(frozen=True)
class ObjectStore:
    """How to start the store: its command, and the environment variables besides those of this process."""

    command: tuple[str, ...]
    variables: Mapping[str, str]


def prepare_object_store(data: Path, port: int, report: Callable[[str], None]) -> ObjectStore:
    """Build the store unless it is there, and create its bucket; return how to start it.

    data: the folder of the buckets. Raises `GlassflowError` when the program cannot be built.
    """
    program = go_program(_PROGRAM, _MODULE, _VERSION, report)
    # A bucket is a folder; its objects are the files below.
    (data / BUCKET).mkdir(parents=True, exist_ok=True)
    command = (str(program), "--port", f"127.0.0.1:{port}", "--quiet", "--keep-alive", "posix", str(data))
    return ObjectStore(command, {"ROOT_ACCESS_KEY_ID": ACCESS_KEY, "ROOT_SECRET_ACCESS_KEY": SECRET_KEY})


def object_store_variables(port: int) -> dict[str, str]:
    """Return the environment variables with which every client of S3 finds the store."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }


def object_store_answers(port: int) -> bool:
    """Return whether the store answers, if only that it wants a signature."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_SECONDS_TO_ANSWER)
    try:
        connection.request("GET", "/")
        connection.getresponse()
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
    return True
