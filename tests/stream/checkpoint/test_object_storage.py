"""What is particular to a checkpoint in an object store: lost answers, and errors that say what to do."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.definition.model.state import State
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint, CheckpointError
from glassflow_dagster.stream.checkpoint.copy import copy_checkpoint
from glassflow_dagster.stream.checkpoint.object_storage import ObjectStorage, StorageError
from glassflow_dagster.stream.checkpoint.storage import LocalStorage
from tests.servers.object_store import LosingProxy, ObjectStoreServer
from tests.stream.checkpoint.test_checkpoint import plan, spark_files

pytestmark = pytest.mark.servers


def test_a_file_whose_answer_was_lost_is_its_own(object_store: ObjectStoreServer) -> None:
    """The request is repeated, and the store refuses what it has already created."""
    proxy = LosingProxy(object_store.port)
    storage = ObjectStorage(object_store.state().model_copy(update={"endpoint": proxy.endpoint}), "p")
    storage.create("before", b"0")
    proxy.to_lose = 1
    storage.create("identity.json", b"1")
    assert storage.read("identity.json") == b"1"
    proxy.to_lose = 1
    with pytest.raises(FileExistsError):
        storage.create("identity.json", b"2")
    assert storage.read("identity.json") == b"1"
    proxy.close()


def edited(object_store: ObjectStoreServer, **changes: Any) -> ObjectStorage:
    return ObjectStorage(State.model_validate({**object_store.definition(), **changes}), "p")


def test_a_bucket_that_does_not_exist_is_named(object_store: ObjectStoreServer) -> None:
    storage = edited(object_store, url="s3a://nowhere/state")
    text = f"s3a://nowhere/state/p: bucket nowhere does not exist on {object_store.endpoint}; create it, or correct"
    with pytest.raises(StorageError, match=re.escape(text)):
        storage.require_usable()
    with pytest.raises(StorageError, match="bucket nowhere does not exist"):
        storage.create("a", b"1")
    with pytest.raises(StorageError, match="bucket nowhere does not exist"):
        storage.read("a")


def test_refused_credentials_are_named(object_store: ObjectStoreServer) -> None:
    storage = edited(object_store, secret_access_key="wrong")
    for request in (storage.require_usable, lambda: storage.read("a"), lambda: storage.replace("a", b"1")):
        with pytest.raises(StorageError, match=r"refuses access \(SignatureDoesNotMatch\); check the cred") as error:
            request()
        assert "\n" not in str(error.value)


def test_only_a_missing_object_is_a_missing_file(object_store: ObjectStoreServer) -> None:
    """This store answers 404 for a user that does not exist."""
    storage = edited(object_store, access_key_id="nobody")
    for request in (storage.require_usable, lambda: storage.read("a")):
        with pytest.raises(StorageError, match=r"answered \w+; check state.region and state.endpoint"):
            request()


def test_a_silent_endpoint_is_named(object_store: ObjectStoreServer) -> None:
    endpoint = f"http://127.0.0.1:{free_port()}"
    storage = edited(object_store, endpoint=endpoint)
    with pytest.raises(StorageError, match=rf"{endpoint} does not answer \(.*\); check the endpoint") as error:
        storage.require_usable()
    assert "\n" not in str(error.value)


def test_a_store_that_ignores_conditions_is_refused(
    object_storage: Callable[[], ObjectStorage], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = object_storage()
    monkeypatch.setattr(storage, "create", storage.replace)
    with pytest.raises(StorageError, match=r"ignores conditional writes \(If-None-Match: \*\)"):
        storage.require_atomic_creation()
    assert list(storage.walk()) == []


def test_of_two_drivers_one_makes_the_plan_of_a_batch(object_storage: Callable[[], ObjectStorage]) -> None:
    """The older one, which is about to be fenced off, must not replace the plan of the newer one."""
    storage = object_storage()
    newer, older = Checkpoint(storage), Checkpoint(storage)
    newer.record(plan(0))
    with pytest.raises(CheckpointError, match=r"plans/0\.json: was written by another query"):
        older.record(plan(0).model_copy(update={"rows": 7}))
    assert newer.plan(0) == plan(0)


def test_an_unplanned_batch_stays(object_storage: Callable[[], ObjectStorage]) -> None:
    """An older driver on another host may be about to write its plan, for the offsets in the log."""
    storage = object_storage()
    storage.replace("offsets/0", b"v1")
    Checkpoint(storage).forget_unplanned()
    assert storage.exists("offsets/0")


def test_a_batch_reads_its_offsets_once(
    object_storage: Callable[[], ObjectStorage], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = object_storage()
    copy_checkpoint(spark_files(tmp_path, batches=3, committed=2).storage, storage, print)
    checkpoint, reads, read = Checkpoint(storage), list[str](), storage.read
    monkeypatch.setattr(storage, "read", lambda name: (reads.append(name), read(name))[1])
    assert checkpoint.offset_ranges(1) == {"t": {0: (15, 25), 1: (10, 20)}}
    assert checkpoint.offset_ranges(2) == {"t": {0: (25, 35), 1: (20, 30)}}
    assert checkpoint.batch_time_ms(2) == 1002
    assert reads == ["offsets/0", "offsets/1", "offsets/2"]
    # What was rewritten is read again.
    checkpoint.set_next_offsets({"t": {0: 20, 1: 20}})
    assert checkpoint.offset_ranges(2) == {"t": {0: (20, 35), 1: (20, 30)}}


def test_a_checkpoint_goes_to_a_bucket_and_back(object_storage: Callable[[], ObjectStorage], tmp_path: Any) -> None:
    source, bucket, back = LocalStorage(tmp_path / "a"), object_storage(), LocalStorage(tmp_path / "b")
    for number in range(40):
        source.replace(f"state/0/0/{number}.zip", b"%d" % number * 1000)
    source.replace("offsets/0", b"v1")
    source.replace("offsets/.0.crc", b"crc")
    copied = copy_checkpoint(source, bucket, print)
    assert copied.files == 41
    assert copy_checkpoint(bucket, back, print) == copied
    # Hadoop's checksums stay behind: an object may be replaced without them.
    expected = {name: source.read(name) for name in source.walk() if not name.endswith(".crc")}
    assert {name: back.read(name) for name in back.walk()} == expected
