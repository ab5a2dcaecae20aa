"""What is particular to a checkpoint in HDFS: lost answers, and errors that say what to do."""

import re
from typing import Any

import pytest
import requests

from glassflow_dagster.config.model.state import State
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.streaming.checkpoint import hdfs_storage as module
from glassflow_dagster.streaming.checkpoint.hdfs_storage import HdfsStorage
from glassflow_dagster.streaming.checkpoint.storage import StorageError, stored_pipelines
from tests.hdfs import HdfsServer

pytestmark = pytest.mark.servers


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of operations whose next answer is lost: HDFS has done what was asked for."""
    to_lose: list[str] = []
    request = requests.Session.request

    def lose(self: requests.Session, *arguments: Any, **options: Any) -> requests.Response:
        answer = request(self, *arguments, **options)
        operation = (options.get("params") or {}).get("op")
        if operation in to_lose:
            to_lose.remove(operation)
            raise requests.ConnectionError
        return answer

    monkeypatch.setattr(requests.Session, "request", lose)
    return to_lose


def test_an_error_is_not_taken_for_a_file_that_does_not_exist(
    hdfs: HdfsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = HdfsStorage(hdfs.state(), "p")
    storage.create("a", b"1")
    request = requests.Session.request

    def fail(self: requests.Session, *arguments: Any, **options: Any) -> requests.Response:
        answer = request(self, *arguments, **options)
        if (options.get("params") or {}).get("op") == "GETFILESTATUS":
            answer.status_code = 500
            answer._content = b'{"RemoteException": {"exception": "IOException", "message": "the disk is broken"}}'
        return answer

    monkeypatch.setattr(requests.Session, "request", fail)
    for ask in (storage.require_usable, lambda: storage.exists("a"), lambda: storage.create("b", b"1")):
        with pytest.raises(StorageError, match="answered IOException: the disk is broken"):
            ask()


@pytest.mark.parametrize("operation", ["CREATE", "RENAME"])
def test_a_file_whose_answer_was_lost_is_its_own(hdfs: HdfsServer, losing: list[str], operation: str) -> None:
    storage = HdfsStorage(hdfs.state(), "p")
    losing.append(operation)
    storage.create("identity.json", b"1")
    assert losing == []
    assert storage.read("identity.json") == b"1"
    losing.append(operation)
    with pytest.raises(FileExistsError):
        storage.create("identity.json", b"2")
    losing[:] = [operation]
    storage.replace("identity.json", b"3")
    assert storage.read("identity.json") == b"3"
    assert list(storage.walk()) == ["identity.json"]


def test_the_pipelines_of_a_folder_are_found(hdfs: HdfsServer, tmp_path: Any) -> None:
    state = hdfs.state()
    for name in ("b", "a"):
        HdfsStorage(state, f"{name}/checkpoint").create("metadata", b"x")
    HdfsStorage(state, "c").create("other", b"x")
    assert stored_pipelines(state, tmp_path) == ("a", "b")


def test_refused_access_is_named(hdfs: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "nobody")
    storage = HdfsStorage(hdfs.state(), "p")
    with pytest.raises(StorageError, match=r"^hdfs://127.0.0.1:\d+/\w+/p/a: HDFS refuses access \(Permission denied"):
        storage.create("a", b"1")


def test_a_server_that_does_not_answer_is_named(hdfs: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_FIRST_RETRY_SECONDS", 0.1)
    endpoint = f"http://127.0.0.1:{free_port()}"
    storage = HdfsStorage(State.model_validate({**hdfs.definition("f"), "endpoint": endpoint}), "p")
    text = f"hdfs://127.0.0.1:{hdfs.port}/f/p/: WebHDFS at {endpoint} does not answer (ConnectionError); check the"
    with pytest.raises(StorageError, match=re.escape(text)):
        storage.require_usable()
