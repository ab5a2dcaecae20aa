"""`dg scaffold defs glassflow_dagster.PipelineFolder`: with a topic it writes a definition that loads."""

import json
from pathlib import Path
from uuid import uuid4

import dagster as dg
import pytest
import yaml

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.orchestration.component.pipeline_folder import PipelineFolder
from glassflow_dagster.orchestration.component.scaffolder import PipelineFolderScaffolder, ScaffoldParameters
from tests.servers.stack import Stack
from tests.support.sending import send


def scaffold(folder: Path, **parameters: str) -> dict[str, object]:
    request = dg.ScaffoldRequest(
        type_name="glassflow_dagster.PipelineFolder",
        target_path=folder,
        scaffold_format="yaml",
        project_root=folder,
        params=ScaffoldParameters(**parameters),
    )
    PipelineFolderScaffolder().scaffold(request)
    content: dict[str, object] = yaml.safe_load((folder / "defs.yaml").read_text())
    return content


def test_without_a_topic_only_the_component_is_written(tmp_path: Path) -> None:
    expected = {"type": "glassflow_dagster.PipelineFolder", "attributes": {"folder": "."}}
    assert scaffold(tmp_path) == expected
    assert [file.name for file in tmp_path.iterdir()] == ["defs.yaml"]


def test_with_a_topic_a_definition_that_loads_is_written_beside_it(stack: Stack, tmp_path: Path) -> None:
    topic = f"t{uuid4().hex}"
    send(stack.kafka, topic, [json.dumps({"id": number, "text": "x"}) for number in range(20)])
    scaffold(tmp_path, topic=topic, brokers=stack.kafka, clickhouse_url="http://me@db:8123/shop", pipeline_id="orders")
    config = load_pipeline(tmp_path / "orders.yaml", {})
    assert (config.source.topic, config.connection.brokers) == (topic, (stack.kafka,))
    assert (config.sink.connection_params.host, config.sink.full_table[0]) == ("db", "shop")
    assert PipelineFolder().folder is None


def test_a_topic_that_cannot_be_read_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(dg.DagsterInvalidInvocationError, match=r"127\.0\.0\.1:1"):
        scaffold(tmp_path, topic="orders", brokers="127.0.0.1:1")
    assert not list(tmp_path.iterdir())
