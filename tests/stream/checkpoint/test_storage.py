"""What every storage of checkpoints promises: the same tests for a local folder and for an object store."""

import errno
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from glassflow_dagster.definition.model.state import State
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stream.checkpoint import (
    azure_storage,
    google_storage,
    hdfs_storage,
    object_storage,
    obstore_storage,
)
from glassflow_dagster.stream.checkpoint.open_storage import open_storage, stored_pipelines
from glassflow_dagster.stream.checkpoint.storage import LocalStorage, Storage
from tests.servers.state_server import StateServer
from tests.support.variants import one_of

ROUNDS, WRITERS = 20, 8


def test_a_file_is_read_as_it_was_written(storage: Storage) -> None:
    assert not storage.exists("a/b")
    with pytest.raises(FileNotFoundError):
        storage.read("a/b")
    storage.replace("a/b", b"1")
    assert storage.exists("a/b")
    assert storage.read("a/b") == b"1"
    storage.replace("a/b", b"22")
    assert storage.read("a/b") == b"22"


def test_only_files_of_a_folder_are_listed(storage: Storage) -> None:
    assert storage.names("offsets") == []
    assert list(storage.walk()) == []
    for name in ("offsets/0", "offsets/1", "offsets2/5", "state/0/0/1.zip", "metadata"):
        storage.replace(name, b"x")
    assert sorted(storage.names("offsets")) == ["0", "1"]
    assert sorted(storage.names("")) == ["metadata", "offsets", "offsets2", "state"]
    assert sorted(storage.walk("state")) == ["state/0/0/1.zip"]
    assert sorted(storage.walk()) == ["metadata", "offsets/0", "offsets/1", "offsets2/5", "state/0/0/1.zip"]


def test_a_file_that_exists_is_not_created_again(storage: Storage) -> None:
    storage.create("a/identity.json", b"1")
    with pytest.raises(FileExistsError):
        storage.create("a/identity.json", b"2")
    assert storage.read("a/identity.json") == b"1"
    assert list(storage.walk()) == ["a/identity.json"]


def test_one_of_several_simultaneous_creators_succeeds(storage: Storage) -> None:
    for number in range(ROUNDS):
        barrier = Barrier(WRITERS)

        def create(writer: int, name: str = f"race/{number}", barrier: Barrier = barrier) -> int | None:
            barrier.wait()
            try:
                storage.create(name, b"%d" % writer * 10_000)
            except FileExistsError:
                return None
            return writer

        with ThreadPoolExecutor(WRITERS) as pool:
            winners = [writer for writer in pool.map(create, range(WRITERS)) if writer is not None]
        assert len(winners) == 1
        assert storage.read(f"race/{number}") == b"%d" % winners[0] * 10_000


def test_what_is_deleted_is_gone(storage: Storage) -> None:
    storage.delete("missing")
    storage.delete_folder("missing")
    for name in ("state/0/1", "state/0/2", "offsets/0"):
        storage.replace(name, b"x")
    storage.delete("offsets/0")
    assert not storage.exists("offsets/0")
    storage.delete_folder("state")
    assert list(storage.walk()) == []


def test_a_usable_store_is_accepted(storage: Storage) -> None:
    storage.require_usable()
    storage.require_atomic_creation()
    assert list(storage.walk()) == []


def test_a_file_system_without_hard_links_creates_files_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    storage = LocalStorage(tmp_path)
    storage.create("a/b", b"1")
    with pytest.raises(FileExistsError):
        storage.create("a/b", b"2")
    assert storage.read("a/b") == b"1"
    assert list(storage.walk()) == ["a/b"]


@pytest.mark.servers
@pytest.mark.parametrize(
    ("server", "kind"),
    one_of(
        [
            ("object_store", object_storage.ObjectStorage),
            ("google_storage", google_storage.GoogleStorage),
            ("azure_storage", azure_storage.AzureStorage),
            ("hdfs", hdfs_storage.HdfsStorage),
        ]
    ),
)
def test_pipelines_of_a_store_are_those_with_a_checkpoint(
    request: pytest.FixtureRequest, server: str, kind: Callable[[State, str], Storage], tmp_path: Path
) -> None:
    running: StateServer = request.getfixturevalue(server)
    state = running.state()
    assert stored_pipelines(state, tmp_path) == ()
    for name in ("sms/checkpoint/metadata", "ads/checkpoint/offsets/0", "other/file"):
        kind(state, "").replace(name, b"x")
    assert stored_pipelines(state, tmp_path) == ("ads", "sms")


@pytest.mark.parametrize(
    ("url", "library", "named", "extra"),
    [
        ("s3a://bucket", "obstore", "obstore", "s3"),
        ("gs://bucket", "google.cloud.storage", "google.*", "gs"),
        ("abfs://state@account.dfs.core.windows.net", "obstore", "obstore", "abfs"),
        ("hdfs://host", "hdfs", "hdfs.*", "hdfs"),
    ],
)
def test_the_library_of_a_store_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, url: str, library: str, named: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    for module in (object_storage, azure_storage, google_storage, hdfs_storage, obstore_storage):
        monkeypatch.delitem(sys.modules, module.__name__)
    text = rf"needs the library {named}; run: pip install 'glassflow-dagster\[{extra}\]'"
    with pytest.raises(GlassflowError, match=text):
        open_storage(State(url=url), tmp_path, "p")
