"""One Spark session for all runs of this folder: a driver's start takes longer than most of them."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.streaming import driver
from glassflow_dagster.streaming.session import start_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    session = start_session("tests", folder, {"spark.master": "local[2]"}, lambda _: None)
    yield session
    session.stop()


@pytest.fixture
def shared_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers of this process get sessions of their own, with settings of their own, on one JVM that they leave."""

    def session(_name: str, _folder: Path, overrides: Mapping[str, str], _report: Callable[[str], None]) -> Any:
        own = spark.newSession()
        for key, value in overrides.items():
            if key.startswith("spark.sql."):
                own.conf.set(key, value)
        monkeypatch.setattr(own, "stop", lambda: None)
        return own

    monkeypatch.setattr(driver, "start_session", session)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "shared_session" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.servers)
