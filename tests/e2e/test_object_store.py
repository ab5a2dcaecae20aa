"""Pipelines whose checkpoint is in an object store: the local folder may be lost, and the counts stay exact."""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from glassflow_dagster.control.heartbeat import pipeline_folder, read_heartbeat
from glassflow_dagster.control.lock import end_remains
from glassflow_dagster.control.status import stream_status
from glassflow_dagster.local.object_store import SECRET_KEY, object_store_variables
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.stream.inline_or_job import INLINE_RECORDS_SETTING
from tests.e2e.support import Pipeline, cli, invoke, kill, rows, start, state, stop
from tests.local.conftest import Server
from tests.servers.azure_storage import KEY, running_azure_storage
from tests.servers.google_storage import running_google_storage
from tests.servers.object_store import ObjectStoreServer, running_object_store
from tests.servers.state_server import StateServer
from tests.support.processes import descendants
from tests.support.variants import one_of
from tests.support.waiting import wait_until

EVENTS, COPIES = 8000, 1500
KINDS = ["small batches", "jobs", "event clock"]
STORES = ["object_store", "google_storage", "azure_storage", "hdfs"]  # fixtures
EXACT = "SELECT count(), uniqExact(id) FROM {db}.events"


def lose_host(pipeline: Pipeline) -> None:
    """Kill the driver with all its processes, and remove its local folder."""
    kill(pipeline)
    end_remains(pipeline_folder(pipeline.state, pipeline.name))
    shutil.rmtree(pipeline.state)


def require_secret_hidden(pipeline: Pipeline) -> None:
    """Check that the store's secret is in no file of the state, and in no command line of the driver's processes."""
    folder = pipeline_folder(pipeline.state, pipeline.name)
    beat = read_heartbeat(folder)
    assert beat is not None
    processes = [Path(f"/proc/{pid}/cmdline") for pid in (beat.pid, *descendants(beat.pid))]
    for file in (*processes, *(each for each in folder.rglob("*") if each.is_file())):
        with suppress(OSError):  # it is gone by now
            content = file.read_bytes()
            assert not any(secret.encode() in content for secret in (SECRET_KEY, KEY)), file


def waiting_records(pipeline: Pipeline) -> int:
    """Return the unread records, as the brokers have told the driver."""
    beat = read_heartbeat(pipeline_folder(pipeline.state, pipeline.name))
    return sum(lag.records for lags in beat.partition_lags.values() for lag in lags.values()) if beat else 0


def with_copies() -> list[dict[str, object]]:
    draw = random.Random(5)
    events: list[dict[str, object]] = [
        {"id": f"k{index}", "n": index, "at": f"2024-10-28T00:00:{index % 60:02}Z"} for index in range(EVENTS)
    ]
    sent = events + draw.sample(events, COPIES)
    draw.shuffle(sent)
    return sent


@pytest.mark.long
@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("kind", one_of(KINDS))
def test_a_host_that_is_lost_in_a_batch_leaves_all_to_the_next_one(
    pipeline: Pipeline, request: pytest.FixtureRequest, store: str, kind: str
) -> None:
    """The driver is killed in a batch, twice, and its local folder is removed: the store alone has the state."""
    server: StateServer = request.getfixturevalue(store)
    pipeline.more["state"] = server.definition()
    pipeline.sink = {"max_batch_size": 100}
    if kind == "jobs":
        pipeline.more["spark"] = {INLINE_RECORDS_SETTING: "0"}
    if kind == "event clock":
        pipeline.fields.append({"name": "at", "type": "string"})
        pipeline.clock = {"clock": "event", "event_time": "at", "allowed_lateness": "30m", "late": "drop"}
    pipeline.write().create_topic()
    sent = with_copies()
    start(pipeline)
    try:
        for part in (sent[:4000], sent[4000:]):
            before = rows(pipeline)
            pipeline.send(part)
            wait_until(lambda before=before: rows(pipeline) > before, "some of the batch is in the table")
            require_secret_hidden(pipeline)
            lose_host(pipeline)
            start(pipeline)
        wait_until(lambda: pipeline.ledger()["read"] == len(sent), "all is read")
    finally:
        stop(pipeline)
    assert not (pipeline.state / pipeline.name / "checkpoint").exists()
    assert pipeline.query(EXACT) == [(EVENTS, EVENTS)]
    ledger = pipeline.ledger()
    assert (ledger["written"], ledger["duplicates"], ledger["dead_letters"]) == (EVENTS, COPIES, 0)
    found = invoke("verify", pipeline.name, "--pipelines", str(pipeline.file.parent))
    assert found.code == 0, found.out


@pytest.mark.long
def test_a_driver_on_another_host_takes_the_pipeline_over(
    pipeline: Pipeline, object_store: ObjectStoreServer, tmp_path: Path
) -> None:
    """Two hosts share nothing but the store and the servers: the newer driver goes on, the older one ends."""
    pipeline.more["state"] = object_store.definition()
    pipeline.sink = {"max_batch_size": 100}
    pipeline.write().create_topic()
    sent = with_copies()
    other = tmp_path / "other host"
    pipeline.send(sent[:4000])
    start(pipeline)
    try:
        wait_until(lambda: rows(pipeline) > 0, "some of the batch is in the table")
        started = invoke("start", str(pipeline.file), "--state", str(other), "--take-over")
        assert started.code == 0, started.err
        pipeline.send(sent[4000:])
        wait_until(lambda: state(pipeline) == "FAILED", "the older driver has ended")
        newer = stream_status(other, pipeline.name).log
        wait_until(lambda: pipeline.ledger()["read"] == len(sent), "all is read", evidence=newer.read_text)
        assert stream_status(other, pipeline.name).state.value == "RUNNING"
    finally:
        invoke("stop", pipeline.name, "--state", str(pipeline.state))
        invoke("stop", pipeline.name, "--state", str(other))
    assert pipeline.query(EXACT) == [(EVENTS, EVENTS)]
    ledger = pipeline.ledger()
    assert (ledger["written"], ledger["duplicates"]) == (EVENTS, COPIES)


@pytest.fixture
def other_clickhouse(tmp_path: Path) -> Iterator[int]:
    """Return the port of a second ClickHouse."""
    server = Server(tmp_path / "other clickhouse", free_port())
    server.start()
    yield server.port
    server.end()


@pytest.mark.long
def test_of_two_drivers_with_two_servers_one_has_the_checkpoint(
    pipeline: Pipeline, object_store: ObjectStoreServer, other_clickhouse: int, tmp_path: Path
) -> None:
    """The epochs in ClickHouse do not see each other, and each table would get a part of the rows."""
    pipeline.more["state"] = object_store.definition()
    pipeline.write().create_topic()
    other = replace(pipeline, folder=tmp_path / "other host", clickhouse_port=other_clickhouse)
    other.client().command(f"CREATE DATABASE {pipeline.name}")
    other.write()
    start(pipeline)
    start(other)
    try:
        pipeline.send(with_copies())
        wait_until(lambda: state(pipeline) == "FAILED", "the older driver has ended")
        assert "another driver uses the checkpoint" in stream_status(pipeline.state, pipeline.name).message
        wait_until(lambda: other.query(EXACT) == [(EVENTS, EVENTS)], "the newer one has written all")

        # It has no ledger of what was read: it is refused before it fences off the other one.
        refused = invoke("start", str(pipeline.file), "--state", str(pipeline.state))
        assert refused.code == 1
        assert f"is done, but {pipeline.name}.glassflow_ledger does not have it" in refused.err
        pipeline.send([{"id": "one more", "n": 1}])
        wait_until(lambda: other.query(EXACT) == [(EVENTS + 1, EVENTS + 1)], "the newer one goes on")
    finally:
        stop(other)
    assert rows(pipeline) == 0


@pytest.mark.long
@pytest.mark.parametrize("run_store", one_of([running_object_store, running_google_storage, running_azure_storage]))
def test_a_store_that_is_away_for_a_moment_is_waited_for(
    pipeline: Pipeline,
    tmp_path: Path,
    run_store: Callable[..., AbstractContextManager[StateServer]],
) -> None:
    data, port = tmp_path / "objects" / "data", free_port()
    pipeline.sink = {"max_batch_size": 100}
    sent = with_copies()
    with run_store(data, port) as store:
        pipeline.more["state"] = store.definition()
        pipeline.write().create_topic()
        pipeline.send(sent[:4000])
        start(pipeline)
        wait_until(lambda: rows(pipeline) > 0, "some of the batch is in the table")
    try:
        # The store is killed. The driver learns of further records meanwhile.
        pipeline.send(sent[4000:])
        wait_until(lambda: waiting_records(pipeline) > 4000, "the driver knows of further records")
        with run_store(data, port):
            wait_until(lambda: pipeline.ledger()["read"] == len(sent), "all is read", evidence=lambda: state(pipeline))
            stop(pipeline)
    finally:
        invoke("stop", pipeline.name, "--state", str(pipeline.state))
    assert pipeline.query(EXACT) == [(EVENTS, EVENTS)]
    assert pipeline.ledger()["duplicates"] == COPIES


@pytest.mark.long
@pytest.mark.parametrize("store", STORES)
def test_state_moves_to_a_store_and_back(pipeline: Pipeline, request: pytest.FixtureRequest, store: str) -> None:
    """The keys move with it: duplicates of what was read before are found in each place."""
    server: StateServer = request.getfixturevalue(store)
    environment = {**server.variables, "GLASSFLOW_STATE": server.state().url}
    pipeline.write().create_topic()
    pipeline.send([{"id": f"k{index}", "n": index} for index in range(100)])
    assert pipeline.catch_up()["written"] == 100

    url, local = environment["GLASSFLOW_STATE"], str(pipeline.state)
    copied = cli("state", "copy", local, url, environment=environment)
    assert copied.code == 0, copied.err
    assert copied.out.startswith(f"{pipeline.name}: copied and compared ")
    again = cli("state", "copy", local, url, environment=environment)
    assert again.code == 1
    assert again.err.splitlines()[-1] == (
        f"error: {url}/{pipeline.name}/checkpoint: is not empty; remove it, or name another place"
    )

    # In the store: working files remain in the folder, whose checkpoint must not be needed.
    shutil.rmtree(pipeline.state / pipeline.name / "checkpoint")
    pipeline.send([{"id": f"k{index}", "n": index} for index in range(50, 150)])
    ran = pipeline.run("--until-caught-up", **environment)
    assert ran.code == 0, ran.err
    totals = json.loads(ran.out)
    assert (totals["read"], totals["written"], totals["duplicates"]) == (100, 50, 50)
    assert not (pipeline.state / pipeline.name / "checkpoint").exists()

    copied = cli("state", "copy", url, local, "--pipeline", pipeline.name, environment=environment)
    assert copied.code == 0, copied.err
    pipeline.send([{"id": f"k{index}", "n": index} for index in range(100, 200)])
    totals = pipeline.catch_up()
    assert (totals["read"], totals["written"], totals["duplicates"]) == (100, 50, 50)
    assert pipeline.query(EXACT) == [(200, 200)]


@pytest.mark.long
def test_the_state_of_a_running_pipeline_is_not_copied(pipeline: Pipeline, object_store: ObjectStoreServer) -> None:
    pipeline.write().create_topic()
    start(pipeline)
    try:
        url = object_store.state().url
        found = invoke("state", "copy", str(pipeline.state), url, environment=object_store_variables(object_store.port))
    finally:
        stop(pipeline)
    assert found.code == 1
    assert f"error: {pipeline.name} is running already" in found.err


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"url": "s3a://nowhere/state"}, "bucket nowhere does not exist on {endpoint}; create it"),
        ({"secret_access_key": "wrong"}, "{endpoint} refuses access (SignatureDoesNotMatch); check the credentials"),
        ({"endpoint": "http://127.0.0.1:1"}, "http://127.0.0.1:1 does not answer ("),
    ],
)
def test_a_store_that_cannot_be_used_ends_the_start_in_a_line(
    pipeline: Pipeline, object_store: ObjectStoreServer, changes: dict[str, str], text: str
) -> None:
    pipeline.more["state"] = {**object_store.definition(), **changes}
    done = pipeline.write().run_without_spark("--until-caught-up")
    assert done.code == 1
    last = done.err.splitlines()[-1]
    assert last.startswith("error: s3a://")
    assert text.format(endpoint=object_store.endpoint) in last


@pytest.mark.parametrize("option", ["--rebuild-state", "--accept-loss"])
def test_recovery_needs_a_folder(pipeline: Pipeline, object_store: ObjectStoreServer, option: str) -> None:
    pipeline.more["state"] = object_store.definition()
    done = pipeline.write().run_without_spark("--until-caught-up", option)
    assert done.code == 1
    assert f"error: {option}: needs the checkpoint in a folder, and it is in s3a://" in done.err
    assert "glassflow-dagster state copy FROM TO" in done.err
