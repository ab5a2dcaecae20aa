"""Sessions that fail to start or to stop because the JVM has died."""

import os
import warnings
from pathlib import Path
from unittest.mock import Mock

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stream.spark.session import SparkJvm, prepare_jvm, stop_session

GIVEN = {"spark.driver.memory": "1g"}


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Spark's JVM ended while it started"),
        (Py4JNetworkError("Answer from Java side is empty"), "Spark's JVM ended while it started"),
        (
            PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={}),
            "Spark did not start (with spark.driver.memory): Java ended before Spark started",
        ),
    ],
)
def test_a_start_without_a_jvm_is_one_line(error: Exception, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: SparkSession.Builder) -> SparkSession:
        raise error

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fail)
    with pytest.raises(GlassflowError) as found:
        SparkJvm({}, GIVEN, Path()).open_session()
    assert str(found.value).startswith(text)
    assert "\n" not in str(found.value)


@pytest.mark.filterwarnings("error")
def test_a_session_whose_jvm_is_gone_has_stopped(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    session = spark.newSession()

    def fail() -> None:
        warnings.warn("Unable to cleanly shutdown Spark JVM process.", RuntimeWarning, stacklevel=1)
        raise ConnectionRefusedError(111, "Connection refused")

    stop = Mock(side_effect=fail)
    monkeypatch.setattr(session, "stop", stop)
    stop_session(session)
    stop.assert_called_once_with()


def test_more_jars_come_after_those_of_this_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", os.environ.copy())
    path = "spark.driver.extraClassPath"
    own = prepare_jvm("none", tmp_path, {}, lambda _: None).settings[path].split(os.pathsep)
    given = prepare_jvm("none", tmp_path, {path: "/more.jar"}, lambda _: None).settings[path].split(os.pathsep)
    assert given == [*own, "/more.jar"]
    # Executors elsewhere are sent them; the one in this JVM has them.
    cluster = prepare_jvm("none", tmp_path, {"spark.master": "local-cluster[1,1,1024]"}, lambda _: None).settings
    assert cluster["spark.jars"].split(",") == own
    assert "spark.jars" not in prepare_jvm("none", tmp_path, {"spark.master": "local[2]"}, lambda _: None).settings
