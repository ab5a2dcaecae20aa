"""The servers that tests share, and a Spark session for each worker process.

Libraries of servers and of Spark are imported by the fixtures that need them, so that a unit test waits for none.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import pytest

from tests.support.variants import FAULT_SEED, fault_seed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from glassflow_dagster.stream.checkpoint.object_storage import ObjectStorage
    from tests.servers.azure_storage import AzureServer
    from tests.servers.google_storage import GoogleServer
    from tests.servers.hdfs import HdfsServer
    from tests.servers.object_store import ObjectStoreServer
    from tests.servers.stack import Stack


# Servers of storage that start slowly: tests that need them are long.
_SLOW_STORES = {"hdfs", "google_storage", "azure_storage"}


def pytest_report_header() -> str:
    """Report the seed of the faults."""
    return f"faults: {FAULT_SEED}={fault_seed()}"


@pytest.fixture(scope="session", autouse=True)
def quick_compilation() -> Iterator[None]:
    """Limit the tests' JVMs to quick compilation: none lives long enough to benefit from a thorough one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
        yield


@pytest.fixture
def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(Path("/nowhere")))
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> "Iterator[Stack]":
    """Share the embedded servers; tests keep apart by the names of their topics and databases."""
    from tests.servers.stack import shared_stack

    own = tmp_path_factory.getbasetemp()
    # Without xdist there is one process, "master"; else each worker's folder is below that of the run.
    with shared_stack((own if worker_id == "master" else own.parent) / "stack") as servers:
        yield servers


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[ObjectStoreServer]":
    """Share one object store among the tests of a worker process; they keep apart by prefixes."""
    from glassflow_dagster.local.ports import free_port
    from tests.servers.object_store import running_object_store

    with running_object_store(tmp_path_factory.mktemp("object-store") / "data", free_port()) as store:
        yield store


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[HdfsServer]":
    """Share one HDFS among the tests of a worker process; they keep apart by folders."""
    from tests.servers.hdfs import running_hdfs

    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture(scope="session")
def google_storage(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[GoogleServer]":
    """Share one server of Google's storage among the tests of a worker process; they keep apart by prefixes."""
    from glassflow_dagster.local.ports import free_port
    from tests.servers.google_storage import running_google_storage

    with running_google_storage(tmp_path_factory.mktemp("google-storage"), free_port()) as server:
        yield server


@pytest.fixture(scope="session")
def azure_storage(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[AzureServer]":
    """Share one server of Azure's storage among the tests of a worker process; they keep apart by prefixes."""
    from glassflow_dagster.local.ports import free_port
    from tests.servers.azure_storage import running_azure_storage

    with running_azure_storage(tmp_path_factory.mktemp("azure-storage"), free_port()) as server:
        yield server


@pytest.fixture
def object_storage(object_store: "ObjectStoreServer") -> "Callable[[], ObjectStorage]":
    """Return a function that makes a storage with a prefix of its own."""
    from glassflow_dagster.stream.checkpoint.object_storage import ObjectStorage

    return lambda: ObjectStorage(object_store.state(), "p/checkpoint")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """Share one Spark session among all tests of columns."""
    from glassflow_dagster.stream.spark.session import start_session

    folder = tmp_path_factory.mktemp("spark on a path with spaces")
    # Its JVM outlives some thousand queries, and some tests have records of 100 MB.
    settings = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2", "spark.driver.memory": "2g"}
    session = start_session("tests", folder, settings, lambda _: None)
    yield session
    session.stop()


@pytest.fixture
def shared_session(spark: "SparkSession", monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `run_pipeline` use the shared JVM; each run has a session with its own settings."""
    from glassflow_dagster.driver import jvm

    def prepared(_name: str, _folder: Path, overrides: Mapping[str, str], *_: object) -> Any:
        own = spark.newSession()
        for key, value in overrides.items():
            if key.startswith(("spark.sql.", "spark.glassflow.")):
                own.conf.set(key, value)
        monkeypatch.setattr(own, "stop", lambda: None)
        launched = Mock(open_session=lambda: own)
        return Mock(launch=lambda _: launched)

    monkeypatch.setattr(jvm, "prepare_jvm", prepared)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that use Spark or the stack as servers, and put the files with such tests first.

    A long file at the end would leave the other worker processes idle; quick tests at the end fill the gap.
    """
    for item in items:
        if {"spark", "stack"} & _fixtures(item):
            item.add_marker(pytest.mark.servers)
        if _SLOW_STORES & _fixtures(item):
            item.add_marker(pytest.mark.long)
    slow = {item.path for item in items if item.get_closest_marker("servers")}
    items.sort(key=lambda item: item.path not in slow)


def _fixtures(item: pytest.Item) -> set[str]:
    return {*getattr(item, "fixturenames", ())}
