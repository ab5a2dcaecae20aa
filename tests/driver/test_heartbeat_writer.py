"""A heartbeat that cannot be written must not stop the driver or hide its error."""

import threading
from pathlib import Path

import pytest

from glassflow_dagster.control.heartbeat import DriverState, Heartbeat, read_heartbeat, write_heartbeat
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver import heartbeat_writer as module
from glassflow_dagster.driver.heartbeat_writer import write_heartbeats
from glassflow_dagster.errors import GlassflowError

CONFIG = PipelineConfig.model_validate({
    "pipeline_id": "pipeline",
    "sources": [{
        "type": "kafka", "source_id": "s", "topic": "t", "connection_params": {"brokers": ["127.0.0.1:1"]},
        "schema_fields": [{"name": "x", "type": "int"}],
    }],
    "sink": {
        "type": "clickhouse", "table": "t",
        "connection_params": {"host": "h", "port": 9000, "database": "d", "username": "u"},
        "mapping": [{"name": "x", "column_name": "x", "column_type": "Int64"}],
    },
})  # fmt: skip


class Disk:
    """A disk that is full while `full` is set."""

    def __init__(self) -> None:
        self.full = threading.Event()
        self.refused = threading.Event()
        self.written = threading.Event()

    def write(self, folder: Path, heartbeat: Heartbeat) -> None:
        if self.full.is_set():
            self.refused.set()
            raise OSError("No space left on device")
        write_heartbeat(folder, heartbeat)
        self.written.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    made = Disk()
    monkeypatch.setattr(module, "write_heartbeat", made.write)
    monkeypatch.setattr(module, "INTERVAL", 0.01)
    return made


def test_a_driver_beats_again_once_there_is_room(tmp_path: Path, disk: Disk) -> None:
    with write_heartbeats(tmp_path, CONFIG):
        disk.full.set()
        assert disk.refused.wait(30)
        disk.written.clear()
        disk.full.clear()
        assert disk.written.wait(30)
    found = read_heartbeat(tmp_path)
    assert found is not None
    assert found.state is DriverState.STOPPED


def test_a_full_disk_does_not_hide_the_failure_that_ended_the_driver(tmp_path: Path, disk: Disk) -> None:
    def drive() -> None:
        with write_heartbeats(tmp_path, CONFIG):
            disk.full.set()
            raise GlassflowError("the topic is gone")

    with pytest.raises(GlassflowError, match="the topic is gone"):
        drive()
