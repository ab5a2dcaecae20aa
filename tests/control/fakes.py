"""A pipeline with a fake driver, for tests of starting, monitoring and stopping drivers."""

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from glassflow_dagster.control.deployment import Deployment
from glassflow_dagster.control.stop import stop_driver
from glassflow_dagster.definition.load import load_pipeline

DEFINITIONS = Path(__file__).parents[2] / "pipelines"


@pytest.fixture
def definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the shipped sms_status pipeline as a file of the test's own; no server listens at its addresses."""
    with socket.socket() as kafka, socket.socket() as clickhouse:
        kafka.bind(("127.0.0.1", 0))
        clickhouse.bind(("127.0.0.1", 0))
        monkeypatch.setenv("GLASSFLOW_KAFKA_BROKERS", f"127.0.0.1:{kafka.getsockname()[1]}")
        monkeypatch.setenv("GLASSFLOW_CLICKHOUSE_URL", f"http://default:@127.0.0.1:{clickhouse.getsockname()[1]}")
    folder = tmp_path / "pipelines"
    folder.mkdir()
    file = folder / "sms_status.yaml"
    file.write_text((DEFINITIONS / "sms_status.yaml").read_text())
    return file


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a state folder whose drivers are fake and end with the test."""
    monkeypatch.setattr(
        "glassflow_dagster.control.deployment.DRIVER", (sys.executable, str(Path(__file__).with_name("fake_driver.py")))
    )
    monkeypatch.delenv("FAKE_DRIVER", raising=False)
    folder = tmp_path / "state"
    yield folder
    for pipeline in folder.iterdir() if folder.is_dir() else ():
        stop_driver(folder, pipeline.name, timeout=0.5)


@pytest.fixture
def deployment(definition: Path, state: Path) -> Deployment:
    return Deployment(state, config=load_pipeline(definition), timeout=30)
