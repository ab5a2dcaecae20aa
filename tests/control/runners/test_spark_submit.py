"""What a driver with executors on a cluster is started with, and what is refused; no cluster is contacted."""

import re
import secrets
from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.control import hosts
from glassflow_dagster.control.deployment import DriverOptions
from glassflow_dagster.control.runners.choose import build_runner, remote_runner_of
from glassflow_dagster.control.runners.settings import SparkSubmitSettings
from glassflow_dagster.control.runners.spark_submit import SparkSubmitRunner
from glassflow_dagster.control.runners.standalone import NOTE, StandaloneRunner
from glassflow_dagster.control.status import stream_status
from glassflow_dagster.control.submission import SUBMISSION, Submission
from glassflow_dagster.definition.load import load_written
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.spark_properties import read_properties
from tests.support import definition as v3

MASTER = "spark://127.0.0.1:7077"
SECRET = "not-for-everyone"


def pipeline(**more: Any) -> PipelineConfig:
    sink = v3.sink({"id": "String"}, {**v3.clickhouse(), "password": SECRET}, table="orders")
    source = v3.source("orders", [{"name": "id", "type": "string"}])
    return load_written(
        v3.definition("orders", source, sink, **{"state": "s3a://bucket/state", **more}), environment={}
    )


def client(folder: Path, spark_config: dict[str, str] | None = None, **settings: Any) -> SparkSubmitRunner:
    how = DriverOptions(folder, spark_config=spark_config or {}, environment={"OWN": "1"})
    runner = build_runner(SparkSubmitSettings(**settings), how)
    assert isinstance(runner, SparkSubmitRunner)
    return runner


def standalone(folder: Path, spark_config: dict[str, str] | None = None, **settings: Any) -> StandaloneRunner:
    how = DriverOptions(folder, spark_config=spark_config or {}, environment={"OWN": "1"})
    runner = build_runner(SparkSubmitSettings(deploy_mode="cluster", **settings), how)
    assert isinstance(runner, StandaloneRunner)
    return runner


def test_the_settings_are_in_a_file_that_only_the_user_reads(tmp_path: Path) -> None:
    deployment = client(tmp_path, {"spark.authenticate.secret": SECRET}, master=MASTER).deployment(pipeline())
    assert deployment.properties_file
    assert deployment.properties_file.stat().st_mode & 0o777 == 0o600
    settings = read_properties(deployment.properties_file)
    assert settings["spark.authenticate.secret"] == SECRET
    assert settings["spark.master"] == MASTER
    # As the executors reach it.
    assert settings["spark.driver.host"] == "127.0.0.1"
    assert SECRET not in " ".join(deployment.command)


@pytest.mark.parametrize(
    ("settings", "python", "archives"),
    [
        ({}, None, None),
        ({"python": "/opt/streams/bin/python"}, "/opt/streams/bin/python", None),
        ({"archive": "/tmp/env.tar.gz"}, "./environment/bin/python", "/tmp/env.tar.gz#environment"),  # noqa: S108
    ],
)
def test_the_executors_python_is_one_that_is_there_or_sent(
    tmp_path: Path, settings: dict[str, str], python: str | None, archives: str | None
) -> None:
    deployment = client(tmp_path, master=MASTER, **settings).deployment(pipeline())
    assert deployment.environment.get("PYSPARK_PYTHON") == python
    assert deployment.environment["OWN"] == "1"
    assert deployment.properties_file
    assert read_properties(deployment.properties_file).get("spark.archives") == archives


def test_the_master_may_be_a_spark_setting(tmp_path: Path) -> None:
    config = pipeline(spark={"spark.master": MASTER})
    deployment = client(tmp_path).deployment(config)
    assert deployment.properties_file
    assert read_properties(deployment.properties_file)["spark.master"] == MASTER


def test_cores_of_the_resources_are_the_most_of_the_cluster(tmp_path: Path) -> None:
    config = pipeline(resources={"sources": [{"source_id": "orders", "replicas": 4}]})
    deployment = client(tmp_path, master=MASTER).deployment(config)
    assert deployment.properties_file
    assert read_properties(deployment.properties_file)["spark.cores.max"] == "4"


def test_what_a_standalone_driver_is_to_do_is_in_its_environment_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    given = {"spark.authenticate.secret": SECRET, "spark.driver.memory": "2g"}
    runner, config = standalone(tmp_path, given, master=MASTER, python="/opt/bin/python"), pipeline()
    request = runner.request(config, "submission-1")
    variables = request.pop("environmentVariables")
    assert SECRET not in str(request)
    assert variables["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert variables["OWN"] == "1"
    submission = Submission.decode(variables[SUBMISSION])
    assert submission.definition.load() == config
    assert submission.definition.load().fingerprint == config.fingerprint
    assert submission.spark["spark.authenticate.secret"] == SECRET
    properties = request["sparkProperties"]
    assert properties["spark.driver.memory"] == "2g"
    assert properties["spark.driver.supervise"] == "true"
    assert properties["spark.glassflow.submission"] == "submission-1"
    assert properties["spark.pyspark.python"] == "/opt/bin/python"


@pytest.mark.parametrize("build", [client, standalone])
@pytest.mark.parametrize(
    ("settings", "more", "text"),
    [
        ({"master": MASTER}, {"state": None}, "orders: other hosts cannot reach a local folder of state; name s3a://"),
        ({"master": MASTER}, {"state": None, "pool": "small"}, "orders: other hosts cannot reach"),
        ({}, {}, "runner spark-submit: no cluster is named; set its option master to spark://HOST:PORT or yarn"),
    ],
)
def test_a_pipeline_that_cannot_run_on_a_cluster_is_refused(
    tmp_path: Path, build: Any, settings: dict[str, str], more: dict[str, Any], text: str
) -> None:
    with pytest.raises(GlassflowError, match=f"^{re.escape(text)}"):
        build(tmp_path, **settings).ensure_running(pipeline(**more), print)


def test_yarn_needs_hadoops_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(GlassflowError, match="master yarn needs HADOOP_CONF_DIR"):
        client(tmp_path, master="yarn").deployment(pipeline())
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert client(tmp_path, master="yarn").deployment(pipeline()).properties_file


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"master": "yarn"}, "deploy_mode cluster needs a standalone master; use client for yarn"),
        ({"master": MASTER, "archive": "/env.tar.gz"}, "archive needs deploy_mode client"),
        ({"master": MASTER, "address": "10.0.0.1"}, "address needs deploy_mode client"),
    ],
)
def test_what_cluster_mode_does_not_have_is_refused(tmp_path: Path, settings: dict[str, str], text: str) -> None:
    with pytest.raises(GlassflowError, match=re.escape(text)):
        standalone(tmp_path, **settings).launch(pipeline(), print)


def test_a_master_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = stream_status(tmp_path, "orders")
    monkeypatch.setattr(hosts, "look", lambda *_: hosts.Shared(status, 0, 0, is_stopped=False))
    runner = standalone(tmp_path, master="spark://127.0.0.1:1", rest_url="http://127.0.0.1:1")
    with pytest.raises(GlassflowError, match=r"^http://127\.0\.0\.1:1/v1/submissions/create: does not answer as a"):
        runner.launch(pipeline(), print)


def test_a_definition_too_long_for_a_variable_is_refused(tmp_path: Path) -> None:
    config = pipeline(metadata={"tags": [secrets.token_hex(100_000)]})
    with pytest.raises(GlassflowError, match="and a variable of the driver's environment at most"):
        standalone(tmp_path, master=MASTER).request(config, "submission-1")


def test_a_note_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "orders").mkdir()
    (tmp_path / "orders" / NOTE).write_text("{")
    remote = remote_runner_of(tmp_path, "orders")
    assert isinstance(remote, StandaloneRunner)
    with pytest.raises(GlassflowError, match=r"submission\.json: cannot be read"):
        remote.status_of("orders")


def test_a_pipeline_that_was_not_launched_elsewhere_has_no_other_runner(tmp_path: Path) -> None:
    assert remote_runner_of(tmp_path, "orders") is None
