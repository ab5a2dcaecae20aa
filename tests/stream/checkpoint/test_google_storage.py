"""What is particular to a checkpoint in Google Cloud Storage: lost answers, and errors that say what to do."""

import io
import re
from pathlib import Path
from typing import Any

import pytest
import requests

from glassflow_dagster.definition.model.state import State
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.stream.checkpoint import google_storage as module
from glassflow_dagster.stream.checkpoint.google_storage import GoogleStorage
from glassflow_dagster.stream.checkpoint.storage import StorageError
from tests.servers.google_storage import GoogleServer

pytestmark = pytest.mark.servers


def edited(google_storage: GoogleServer, **changes: Any) -> GoogleStorage:
    return GoogleStorage(State.model_validate({**google_storage.definition(), **changes}), "p")


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list of methods whose next answer is lost: the server has done what was asked for."""
    request, to_lose = requests.Session.request, list[str]()

    def lose(self: requests.Session, method: str, *arguments: Any, **options: Any) -> requests.Response:
        answer = request(self, method, *arguments, **options)
        if method in to_lose:
            to_lose.remove(method)
            raise requests.ConnectionError
        return answer

    monkeypatch.setattr(requests.Session, "request", lose)
    return to_lose


def refuse(monkeypatch: pytest.MonkeyPatch, status: int, message: str) -> None:
    """Let every request be answered by an error."""
    answer = requests.Response()
    answer.status_code = status
    answer.raw = io.BytesIO(b'{"error": {"message": "%s"}}' % message.encode())
    answer.request = requests.Request("GET", "http://127.0.0.1").prepare()
    answer.headers["Content-Type"] = "application/json"
    monkeypatch.setattr(requests.Session, "request", lambda *_, **__: answer)


def test_a_file_whose_answer_was_lost_is_its_own(google_storage: GoogleServer, losing: list[str]) -> None:
    storage = edited(google_storage)
    losing.append("POST")
    storage.create("identity.json", b"1")
    assert losing == []
    losing.append("POST")
    with pytest.raises(FileExistsError):
        storage.create("identity.json", b"2")
    losing[:] = ["POST"]
    storage.replace("identity.json", b"3")
    assert (losing, storage.read("identity.json")) == ([], b"3")


def test_a_bucket_that_does_not_exist_is_named(google_storage: GoogleServer) -> None:
    storage = edited(google_storage, url="gs://nowhere/state")
    text = f"gs://nowhere/state/p: bucket nowhere does not exist on {google_storage.endpoint}; create it, or correct"
    with pytest.raises(StorageError, match=re.escape(text)):
        storage.require_usable()


def test_a_bucket_that_has_gone_is_no_missing_file(
    google_storage: GoogleServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = edited(google_storage)
    refuse(monkeypatch, 404, "The specified bucket does not exist.")
    with pytest.raises(StorageError, match="bucket glassflow does not exist"):
        storage.read("a")


@pytest.mark.parametrize("status", [401, 403])
def test_refused_access_is_named(google_storage: GoogleServer, monkeypatch: pytest.MonkeyPatch, status: int) -> None:
    storage = edited(google_storage)
    refuse(monkeypatch, status, "a@b does not have storage.objects.list access")
    for request in (storage.require_usable, lambda: storage.read("a"), lambda: storage.create("a", b"1")):
        with pytest.raises(StorageError, match=r"refuses access \(.*\); check the credentials, and grant") as error:
            request()
        assert "\n" not in str(error.value)


def test_a_silent_endpoint_is_named(google_storage: GoogleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_RETRY_SECONDS", 0.1)
    endpoint = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(StorageError, match=rf"{endpoint} does not answer \(.*\); check the endpoint") as error:
        edited(google_storage, endpoint=endpoint).require_usable()
    assert "\n" not in str(error.value)


def test_missing_credentials_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST", "CLOUDSDK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    storage = GoogleStorage(State(url="gs://bucket/state"), "p")
    with pytest.raises(StorageError, match=r"^gs://bucket/state/p: no credentials of Google's \(.+\); set "):
        storage.require_usable()
