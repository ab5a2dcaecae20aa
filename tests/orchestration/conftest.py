import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml

from glassflow_dagster.config.load import load_pipeline
from glassflow_dagster.defs.resources import resources
from glassflow_dagster.kafka import topics
from glassflow_dagster.orchestration.pipelines import build_pipeline_definitions
from glassflow_dagster.streaming import process
from tests.orchestration.joins import joined_definition

DEFINITIONS = Path(__file__).parents[2] / "pipelines"


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A closed port refuses at once, but Kafka's client tries it again for as long as it may."""
    monkeypatch.setattr(topics, "ANSWER_TIMEOUT", 0.5)


@pytest.fixture
def definition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped sms_status pipeline as a file of the test's own; nothing listens where its servers should be."""
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
def join_definition(definition: Path) -> Path:
    """A pipeline with a join as a file, whose servers are those of `definition`."""
    file = definition.parents[1] / "joins" / "bids-with-lots.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(joined_definition()))
    return file


@pytest.fixture
def loaded(definition: Path) -> dg.Definitions:
    """The definition as a whole code location has it."""
    pipeline = build_pipeline_definitions(definition, load_pipeline(definition))
    return dg.Definitions.merge(pipeline, resources())


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state folder whose drivers are fake, and are ended with the test."""
    monkeypatch.setattr(process, "DRIVER", (sys.executable, str(Path(__file__).with_name("fake_driver.py"))))
    monkeypatch.delenv("FAKE_DRIVER", raising=False)
    folder = tmp_path / "state"
    yield folder
    for pipeline in folder.iterdir() if folder.is_dir() else ():
        process.stop(folder, pipeline.name, timeout=0.5)


@pytest.fixture
def deployment(definition: Path, state: Path) -> process.Deployment:
    return process.Deployment(definition, load_pipeline(definition), state, timeout=30)
