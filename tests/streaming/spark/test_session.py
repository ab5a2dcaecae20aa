"""Sessions that fail to start or to stop because the JVM has died."""

import warnings
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.streaming.spark.session import start_session, stop_session

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
def test_a_start_without_a_jvm_is_one_line(
    error: Exception, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: SparkSession.Builder) -> SparkSession:
        raise error

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fail)
    with pytest.raises(GlassflowError) as found:
        start_session("none", tmp_path, GIVEN, lambda _: None)
    assert str(found.value).startswith(text)
    assert "\n" not in str(found.value)


@pytest.mark.filterwarnings("error")
def test_a_session_whose_jvm_is_gone_has_stopped(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    session = spark.newSession()

    def fail() -> None:
        warnings.warn("Unable to cleanly shutdown Spark JVM process.", RuntimeWarning, stacklevel=1)
        raise ConnectionRefusedError(111, "Connection refused")

    monkeypatch.setattr(session, "stop", fail)
    stop_session(session)
