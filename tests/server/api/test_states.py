"""Which requests a pipeline's status allows, with GlassFlow's codes and texts."""

import os
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from glassflow_dagster.control.status import StreamState
from glassflow_dagster.control.stop import Ending
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.api_error import ApiError
from glassflow_dagster.server.api.operations import Operations
from glassflow_dagster.server.api.states import OF_STREAM, Status, require_at_rest, require_transition
from tests.server.api.conftest import Api, deduplicating
from tests.support.waiting import wait_until

ALREADY, TRANSITION, INVALID = "PIPELINE_ALREADY_IN_STATE", "PIPELINE_IN_TRANSITION", "INVALID_STATUS_TRANSITION"
# Current status -> the error of a stop, a termination and a resumption; None where it is allowed.
REFUSED = {
    Status.CREATED: (INVALID, None, INVALID),
    Status.RUNNING: (None, None, INVALID),
    Status.RESUMING: (TRANSITION, None, ALREADY),
    Status.STOPPING: (ALREADY, None, TRANSITION),
    Status.STOPPED: (INVALID, INVALID, None),
    Status.TERMINATING: (TRANSITION, ALREADY, TRANSITION),
    Status.FAILED: (INVALID, None, None),
}
REQUESTED = (Status.STOPPING, Status.TERMINATING, Status.RESUMING)


@pytest.mark.parametrize(("current", "requested"), [*product(REFUSED, REQUESTED)])
def test_a_status_allows_what_it_does_in_glassflow(current: Status, requested: Status) -> None:
    code = REFUSED[current][REQUESTED.index(requested)]
    if code is None:
        require_transition("p", current, requested)
        return
    with pytest.raises(ApiError) as raised:
        require_transition("p", current, requested)
    body = raised.value.body
    assert (body["status"], body["code"]) == (400, code)
    assert (body["details"]["current_status"], body["details"]["requested_status"]) == (current, requested)
    texts = {
        ALREADY: f"Pipeline is already in {requested} state",
        TRANSITION: f"Pipeline is currently transitioning from {current} state, cannot perform {requested} operation",
        INVALID: f"Invalid status transition from {current} to {requested}",
    }
    assert body["message"] == texts[code]


@pytest.mark.parametrize("current", [*Status])
def test_only_a_pipeline_at_rest_can_be_edited(current: Status) -> None:
    if current in {Status.STOPPED, Status.FAILED}:
        require_at_rest("p", current)
        return
    with pytest.raises(ApiError, match=f"must be stopped before editing, current status: {current}") as raised:
        require_at_rest("p", current)
    assert raised.value.code == "PIPELINE_NOT_STOPPED_FOR_EDIT"


def test_every_state_of_a_driver_is_a_status() -> None:
    assert {*OF_STREAM} == {*StreamState}


def test_an_operation_gives_its_status_until_it_ends_and_leaves_its_failure(tmp_path: Path) -> None:
    said: list[str] = []
    operations = Operations(tmp_path, said.append)
    going: list[bool] = []

    def work() -> None:
        wait_until(lambda: going, "the test goes on")
        raise GlassflowError("the reason; the remedy")

    operations.begin("p", Status.RESUMING, work)
    assert operations.current("p") is Status.RESUMING
    assert operations.current("other") is None
    going.append(True)
    wait_until(lambda: operations.current("p") is None, "the operation ends")
    assert (operations.failure("p"), said) == ("the reason; the remedy", ["the reason; the remedy"])
    operations.begin("p", Status.STOPPING, lambda: None)
    wait_until(lambda: operations.current("p") is None, "the operation ends")
    assert operations.failure("p") == ""


def test_a_later_operation_takes_the_place_of_an_earlier_one(tmp_path: Path) -> None:
    operations = Operations(tmp_path, lambda _: None)
    going: list[bool] = []
    ended: list[bool] = []

    def overtaken() -> None:
        wait_until(lambda: going, "the test goes on")
        ended.append(True)
        raise GlassflowError("was stopped while it started")

    operations.begin("p", Status.CREATED, overtaken)
    operations.begin("p", Status.TERMINATING, lambda: wait_until(lambda: len(going) > 1, "the test goes on"))
    going.append(True)
    wait_until(lambda: ended, "the first operation ends")
    assert operations.current("p") is Status.TERMINATING
    going.append(True)
    wait_until(lambda: operations.current("p") is None, "the operation ends")
    assert operations.failure("p") == ""


def test_a_defect_is_a_failure_without_its_details(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    operations = Operations(tmp_path, lambda _: None)
    operations.begin("p", Status.CREATED, lambda: {}["the details"])
    wait_until(lambda: operations.current("p") is None, "the operation ends")
    assert operations.failure("p") == "p: KeyError; the API's log has more"
    assert "the details" in caplog.text


# Another process on the same folder: it is starting a pipeline, until it is killed.
STARTING = """
import sys, threading
from pathlib import Path
from glassflow_dagster.server.api.operations import Operations
from glassflow_dagster.server.api.states import Status
operations = Operations(Path(sys.argv[1]), print)
operations.begin("orders-clean", Status.CREATED, lambda: (print("begun", flush=True), threading.Event().wait()))
threading.Event().wait()
"""


def test_a_pipeline_that_another_process_has_just_created_is_not_deleted_as_stopped(api: Api) -> None:
    file = api.write(deduplicating())
    operations = api.folder / ".api" / "operations"
    assert api.status("orders-clean") == "Stopped"
    other = subprocess.Popen([sys.executable, "-c", STARTING, operations], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout
        assert other.stdout.readline() == "begun\n"
        assert api.status("orders-clean") == "Created"
        refused = api.request("DELETE", "/api/v1/pipeline/orders-clean")
        assert (refused.status_code, refused.json()["details"]["current_status"]) == (400, "Created")
        definition = api.get("/api/v1/pipeline/orders-clean").json()
        for path, body in (("resume", None), ("edit", definition), ("rollback", {"version": 1})):
            assert api.post(f"/api/v1/pipeline/orders-clean/{path}", body).status_code == 400
        assert file.exists()
    finally:
        os.kill(other.pid, signal.SIGKILL)
        other.wait(60)
    # What a killed process was doing does not last.
    assert api.status("orders-clean") == "Stopped"
    assert not [*(operations / "orders-clean").iterdir()]
    assert api.request("DELETE", "/api/v1/pipeline/orders-clean").status_code == 200


def test_a_driver_that_is_just_being_started_is_terminated(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its first heartbeat nothing says that it runs."""
    going: list[bool] = []
    endings: list[Ending] = []

    def start(*_: object) -> None:
        wait_until(lambda: going, "the driver is stopped")
        raise GlassflowError("it was stopped while it started")

    def stop(*_: object) -> Ending:
        endings.append(Ending.STOPPED if len(endings) == 3 else Ending.NOT_RUNNING)
        if endings[-1] is Ending.STOPPED:
            going.append(True)
        return endings[-1]

    monkeypatch.setattr("glassflow_dagster.control.hosts.ensure_driver", start)
    monkeypatch.setattr("glassflow_dagster.control.hosts.stop_driver", stop)
    assert api.post("/api/v1/pipeline", deduplicating()).status_code == 200
    assert api.status("orders-clean") == "Created"
    assert api.post("/api/v1/pipeline/orders-clean/terminate").status_code == 200
    api.wait_for("orders-clean", "Stopped")
    assert endings == [*[Ending.NOT_RUNNING] * 3, Ending.STOPPED]
