from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.streaming.session import start_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    session = start_session("tests", folder, {"spark.master": "local[1]"}, lambda _: None)
    yield session
    session.stop()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.servers)
