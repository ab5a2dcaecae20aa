"""The Python interface: `from glassflow_dagster import ...`."""

import subprocess
import sys
import typing

import pytest
import yaml

import glassflow_dagster
from glassflow_dagster import (
    GlassflowError,
    PipelineConfig,
    build_pipeline_assets,
    build_pipeline_definitions,
    load_pipeline,
    read_ledger,
    run_pipeline,
    verify_pipeline,
)
from tests.e2e.support import Pipeline


def test_importing_it_imports_neither_dagster_nor_spark_nor_a_client() -> None:
    program = (
        "import sys, glassflow_dagster as g; g.load_pipeline; g.run_pipeline; "
        "print({'dagster', 'pyspark', 'clickhouse_connect', 'confluent_kafka', 'pandas'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "set()"


def test_every_public_name_can_be_imported_and_another_one_is_an_error() -> None:
    for name in glassflow_dagster.__all__:
        assert getattr(glassflow_dagster, name).__doc__
        assert name in dir(glassflow_dagster)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = glassflow_dagster.nonsense


@pytest.mark.parametrize("function", [load_pipeline, run_pipeline, verify_pipeline, read_ledger])
def test_the_functions_are_typed(function: typing.Callable[..., object]) -> None:
    assert "return" in function.__annotations__


@pytest.mark.long
def test_a_pipeline_is_loaded_run_verified_and_accounted_for(pipeline: Pipeline) -> None:
    pipeline.write().create_topic()
    pipeline.send({"id": f"k{index % 80}", "n": index} for index in range(100))
    # Built in Python: no file is left of it.
    config = PipelineConfig.model_validate(load_pipeline(pipeline.file).content)
    messages: list[str] = []
    totals = run_pipeline(config, state=pipeline.state, report=messages.append)
    assert (totals.read, totals.written, totals.duplicates) == (100, 80, 20)
    assert any("is running" in message for message in messages)
    verification = verify_pipeline(config, report=messages.append)
    assert verification.passed
    assert verification.counts.exact
    ledger = read_ledger(config)
    assert (ledger.batches, ledger.outcomes.written) == (1, 80)
    assert ledger.outcomes.read == ledger.outcomes.written + ledger.outcomes.duplicates


def test_a_failure_is_an_error_with_the_drivers_reason(pipeline: Pipeline) -> None:
    pipeline.columns = {"id": "String", "n": "Int32"}
    pipeline.write().create_topic()
    written = yaml.safe_load(pipeline.file.read_text())
    del written["sink"]["create_table"]
    with pytest.raises(GlassflowError, match=f"^{pipeline.name}: .*events.* does not exist"):
        run_pipeline(load_pipeline(written), state=pipeline.state, report=lambda _: None)
    with pytest.raises(GlassflowError, match=r"pipeline definition: sink: is missing; add it"):
        load_pipeline({key: value for key, value in written.items() if key != "sink"})


def test_assets_and_definitions_are_built_without_a_server(pipeline: Pipeline) -> None:
    config = load_pipeline(pipeline.write().file)
    assert len(list(build_pipeline_assets(config).keys)) == 3
    assert len(build_pipeline_definitions(config).sensors or ()) == 4
    with pytest.raises(GlassflowError, match="has the same name in Dagster"):
        build_pipeline_definitions([config, config])
