"""Which of Spark's settings a driver takes, of those that are given in several places."""

from pathlib import Path
from typing import Any, cast

from glassflow_dagster.config.load import load_pipeline
from glassflow_dagster.streaming.driver import RunOptions, _Run
from tests.config.test_load import definition, write


def test_the_command_line_goes_before_the_definition_and_that_before_its_resources(tmp_path: Path) -> None:
    asked = {
        "resources": {"transform": [{"source_id": "scans", "replicas": 5}], "sink": {"replicas": 64}},
        "spark": {"spark.sql.shuffle.partitions": 3, "spark.driver.memory": "2g", "spark.ui.enabled": True},
    }
    config = load_pipeline(write(tmp_path, definition(**asked)), {})
    options = RunOptions(tmp_path, spark={"spark.driver.memory": "4g"})
    nothing = cast("Any", None)
    run = _Run(config, options, tmp_path, nothing, nothing, nothing, nothing)
    assert run._spark_settings() == {
        "spark.master": "local[64]",
        "spark.sql.shuffle.partitions": "3",
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "true",
    }
