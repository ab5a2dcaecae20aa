"""A definition that is no file of its own reaches the driver through its standard input."""

from dataclasses import replace

import pytest
import yaml

from glassflow_dagster.control.deployment import Deployment
from glassflow_dagster.control.launch import launch_driver
from glassflow_dagster.control.sent_definition import SentDefinition
from glassflow_dagster.control.status import StreamState
from glassflow_dagster.definition.load import load_pipeline, load_written
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from tests.definitions.cases import CASES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.file.parent.name}-{case.file.stem}")
def test_a_definition_that_is_sent_is_the_same_on_the_other_side(case: Case) -> None:
    config = load_pipeline(case.file, case.environment)
    built = PipelineConfig.model_validate(config.content)
    received = SentDefinition.model_validate_json(SentDefinition.of(built).model_dump_json()).load()
    assert (received, received.fingerprint) == (config, config.fingerprint)


def test_a_definition_without_a_file_starts_a_driver_and_no_secret_is_seen(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = deployment.config.origin.file
    assert file
    written = yaml.safe_load(file.read_text())
    written["sink"]["connection_params"]["password"] = "hunter2"
    monkeypatch.delenv("GLASSFLOW_CLICKHOUSE_URL")
    config = load_written(written)
    sent = replace(deployment, config=config)
    assert "hunter2" not in " ".join(sent.command)
    status = launch_driver(sent)
    assert status.state is StreamState.RUNNING
    assert status.heartbeat
    assert status.heartbeat.fingerprint == config.fingerprint
    assert "hunter2" not in "".join(path.read_text() for path in status.folder.rglob("*") if path.is_file())
