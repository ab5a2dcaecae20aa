from pathlib import Path

import pytest

from tests.conftest import Stack
from tests.e2e.support import Pipeline


@pytest.fixture
def pipeline(stack: Stack, shared_session: None, tmp_path: Path) -> Pipeline:  # noqa: ARG001 - catch_up() needs it
    """Return a pipeline with the test's own topic, database, table and state."""
    return Pipeline(tmp_path, stack.kafka, stack.clickhouse_port)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "e2e" in item.path.parts:
            item.add_marker(pytest.mark.servers)
