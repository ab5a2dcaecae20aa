from pathlib import Path

import dagster as dg
import pytest
import yaml

from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.orchestration.build_definitions import Orchestration, build_pipeline_definitions
from glassflow_dagster.stores.kafka import topics
from tests.control.fakes import definition, deployment, state
from tests.orchestration.joins import joined_definition

__all__ = ["definition", "deployment", "state"]  # fixtures


@pytest.fixture(autouse=True)
def short_kafka_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the Kafka client's timeout: a closed port refuses at once, but the client retries until its timeout."""
    monkeypatch.setattr(topics, "ANSWER_TIMEOUT", 0.5)


@pytest.fixture
def join_definition(definition: Path) -> Path:
    """Return the file of a pipeline with a join, with the servers of `definition`."""
    file = definition.parents[1] / "joins" / "bids-with-lots.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump(joined_definition()))
    return file


@pytest.fixture
def loaded(definition: Path, state: Path) -> dg.Definitions:
    """Return the definitions of a code location with this pipeline."""
    return build_pipeline_definitions(load_pipeline(definition), Orchestration(runner=LocalRunner(state)))
