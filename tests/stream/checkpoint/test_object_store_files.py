"""What Spark expects of its manager of checkpoint files, for those of object stores."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.state import State
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.stream.checkpoint.azure_storage import AzureStorage
from glassflow_dagster.stream.checkpoint.google_storage import GoogleStorage
from glassflow_dagster.stream.checkpoint.object_storage import ObjectStorage
from glassflow_dagster.stream.checkpoint.storage import Storage
from glassflow_dagster.stream.scala.build import azure_jars
from glassflow_dagster.stream.spark.azure_storage import azure_storage_settings
from glassflow_dagster.stream.spark.google_storage import google_storage_jars, google_storage_settings
from glassflow_dagster.stream.spark.object_store import object_store_jars, s3a_settings
from glassflow_dagster.stream.spark.session import java
from tests.servers.google_storage import running_google_storage
from tests.servers.object_store import LosingProxy, ObjectStoreServer
from tests.servers.state_server import StateServer
from tests.support.variants import one_of

pytestmark = pytest.mark.servers
ROUNDS, WRITERS = 10, 6
PART = 5 * 1024 * 1024  # the least size of a part of an upload
LARGE = bytes(range(256)) * (3 * PART // 256)


class Files:
    """The manager on a prefix of its own, and the objects below it as Python sees them.

    manager: the name of its class. settings: of Hadoop's file system. jars: with that.
    """

    def __init__(
        self,
        spark: SparkSession,
        manager: str,
        objects: Storage,
        settings: Mapping[str, str],
        jars: Sequence[Path],
    ) -> None:
        jvm = java(spark)
        self._fs = jvm.org.apache.hadoop.fs
        hadoop = spark._jsparkSession.sessionState().newHadoopConf()
        hadoop.setClassLoader(_loader(spark, tuple(jars)))
        # A file system of the test's own, with its endpoint.
        for scheme in ("s3a", "gs", "abfs"):
            hadoop.set(f"fs.{scheme}.impl.disable.cache", "true")
        for key, value in settings.items():
            hadoop.set(key, value)
        self.objects = objects
        # That of Azure's storage is in one of the jars.
        made = hadoop.getClassByName(f"glassflow.{manager}").getConstructors()[0]
        values = spark.sparkContext._gateway.new_array(jvm.java.lang.Object, 2)
        values[0], values[1] = self.path(""), hadoop
        self.manager = made.newInstance(values)

    def path(self, name: str) -> Any:
        return self._fs.Path(f"{self.objects.location}/{name}")

    def begin(self, name: str, content: bytes, *, overwrite: bool = False) -> Any:
        """Write to a new stream and return it open."""
        out = self.manager.createAtomic(self.path(name), overwrite)
        out.write(content)
        return out

    def write(self, name: str, content: bytes, *, overwrite: bool = False) -> None:
        self.begin(name, content, overwrite=overwrite).close()

    def read(self, name: str) -> bytes:
        stream = self.manager.open(self.path(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()


@cache
def _loader(spark: SparkSession, jars: Sequence[Path]) -> Any:
    """Return a class loader with the jars that a driver with such a state has on its class path."""
    gateway, jvm = spark.sparkContext._gateway, java(spark)
    assert gateway
    urls = gateway.new_array(jvm.java.net.URL, len(jars))
    for index, jar in enumerate(jars):
        urls[index] = jvm.java.io.File(str(jar)).toURI().toURL()
    return jvm.java.net.URLClassLoader(urls, jvm.java.lang.Thread.currentThread().getContextClassLoader())


def s3_files(spark: SparkSession, state: State, scratch: Path) -> Files:
    settings = {**s3a_settings(state, scratch), "fs.s3a.multipart.size": str(PART)}
    return Files(spark, "S3Files", ObjectStorage(state, "p"), settings, object_store_jars(print))


def google_files(spark: SparkSession, state: State, scratch: Path) -> Files:
    settings = google_storage_settings(state, scratch)
    return Files(spark, "GoogleFiles", GoogleStorage(state, "p"), settings, google_storage_jars(print))


def azure_files(spark: SparkSession, state: State, scratch: Path) -> Files:
    settings = azure_storage_settings(state, scratch)
    return Files(spark, "AzureFiles", AzureStorage(state, "p"), settings, azure_jars(print))


SERVERS = {s3_files: "object_store", google_files: "google_storage", azure_files: "azure_storage"}


@pytest.fixture(params=one_of([*SERVERS]))
def files(spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    make = request.param
    server: StateServer = request.getfixturevalue(SERVERS[make])
    made: Files = make(spark, server.state(), tmp_path)
    return made


def left_over(store: ObjectStoreServer, scratch: Path) -> list[Path]:
    """Return parts of uploads that are neither complete nor aborted, as versitygw keeps them, and local files."""
    return [path for path in (*store.data.rglob(".sgwtmp/multipart/**/*"), *scratch.rglob("*")) if path.is_file()]


def already_exists(action: Callable[[], object]) -> bool:
    """Return whether the action fails, which must be because the file exists."""
    try:
        action()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "FileAlreadyExistsException":
            raise
        return True
    return False


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("content", [b"v1", LARGE], ids=["small", "large"])
def test_a_file_appears_whole_when_it_is_closed(files: Files, content: bytes, overwrite: bool) -> None:
    out = files.begin("offsets/0", content, overwrite=overwrite)
    assert not files.manager.exists(files.path("offsets/0"))
    assert list(files.objects.walk()) == []
    out.close()
    assert files.manager.exists(files.path("offsets/0"))
    assert files.objects.read("offsets/0") == content
    out.close()  # again
    out.cancel()  # too late
    assert files.objects.read("offsets/0") == content


@pytest.mark.parametrize("content", [b"other", LARGE], ids=["small", "large"])
def test_an_existing_file_is_not_overwritten(
    files: Files, object_store: ObjectStoreServer, tmp_path: Path, content: bytes
) -> None:
    files.write("offsets/0", b"first")
    out = files.begin("offsets/0", content)
    assert already_exists(out.close)
    out.cancel()
    assert files.objects.read("offsets/0") == b"first"
    assert list(files.objects.walk()) == ["offsets/0"]
    assert left_over(object_store, tmp_path) == []


def test_an_existing_file_is_overwritten_where_that_is_allowed(files: Files) -> None:
    files.write("state/1.zip", b"first")
    files.write("state/1.zip", b"second", overwrite=True)
    assert files.read("state/1.zip") == b"second"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("content", [b"v1", LARGE], ids=["small", "large"])
def test_a_cancelled_file_leaves_nothing(
    files: Files, object_store: ObjectStoreServer, tmp_path: Path, content: bytes, overwrite: bool
) -> None:
    out = files.begin("offsets/0", content, overwrite=overwrite)
    out.cancel()
    out.close()
    out.cancel()
    assert list(files.objects.walk()) == []
    assert left_over(object_store, tmp_path) == []
    files.write("offsets/0", b"next", overwrite=overwrite)
    assert files.read("offsets/0") == b"next"


def test_a_file_that_is_overwritten_and_cancelled_stays(files: Files) -> None:
    files.write("state/1.zip", b"first")
    files.begin("state/1.zip", b"second", overwrite=True).cancel()
    assert files.read("state/1.zip") == b"first"


def test_a_file_that_is_never_closed_does_not_appear(files: Files) -> None:
    files.begin("offsets/0", b"of a driver that died")
    files.write("offsets/0", b"of the next")
    assert files.read("offsets/0") == b"of the next"


def test_of_two_open_files_the_first_to_be_closed_is_the_file(files: Files) -> None:
    older, newer = files.begin("offsets/0", b"older"), files.begin("offsets/0", b"newer")
    newer.close()
    assert already_exists(older.close)
    older.cancel()
    assert files.read("offsets/0") == b"newer"


def test_of_simultaneous_writers_one_succeeds(files: Files) -> None:
    for number in range(ROUNDS):
        name, barrier = f"offsets/{number}", Barrier(WRITERS)
        outs = [files.begin(name, b"%d" % writer) for writer in range(WRITERS)]

        def fails(out: Any, barrier: Barrier = barrier) -> bool:
            barrier.wait()
            return already_exists(out.close)

        with ThreadPoolExecutor(WRITERS) as pool:
            failed = list(pool.map(fails, outs))
        assert failed.count(False) == 1
        assert files.read(name) == b"%d" % failed.index(False)


def test_files_are_listed_and_deleted(files: Files) -> None:
    manager = files.manager
    assert list(manager.list(files.path("offsets"))) == []
    manager.mkdirs(files.path("offsets"))
    assert list(manager.list(files.path("offsets"))) == []
    for name in ("offsets/0", "offsets/1", "state/0/0/1.zip"):
        files.write(name, b"x")
    assert sorted(entry.getPath().getName() for entry in manager.list(files.path("offsets"))) == ["0", "1"]
    assert manager.exists(files.path("state"))
    manager.delete(files.path("offsets/0"))
    manager.delete(files.path("offsets/0"))
    assert not manager.exists(files.path("offsets/0"))
    manager.delete(files.path("state"))
    assert list(files.objects.walk()) == ["offsets/1"]
    assert manager.createCheckpointDirectory().toString() == files.objects.location
    assert not manager.isLocal()


@pytest.fixture(params=one_of([s3_files, azure_files]))
def losing(spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Files, LosingProxy]]:
    make = request.param
    server: StateServer = request.getfixturevalue(SERVERS[make])
    proxy = LosingProxy(server.port)
    yield make(spark, server.state().model_copy(update={"endpoint": proxy.endpoint}), tmp_path), proxy
    proxy.close()


@pytest.mark.parametrize("content", [b"second", LARGE], ids=["small", "large"])
def test_a_file_whose_answer_was_lost_is_its_own(losing: tuple[Files, LosingProxy], content: bytes) -> None:
    """The client repeats the request, and the store refuses what it has already created."""
    files, proxy = losing
    files.write("offsets/0", b"first")
    proxy.to_lose = 1
    files.write("offsets/1", content)
    assert proxy.lost == 1
    assert files.read("offsets/1") == content
    assert already_exists(files.begin("offsets/1", b"third").close)
    proxy.to_lose = 1
    files.write("offsets/1", b"fourth", overwrite=True)
    assert proxy.lost == 2
    assert files.read("offsets/1") == b"fourth"


@pytest.fixture
def losing_google(spark: SparkSession, tmp_path: Path) -> Iterator[tuple[Files, LosingProxy]]:
    port = free_port()
    proxy = LosingProxy(port)
    with running_google_storage(tmp_path / "google", port, proxy.endpoint) as server:
        state = server.state().model_copy(update={"endpoint": proxy.endpoint})
        yield google_files(spark, state, tmp_path), proxy
    proxy.close()


@pytest.mark.long
def test_a_file_of_googles_whose_answer_was_lost_may_be_anothers_but_is_whole(
    losing_google: tuple[Files, LosingProxy],
) -> None:
    """The upload is repeated, and refused as there is one; the driver then reads the checkpoint again."""
    files, proxy = losing_google
    files.write("offsets/0", b"first")
    proxy.to_lose = 1
    assert already_exists(files.begin("offsets/1", b"second").close)
    assert proxy.lost == 1
    assert files.read("offsets/1") == b"second"
    proxy.to_lose = 1
    files.write("offsets/1", b"third", overwrite=True)
    assert proxy.lost == 2
    assert files.read("offsets/1") == b"third"


def test_an_equal_file_of_another_writer_is_none_of_its_own(files: Files) -> None:
    """Two drivers commit the same batch with the same bytes: one is told that there is another."""
    files.write("commits/0", b"v1\n{}")
    assert already_exists(files.begin("commits/0", b"v1\n{}").close)
