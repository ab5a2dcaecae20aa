from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from glassflow_dagster.stream.batch_query import BatchQuery
from tests.e2e.support import Pipeline
from tests.servers.stack import Stack


@pytest.fixture
def pipeline(stack: Stack, shared_session: None, tmp_path: Path) -> Pipeline:  # noqa: ARG001 - catch_up() needs it
    """Return a pipeline with the test's own topic, database, table and state."""
    return Pipeline(tmp_path, stack.kafka, stack.clickhouse_port)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the batches that run as jobs from now on."""
    found: list[int] = []
    run = BatchQuery.job

    def job(query: BatchQuery, batch_id: int, time_ms: int) -> DataFrame:
        found.append(batch_id)
        return run(query, batch_id, time_ms)

    monkeypatch.setattr(BatchQuery, "job", job)
    return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "e2e" in item.path.parts:
            item.add_marker(pytest.mark.servers)
