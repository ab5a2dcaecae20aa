"""The component in a Dagster project that is not this one: its attributes, and several of it side by side."""

import json
import os
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from dagster.components.testing import create_defs_folder_sandbox

from glassflow_dagster.control.runners.choose import build_runner
from glassflow_dagster.control.runners.standalone import StandaloneRunner
from glassflow_dagster.control.status import StreamState, stream_status
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.orchestration.component.pipeline_folder import PipelineFolder
from tests.support.definition import clickhouse, sink, source
from tests.support.definition import definition as v3_definition

PIPELINE = "glassflow_dagster.PipelineFolder"
Load = Callable[[dict[str, dict[str, Any]]], dg.Definitions]


def orders(name: str = "orders_pipeline") -> dict[str, Any]:
    """Return a definition with deduplication and a transform; no server listens at its addresses."""
    fields = [{"name": "id", "type": "string"}, {"name": "price", "type": "float"}, {"name": "count", "type": "int"}]
    outputs = [
        {"expression": "id", "output_name": "id", "output_type": "string"},
        {"expression": "price * count", "output_name": "total", "output_type": "float64"},
    ]
    return v3_definition(
        name,
        source("orders", fields, "127.0.0.1:1"),
        sink({"id": "String", "total": "Float64"}, clickhouse(1, "shop"), table="orders_clean"),
        {"type": "dedup", "source_id": "orders", "config": {"key": "id", "time_window": "1h"}},
        {"type": "stateless", "source_id": "orders", "config": {"transforms": outputs}},
    )


@pytest.fixture
def load() -> Iterator[Load]:
    """Load a project with these components, by the folder of each in defs/, with one definition beside each."""
    with create_defs_folder_sandbox() as sandbox:

        def load_project(components: dict[str, dict[str, Any]]) -> dg.Definitions:
            for path, attributes in components.items():
                folder = sandbox.defs_folder_path / path
                folder.mkdir(parents=True, exist_ok=True)
                content = {"type": PIPELINE, "attributes": attributes}
                post_processing = attributes.pop("post_processing", None)
                if post_processing:
                    content["post_processing"] = post_processing
                (folder / "defs.yaml").write_text(yaml.safe_dump(content))
                if "pipeline" not in attributes:
                    (folder / "orders_pipeline.yaml").write_text(yaml.safe_dump(orders()))
            with sandbox.build_all_defs() as defs:
                dg.Definitions.validate_loadable(defs)
                return defs

        yield load_project


def keys(defs: dg.Definitions) -> set[str]:
    return {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}


def spec(defs: dg.Definitions, key: str) -> dg.AssetSpec:
    return next(spec for spec in defs.resolve_all_asset_specs() if spec.key.to_user_string() == key)


def test_the_definitions_beside_it_become_assets_and_its_names_begin_with_its_folder(load: Load) -> None:
    defs = load({"streams/shop": {}})
    assert keys(defs) == {
        "orders_pipeline/raw_orders", "orders_pipeline/deduplicated_orders", "orders_pipeline/orders_clean",
    }  # fmt: skip
    assert {sensor.name for sensor in defs.sensors or ()} == {
        f"streams__shop__{name}" for name in ("observer", "health_checks", "alerts", "run_failures")
    }


def test_two_of_it_stand_side_by_side_and_need_no_resource_of_the_location(load: Load) -> None:
    defs = load(
        {
            "staging": {"key_prefix": "staging", "runner": {"state": "state"}},
            "production": {"key_prefix": ["production", "eu"], "owners": ["team:streams", "a@example.com"]},
        }
    )
    own = dg.Definitions(resources={"pyspark": object(), "stream_runner": object(), "kafka": object()})
    dg.Definitions.validate_loadable(dg.Definitions.merge(defs, own))
    assert {"staging/orders_pipeline/orders_clean", "production/eu/orders_pipeline/orders_clean"} <= keys(defs)
    assert spec(defs, "production/eu/orders_pipeline/raw_orders").owners == ("team:streams", "a@example.com")
    assert not spec(defs, "staging/orders_pipeline/raw_orders").owners


def built_runners(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the list that gets the runners of the components that are loaded from now on."""
    made: list[Any] = []

    def note(*how: Any) -> Any:
        made.append(build_runner(*how))
        return made[-1]

    monkeypatch.setattr("glassflow_dagster.orchestration.component.pipeline_folder.build_runner", note)
    return made


def test_a_url_as_state_is_the_store_of_its_drivers(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their working files are in the default folder, as for a URL in the environment."""
    made = built_runners(monkeypatch)
    monkeypatch.delenv("GLASSFLOW_STATE", raising=False)
    load({"shop": {"runner": {"state": "s3a://bucket/state"}}})
    assert made[0].environment["GLASSFLOW_STATE"] == "s3a://bucket/state"
    assert made[0].state == Path(".glassflow/state").absolute()


def test_the_runner_is_chosen_by_its_type(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    made = built_runners(monkeypatch)
    load(
        {
            "shop": {
                "runner": {
                    "type": "spark-submit", "master": "spark://10.0.0.1:7077", "deploy_mode": "cluster",
                    "python": "{{ env.HOME }}/bin/python", "state": "s3a://bucket/state",
                }
            }
        }
    )  # fmt: skip
    assert isinstance(made[0], StandaloneRunner)
    assert made[0].settings.master == "spark://10.0.0.1:7077"
    assert made[0].settings.python == f"{os.environ['HOME']}/bin/python"


@pytest.mark.parametrize(
    ("runner", "text"),
    [
        (
            {"master": "spark://10.0.0.1:7077"},
            "attributes.runner: master: runner local has no such option; it has none",
        ),
        (
            {"type": "spark-submit", "master": "local[2]"},
            "attributes.runner: master: 'local[2]' is no cluster; write spark://HOST:PORT or yarn",
        ),
    ],
)
def test_options_that_the_runner_does_not_have_are_named(load: Load, runner: dict[str, Any], text: str) -> None:
    assert text in failure(load, {"runner": runner})


def test_attributes_of_the_assets(load: Load) -> None:
    defs = load(
        {
            "shop": {
                "table_key_prefix": "analytics",
                "group_name": "streams",
                "tags": {"tier": "gold"},
                "kinds": ["critical"],
                "op": {"pool": "spark", "tags": {"size": "small"}},
            }
        }
    )
    table = spec(defs, "analytics/orders_clean")
    assert (table.group_name, table.tags["tier"]) == ("streams", "gold")
    assert table.kinds == {"clickhouse", "table", "critical"}
    assets = defs.resolve_assets_def(dg.AssetKey(["analytics", "orders_clean"]))
    assert (assets.op.pool, assets.op.tags["size"]) == ("spark", "small")
    [dep] = table.deps
    assert dep.asset_key.to_user_string() == "orders_pipeline/deduplicated_orders"


def test_a_translation_changes_keys_descriptions_and_metadata_and_the_lineage_follows(load: Load) -> None:
    defs = load(
        {
            "shop": {
                "translation": {
                    "key": "{{ node.kind ~ '/' ~ (node.topic or node.table) }}",
                    "description": "{{ node.kind }} of {{ node.pipeline_id }} in {{ node.database }}",
                    "metadata": {"source": "{{ node.source_id or 'none' }}"},
                }
            }
        }
    )
    assert keys(defs) == {"topic/orders", "deduplicated/orders", "table/orders_clean"}
    graph = defs.resolve_asset_graph()
    parents = graph.get(dg.AssetKey(["table", "orders_clean"])).parent_keys
    assert parents == {dg.AssetKey(["deduplicated", "orders"])}
    assert {key.asset_key for key in graph.asset_check_keys} == {dg.AssetKey(["table", "orders_clean"])}
    table = spec(defs, "table/orders_clean")
    assert (table.description, table.metadata["source"]) == ("table of orders_pipeline in shop", "none")
    assert spec(defs, "topic/orders").metadata["source"] == "orders"


def test_post_processing_is_dagsters_own(load: Load) -> None:
    post_processing = {"assets": [{"target": "key:*orders_clean", "attributes": {"tags": {"late": "yes"}}}]}
    defs = load({"shop": {"post_processing": post_processing}})
    assert spec(defs, "orders_pipeline/orders_clean").tags["late"] == "yes"


@pytest.mark.parametrize(
    ("checks", "names"),
    [
        ({}, {"counts_agree", "dead_letters", "no_residual_duplicates", "stream_is_live"}),
        (False, set()),
        ({"dead_letters": False, "counts_agree": {"enabled": False}}, {"no_residual_duplicates", "stream_is_live"}),
    ],
)
def test_checks_can_be_switched_off(load: Load, checks: Any, names: set[str]) -> None:
    defs = load({"shop": {"checks": checks}})
    assert {key.name for key in defs.resolve_asset_graph().asset_check_keys} == names


def test_one_definition_can_stand_in_the_attributes_and_its_references_stay_out_of_dagster(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = orders("inline_orders")
    written["sink"]["connection_params"]["password"] = "${SHOP_PASSWORD}"
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    defs = load({"shop": {"pipeline": written}})
    assert "inline_orders/orders_clean" in keys(defs)
    assert "hunter2" not in repr([spec.metadata for spec in defs.resolve_all_asset_specs()])


def test_columns_have_their_lineage_and_the_table_its_names(load: Load) -> None:
    table = spec(load({"shop": {}}), "orders_pipeline/orders_clean")
    lineage = table.metadata["dagster/column_lineage"].deps_by_column
    deduplicated = dg.AssetKey(["orders_pipeline", "deduplicated_orders"])
    assert lineage == {
        "id": [dg.TableColumnDep(deduplicated, "id")],
        "total": [dg.TableColumnDep(deduplicated, "count"), dg.TableColumnDep(deduplicated, "price")],
    }
    assert table.metadata["dagster/table_name"] == "shop.orders_clean"
    assert table.metadata["dagster/uri"] == "clickhouse://127.0.0.1:1/shop/orders_clean"


def test_the_sensors_are_as_the_automation_says(load: Load) -> None:
    defs = load({"shop": {"name": "streams", "automation": {"health_checks": False, "running": False}}})
    assert {sensor.name: sensor.default_status.value for sensor in defs.sensors or ()} == dict.fromkeys(
        ("streams__observer", "streams__alerts", "streams__run_failures"), "STOPPED"
    )


@pytest.mark.parametrize(
    ("attributes", "problem"),
    [
        ({"folder": "missing"}, "attributes.folder: .*missing is not a folder; create it or correct the attribute"),
        ({"folder": ".", "pipeline": {}}, "attributes: folder and pipeline exclude each other; remove one"),
        (
            {"checks": {"count_agree": False}},
            "attributes.checks.count_agree: unknown check; did you mean 'counts_agree'",
        ),
        ({"automation": {"every": "61 * * * *"}}, "attributes.automation.every: '61 .*is not a cron schedule"),
        (
            {"connections": {"kafka": {"broker": "x"}}},
            "attributes.connections.kafka.broker: unknown key; did you mean 'brokers'",
        ),
        (
            {"runner": {"spark_config": {"spark.speculation": True}}},
            "attributes.runner.spark_config: spark.speculation cannot be",
        ),
        ({"pipeline": {"pipeline_id": "inline"}}, r"defs.yaml: sources: is missing; add it"),
    ],
)
def test_a_mistake_in_the_attributes_is_told_with_its_path(
    load: Load, attributes: dict[str, Any], problem: str
) -> None:
    assert re.search(problem, failure(load, attributes))


def failure(load: Load, attributes: dict[str, Any]) -> str:
    """Load a component with a mistake; return the messages of the errors, which Dagster wraps."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - of a class that is not public
        load({"shop": attributes})
    error: BaseException | None = caught.value
    messages = []
    while error is not None:
        messages.append(str(error))
        error = error.__cause__ or error.__context__
    return "\n".join(messages)


@pytest.mark.servers
def test_drivers_get_the_connections_and_the_inline_definition_of_their_component(
    load: Load, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GLASSFLOW_KAFKA_BROKERS", "GLASSFLOW_CLICKHOUSE_URL"):
        monkeypatch.delenv(name, raising=False)
    defs = load(
        {
            "shop": {
                "pipeline": orders("inline_orders"),
                "runner": {"state": str(state), "spark_config": {"spark.ui.enabled": False}, "log_format": "json"},
                "connections": {"kafka": {"brokers": ["127.0.0.1:2"]}, "clickhouse": {"password": "hunter2"}},
                "checks": False,
            }
        }
    )
    result = defs.resolve_implicit_global_asset_job_def().execute_in_process()
    assert result.success
    status = stream_status(state, "inline_orders")
    assert status.state is StreamState.RUNNING
    assert status.heartbeat
    # The fingerprint covers connections and secrets.
    expected = {"kafka": {"brokers": ["127.0.0.1:2"]}, "clickhouse": {"password": "hunter2"}}
    file = state.parent / "inline_orders.yaml"
    file.write_text(yaml.safe_dump(orders("inline_orders")))
    config = load_pipeline(file, {"GLASSFLOW_CONNECTIONS": json.dumps(expected)})
    assert status.heartbeat.fingerprint == config.fingerprint
    assert "'spark.ui.enabled=false'" in status.log.read_text()
    assert "'--log-format', 'json'" in status.log.read_text()
    assert "hunter2" not in status.log.read_text()


def test_the_component_is_described_for_dg() -> None:
    described = PipelineFolder.get_model_cls()
    assert described is not None
    schema = described.model_json_schema()
    assert textwrap.shorten(PipelineFolder.get_description() or "", 40).startswith("Streams from Kafka")
    undescribed = [name for name, attribute in schema["properties"].items() if not attribute.get("description")]
    assert undescribed == []


@pytest.mark.parametrize("password", ["12345", "True", "[1]", "007", "a b"])
def test_a_text_of_the_environment_stays_the_text_that_it_is(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", password)
    given = {"username": "u{{ env.SHOP_PASSWORD }}", "password": "{{ env.SHOP_PASSWORD }}", "port": 9000}
    component = PipelineFolder.from_attributes_dict(attributes={"connections": {"clickhouse": given}})
    expected = {"username": f"u{password}", "password": password, "port": 9000}
    assert component.connections.replaced() == {"clickhouse": expected}


def test_a_variable_that_is_not_set_is_told(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_PASSWORD", raising=False)
    connections = {"clickhouse": {"password": "{{ env.SHOP_PASSWORD }}"}}
    assert "{{ env.SHOP_PASSWORD }}: refers to nothing; set the variable" in failure(load, {"connections": connections})
