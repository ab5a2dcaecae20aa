"""The storages of checkpoints that the same tests run on."""

from collections.abc import Callable
from pathlib import Path

import pytest

from glassflow_dagster.stream.checkpoint.azure_storage import AzureStorage
from glassflow_dagster.stream.checkpoint.google_storage import GoogleStorage
from glassflow_dagster.stream.checkpoint.hdfs_storage import HdfsStorage
from glassflow_dagster.stream.checkpoint.storage import LocalStorage, Storage
from tests.servers.azure_storage import AzureServer
from tests.servers.google_storage import GoogleServer
from tests.servers.hdfs import HdfsServer

# An S3 bucket in `make test`; the others start slowly.
BUCKET = pytest.param("bucket", marks=pytest.mark.servers)
OTHERS = [pytest.param(server, marks=[pytest.mark.servers, pytest.mark.long]) for server in ("google", "azure", "hdfs")]


@pytest.fixture(params=["folder", BUCKET, *OTHERS])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "folder":
        return LocalStorage(tmp_path / "checkpoint")
    if request.param == "hdfs":
        server: HdfsServer = request.getfixturevalue("hdfs")
        return HdfsStorage(server.state(), "p/checkpoint")
    if request.param == "google":
        google: GoogleServer = request.getfixturevalue("google_storage")
        return GoogleStorage(google.state(), "p/checkpoint")
    if request.param == "azure":
        azure: AzureServer = request.getfixturevalue("azure_storage")
        return AzureStorage(azure.state(), "p/checkpoint")
    make: Callable[[], Storage] = request.getfixturevalue("object_storage")
    return make()
