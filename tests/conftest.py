"""The embedded servers, started once for all tests that use them, and a Spark session for each worker process."""

import fcntl
import os
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.driver.start import jvm
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.local.stack import down, status, up
from glassflow_dagster.runtime.cache import exclusive
from glassflow_dagster.stream.checkpoint.object_storage import ObjectStorage
from glassflow_dagster.stream.spark.session import start_session
from tests.servers.azure_storage import AzureServer, running_azure_storage
from tests.servers.google_storage import GoogleServer, running_google_storage
from tests.servers.hdfs import HdfsServer, running_hdfs
from tests.servers.object_store import ObjectStoreServer, running_object_store

FAULT_SEED = "GLASSFLOW_FAULT_SEED"
_VARIANTS = "GLASSFLOW_TEST_VARIANTS"


def pytest_configure() -> None:
    """Draw the seed of this run's faults unless the environment variable is set."""
    os.environ.setdefault(FAULT_SEED, str(secrets.randbelow(1_000_000)))


def pytest_report_header() -> str:
    """Report the seed, so that the same faults can be drawn again."""
    return f"faults: {FAULT_SEED}={os.environ[FAULT_SEED]}"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of `make test`."""
    parser.addoption("--long", type=int, default=1, metavar="N", help="run one of N of the long tests, by the seed")


def one_of(variants: Sequence[Any]) -> list[Any]:
    """Return the variant of a long test that this run's seed draws; all of them in `make test-variants`."""
    return some_of(variants, 1)


def some_of(variants: Sequence[Any], count: int) -> list[Any]:
    """Return so many of a long test's variants, which this run's seed draws; all of them in `make test-variants`."""
    if os.environ.get(_VARIANTS) == "all":
        return list(variants)
    first = int(os.environ[FAULT_SEED])
    return [variants[(first + number) % len(variants)] for number in range(count)]


@dataclass(frozen=True)
class Stack:
    """The addresses of this test session's embedded Kafka and ClickHouse."""

    kafka_port: int
    clickhouse_port: int
    # Their processes, which another worker process of this run may have started.
    pids: tuple[int, ...]

    @property
    def kafka(self) -> str:
        return f"127.0.0.1:{self.kafka_port}"

    @property
    def clickhouse(self) -> str:
        return f"http://default:@127.0.0.1:{self.clickhouse_port}"

    @property
    def environment(self) -> dict[str, str]:
        """Return environment variables that make any definition use this stack, without changing the process's own."""
        return {"GLASSFLOW_KAFKA_BROKERS": self.kafka, "GLASSFLOW_CLICKHOUSE_URL": self.clickhouse}


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
def stack(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Stack]:
    """Start the embedded servers, or use those of another worker process of this run; the last worker stops them.

    Tests keep apart by the names of their topics and databases.
    """
    own = tmp_path_factory.getbasetemp()
    # Without xdist there is one process, "master"; else each worker's folder is below that of the run.
    data = (own if worker_id == "master" else own.parent) / "stack"
    data.mkdir(exist_ok=True)
    with (data / "users").open("w") as users:
        with exclusive(data):
            fcntl.flock(users, fcntl.LOCK_SH)
            running = status(data)
            kafka_port = running.kafka.port or free_port()
            clickhouse_port = running.clickhouse.port or free_port()
            up(data, kafka_port, clickhouse_port, print)
            pids = tuple(server.pid for server in status(data).servers if server.pid)
        try:
            yield Stack(kafka_port, clickhouse_port, pids)
        finally:
            with exclusive(data):
                fcntl.flock(users, fcntl.LOCK_UN)
                # Refused while another worker holds the shared lock.
                with suppress(BlockingIOError):
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    down(data, print)


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStoreServer]:
    """Share one object store among the tests of a worker process; they keep apart by prefixes."""
    with running_object_store(tmp_path_factory.mktemp("object-store") / "data", free_port()) as store:
        yield store


@pytest.fixture(scope="session")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """Share one HDFS among the tests of a worker process; they keep apart by folders."""
    with running_hdfs(tmp_path_factory.mktemp("hdfs")) as server:
        yield server


@pytest.fixture(scope="session")
def google_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GoogleServer]:
    """Share one server of Google's storage among the tests of a worker process; they keep apart by prefixes."""
    with running_google_storage(tmp_path_factory.mktemp("google-storage"), free_port()) as server:
        yield server


@pytest.fixture(scope="session")
def azure_storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """Share one server of Azure's storage among the tests of a worker process; they keep apart by prefixes."""
    with running_azure_storage(tmp_path_factory.mktemp("azure-storage"), free_port()) as server:
        yield server


@pytest.fixture
def object_storage(object_store: ObjectStoreServer) -> Callable[[], ObjectStorage]:
    """Return a function that makes a storage with a prefix of its own."""
    return lambda: ObjectStorage(object_store.state(), "p/checkpoint")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Share one Spark session among all tests of columns."""
    folder = tmp_path_factory.mktemp("spark on a path with spaces")
    settings = {"spark.master": "local[2]", "spark.sql.shuffle.partitions": "2"}
    session = start_session("tests", folder, settings, lambda _: None)
    yield session
    session.stop()


@pytest.fixture
def shared_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `run_pipeline` use the shared JVM; each run has a session with its own settings."""

    def prepared(_name: str, _folder: Path, overrides: Mapping[str, str], *_: object) -> Any:
        own = spark.newSession()
        for key, value in overrides.items():
            if key.startswith(("spark.sql.", "spark.glassflow.")):
                own.conf.set(key, value)
        monkeypatch.setattr(own, "stop", lambda: None)
        launched = Mock(open_session=lambda: own)
        return Mock(launch=lambda _: launched)

    monkeypatch.setattr(jvm, "prepare_jvm", prepared)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Draw long tests, mark those that use Spark or the stack as servers, and put the files with such tests first.

    With two worker processes, a long file at the end would leave one of them idle; quick tests at the end fill the gap.
    """
    _leave_out_long_tests(config, items)
    for item in items:
        if {"spark", "stack"} & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.servers)
    slow = {item.path for item in items if item.get_closest_marker("servers")}
    items.sort(key=lambda item: item.path not in slow)


def _leave_out_long_tests(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the long tests that this run's seed does not draw, with the option --long."""
    seed, shares = int(os.environ[FAULT_SEED]), config.getoption("--long")

    def is_drawn(item: pytest.Item) -> bool:
        # By the name without its variant, which the seed draws, too.
        name = item.nodeid.partition("[")[0]
        return item.get_closest_marker("long") is None or (zlib.crc32(name.encode()) + seed) % shares == 0

    config.hook.pytest_deselected(items=[item for item in items if not is_drawn(item)])
    items[:] = filter(is_drawn, items)
