"""The precedence of Spark settings that are given in several places."""

from pathlib import Path

from pyspark.sql import SparkSession

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.start.spark import fit_to_state, spark_settings_of
from glassflow_dagster.stream.spark.session import SHUFFLE_PARTITIONS, WRITE_BUFFER
from tests.definition.test_load import definition, write


def test_the_command_line_goes_before_the_definition_and_that_before_its_resources(tmp_path: Path) -> None:
    asked = {
        "resources": {"transform": [{"source_id": "scans", "replicas": 5}], "sink": {"replicas": 64}},
        "spark": {"spark.sql.shuffle.partitions": 3, "spark.driver.memory": "2g", "spark.ui.enabled": True},
    }
    config = load_pipeline(write(tmp_path, definition(**asked)), {})
    options = RunOptions(tmp_path, spark={"spark.driver.memory": "4g"})
    assert spark_settings_of(config, options) == {
        "spark.master": "local[64]",
        "spark.sql.shuffle.partitions": "3",
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "true",
    }


def test_the_cores_of_a_pool_are_not_those_of_one_of_its_pipelines(tmp_path: Path) -> None:
    asked = {"resources": {"transform": [{"source_id": "scans", "replicas": 5}], "sink": {"replicas": 64}}}
    in_pool = load_pipeline(write(tmp_path, definition(**asked, pool="small")), {})
    assert "spark.master" not in spark_settings_of(in_pool, RunOptions(tmp_path))
    by_option = load_pipeline(write(tmp_path, definition(**asked)), {})
    assert "spark.master" not in spark_settings_of(by_option, RunOptions(tmp_path, pool="small"))


def test_the_stores_of_a_state_share_what_they_have_in_memory_unless_they_are_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    config = load_pipeline(write(tmp_path, definition()), {})
    session = spark.newSession()
    for partitions, megabytes in [(1, "128"), (2, "64"), (4, "32"), (64, "16")]:
        fit_to_state(session, partitions, spark_settings_of(config, RunOptions(tmp_path)))
        assert session.conf.get(SHUFFLE_PARTITIONS) == str(partitions)
        assert session.conf.get(WRITE_BUFFER) == megabytes

    session.conf.set(WRITE_BUFFER, "7")
    fit_to_state(session, 2, spark_settings_of(config, RunOptions(tmp_path, spark={WRITE_BUFFER: "7"})))
    assert session.conf.get(WRITE_BUFFER) == "7"
