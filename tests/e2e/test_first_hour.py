"""Every mistake that a new user makes in the first hour gets a one-line error and exit code 1."""

import re
from pathlib import Path

import pytest

from glassflow_dagster.local.ports import free_port
from tests.e2e.support import Finished, Pipeline, cli, invoke, lock_holder
from tests.support.variants import one_of


def error_of(done: Finished) -> str:
    """Return the error in which a command has ended: its last line, with exit code 1 and without a traceback."""
    assert done.code == 1, done
    assert "Traceback" not in done.err
    return done.err.strip().splitlines()[-1]


def test_broker_down(pipeline: Pipeline) -> None:
    pipeline.write()
    port = free_port()
    done = pipeline.run_without_spark(
        "--until-caught-up", "--timeout", "2", GLASSFLOW_KAFKA_BROKERS=f"127.0.0.1:{port}"
    )
    assert re.search(rf"127.0.0.1:{port}.* do not answer", error_of(done))


def test_clickhouse_down(pipeline: Pipeline) -> None:
    pipeline.write()
    port = free_port()
    done = pipeline.run_without_spark(
        "--until-caught-up", "--timeout", "2", GLASSFLOW_CLICKHOUSE_URL=f"http://127.0.0.1:{port}"
    )
    assert re.search(rf"127.0.0.1:{port}.* cannot be reached", error_of(done))


def test_topic_missing(pipeline: Pipeline) -> None:
    pipeline.write()
    error = error_of(pipeline.run_without_spark("--until-caught-up", "--timeout", "2"))
    assert re.search(rf"{pipeline.name}.* does not exist", error)


def test_table_missing(pipeline: Pipeline) -> None:
    pipeline.sink = {"create_table": None}
    pipeline.write().create_topic()
    done = pipeline.run_without_spark("--until-caught-up", "--timeout", "5")
    assert done.code == 1
    assert f"{pipeline.name}.events" in done.err
    assert "--create-table" in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("columns", "texts"),
    [
        ("id String", ("sink.mapping[1].column_name", "'n'")),
        ("id String, n String", ("sink.mapping[1].column_type", "Int32", "String")),
    ],
    ids=["column missing", "wrong type"],
)
def test_the_table_is_not_what_the_mapping_says(pipeline: Pipeline, columns: str, texts: tuple[str, ...]) -> None:
    pipeline.write().create_topic()
    client = pipeline.client()
    client.command(f"CREATE DATABASE {pipeline.name}")
    client.command(f"CREATE TABLE {pipeline.name}.events ({columns}) ENGINE = MergeTree ORDER BY tuple()")
    error = error_of(pipeline.run_without_spark("--until-caught-up", "--timeout", "5"))
    assert [text for text in texts if text not in error] == []


def test_unknown_key_in_the_definition(pipeline: Pipeline) -> None:
    pipeline.sink = {"max_batchsize": 5}
    pipeline.write()
    error = error_of(pipeline.run_without_spark("--until-caught-up"))
    assert f"{pipeline.file}: sink.max_batchsize: unknown key" in error


def test_definition_not_there() -> None:
    assert "pipelines/none.yaml: no such file" in error_of(invoke("run", "pipelines/none.yaml"))


@pytest.mark.parametrize("command", ["start", "status", "verify"])
def test_unknown_pipeline(command: str) -> None:
    assert "did you mean 'sms_status'?" in error_of(invoke(command, "sms_statu"))


def test_state_folder_cannot_be_written(pipeline: Pipeline) -> None:
    pipeline.write()
    # A file in place of the folder fails for root as well, who ignores permissions.
    (pipeline.folder / "file").write_text("")
    state = pipeline.folder / "file" / "state"
    done = invoke("run", str(pipeline.file), "--until-caught-up", "--state", str(state))
    assert re.search(rf"{state}.* cannot be written.*--state", error_of(done))


def test_state_folder_with_a_comma(pipeline: Pipeline) -> None:
    pipeline.write()
    state = pipeline.folder / "one, two"
    done = invoke("run", str(pipeline.file), "--until-caught-up", "--state", str(state))
    assert re.search(rf"{state}.* has a comma in its path.*--state", error_of(done))
    assert not state.exists()


@pytest.mark.parametrize(
    ("setting", "texts"),
    one_of(
        [
            ("spark.driver.memory=nonsense", ("Spark did not start", "spark.driver.memory")),
            ("spark.driver.memory=100m", ("Insufficient driver memory", "spark.driver.memory")),
            ("spark.master=local[abc]", ("Could not parse Master URL: 'local[abc]'", "spark.master")),
            ("spark.sql.shuffle.partitions=many", ("spark.sql.shuffle.partitions", "many")),
            ("spark.sql.streaming.stateStore.rocksdb.writeBufferSizeMB=much", ("writebuffersizemb", "must be a long")),
            ("spark.sql.adaptive.enabled=true", ("--conf", "spark.sql.adaptive.enabled cannot be set", "block")),
            ("adaptive=true", ("--conf", "'adaptive' is not a Spark setting")),
        ]
    ),
)
def test_a_setting_that_spark_does_not_take(pipeline: Pipeline, setting: str, texts: tuple[str, ...]) -> None:
    pipeline.write().create_topic()
    pipeline.send([{"id": "a", "n": 1}])
    error = error_of(pipeline.run("--until-caught-up", "--conf", setting))
    assert [text for text in texts if text not in error] == []
    last = lock_holder(pipeline)
    assert last.mark
    assert last.processes() == {}


def test_port_in_use(pipeline: Pipeline, tmp_path: Path) -> None:
    taken = str(pipeline.clickhouse_port)
    done = cli(
        "stack", "up", "--data", str(tmp_path / "data"), "--clickhouse-port", taken, "--kafka-port", str(free_port())
    )
    assert re.search(rf"{taken}.*--clickhouse-port", error_of(done))


def test_wrong_usage_is_exit_code_2() -> None:
    assert invoke("run").code == 2
    assert invoke("nonsense").code == 2
