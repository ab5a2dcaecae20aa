"""What is particular to a checkpoint in HDFS: lost answers, and errors that say what to do."""

import getpass
import io
import json
import re
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from hdfs import InsecureClient
from urllib3.exceptions import ProtocolError
from urllib3.response import HTTPResponse

from glassflow_dagster.definition.model.state import State
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.stream.checkpoint import hdfs_storage as module
from glassflow_dagster.stream.checkpoint.hdfs_storage import HdfsStorage
from glassflow_dagster.stream.checkpoint.storage import StorageError
from tests.servers.hdfs import HdfsServer

pytestmark = pytest.mark.servers


Send = Callable[[], requests.Response]
Act = Callable[[str, Send], requests.Response]


@pytest.fixture
def on_request(monkeypatch: pytest.MonkeyPatch) -> Callable[[Act], None]:
    """Return a function that says what becomes of each request; its argument gets the operation, and what sends it."""
    request = requests.Session.request

    def set_act(act: Act) -> None:
        def changed(self: requests.Session, *arguments: Any, **options: Any) -> requests.Response:
            return act((options.get("params") or {}).get("op", ""), lambda: request(self, *arguments, **options))

        monkeypatch.setattr(requests.Session, "request", changed)

    return set_act


@pytest.fixture
def losing(on_request: Callable[[Act], None]) -> list[str]:
    """Return a list of operations whose next answer is lost: HDFS has done what was asked for."""
    to_lose: list[str] = []

    def lose(operation: str, send: Send) -> requests.Response:
        answer = send()
        if operation in to_lose:
            to_lose.remove(operation)
            raise requests.ConnectionError
        return answer

    on_request(lose)
    return to_lose


def client_of(hdfs: HdfsServer) -> InsecureClient:
    """Return a client of HDFS that is not the storage's."""
    session = requests.Session()
    session.trust_env = False
    return InsecureClient(hdfs.endpoint, user=getpass.getuser(), session=session)


def error(status: int, exception: str, message: str) -> requests.Response:
    """Return an answer of WebHDFS."""
    answer = requests.Response()
    answer.status_code = status
    answer.raw = io.BytesIO(json.dumps({"RemoteException": {"exception": exception, "message": message}}).encode())
    return answer


def test_an_error_is_not_taken_for_a_file_that_does_not_exist(
    hdfs: HdfsServer, on_request: Callable[[Act], None]
) -> None:
    storage = HdfsStorage(hdfs.state(), "p")
    storage.create("a", b"1")
    lasting = error(500, "UnsupportedOperationException", "no")
    on_request(lambda operation, send: lasting if operation == "GETFILESTATUS" else send())
    for ask in (storage.require_usable, lambda: storage.exists("a"), lambda: storage.create("b", b"1")):
        with pytest.raises(StorageError, match="answered UnsupportedOperationException: no"):
            ask()


@pytest.mark.parametrize("exception", ["IOException", "SafeModeException", "StandbyException"])
def test_an_error_that_passes_is_waited_for(
    hdfs: HdfsServer, on_request: Callable[[Act], None], exception: str
) -> None:
    """Such as that of a name node which has no data node to give at the moment."""
    storage = HdfsStorage(hdfs.state(), "p")
    failed: list[str] = []

    def fail(operation: str, send: Send) -> requests.Response:
        if failed:
            return send()
        failed.append(operation)
        return error(403, exception, "later")

    on_request(fail)
    storage.create("a", b"1")
    assert (failed, storage.read("a")) == (["CREATE"], b"1")


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


def test_a_file_whose_rename_was_late_is_its_own(hdfs: HdfsServer, on_request: Callable[[Act], None]) -> None:
    """The rename of the first try is executed after the second one has been sent: that one finds nothing to rename."""
    storage = HdfsStorage(hdfs.state(), "p")

    def twice(operation: str, send: Send) -> requests.Response:
        if operation == "RENAME":
            send()
        return send()

    on_request(twice)
    storage.create("a", b"1")
    storage.replace("a", b"2")
    with pytest.raises(FileExistsError):
        storage.create("a", b"3")
    assert storage.read("a") == b"2"


@pytest.mark.parametrize("write", ["create", "replace"])
def test_a_file_that_was_removed_before_its_rename_is_not_taken_for_written(
    hdfs: HdfsServer, on_request: Callable[[Act], None], write: str
) -> None:
    state = hdfs.state()
    storage, client, folder = HdfsStorage(state, "p"), client_of(hdfs), f"{state.hdfs_path}/p"

    def remove(operation: str, send: Send) -> requests.Response:
        if operation == "RENAME":
            [left] = [name for name in client.list(folder) if name.endswith(".new")]
            client.delete(f"{folder}/{left}")
        return send()

    on_request(remove)
    with pytest.raises(StorageError, match="p/a: the file that was written for it is gone"):
        getattr(storage, write)("a", b"1")
    assert not storage.exists("a")


def test_what_a_dead_writer_has_left_is_no_file(hdfs: HdfsServer) -> None:
    state = hdfs.state()
    storage = HdfsStorage(state, "p")
    storage.create("state/0/a", b"1")
    client_of(hdfs).write(f"{state.hdfs_path}/p/state/0/.b.{uuid.uuid4()}.new", b"2")
    assert (list(storage.walk()), storage.names("state/0")) == (["state/0/a"], ["a"])


def test_a_file_whose_reading_breaks_off_is_read_again(hdfs: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = HdfsStorage(hdfs.state(), "p")
    storage.create("a", b"1" * 1000)
    stream, broken = HTTPResponse.stream, []

    def fail(self: HTTPResponse, *arguments: Any, **options: Any) -> Iterator[bytes]:
        if not broken:
            broken.append(self)
            raise ProtocolError("the data node is lost")
        yield from stream(self, *arguments, **options)

    monkeypatch.setattr(HTTPResponse, "stream", fail)
    assert storage.read("a") == b"1" * 1000
    assert broken


def test_a_user_without_a_name_is_told_to_set_one(hdfs: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 4_000_000_000)
    with pytest.raises(StorageError, match="user 4000000000 of this process has no name for HDFS; set HADOOP_U"):
        HdfsStorage(hdfs.state(), "p")


def test_refused_access_is_named(hdfs: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "nobody")
    storage = HdfsStorage(hdfs.state(), "p")
    with pytest.raises(StorageError, match=r"^hdfs://127.0.0.1:\d+/\w+/p/a: HDFS refuses access \(Permission denied"):
        storage.create("a", b"1")


def test_a_server_that_does_not_answer_is_named(hdfs: HdfsServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_RETRY_SECONDS", 0.1)
    endpoint = f"http://127.0.0.1:{free_port()}"
    storage = HdfsStorage(State.model_validate({**hdfs.definition("f"), "endpoint": endpoint}), "p")
    text = f"hdfs://127.0.0.1:{hdfs.rpc_port}/f/p/: WebHDFS at {endpoint} does not answer (ConnectionError); check the"
    with pytest.raises(StorageError, match=re.escape(text)):
        storage.require_usable()
