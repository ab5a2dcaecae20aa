from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.stores.clickhouse.client import connect


@pytest.fixture
def connection(stack: Any) -> ClickHouseConnection:
    """Return a connection with the test's own database, which does not exist yet."""
    port = urlsplit(stack.clickhouse).port
    return ClickHouseConnection(host="127.0.0.1", port=port, database=f"test_{uuid4().hex}", username="default")


@pytest.fixture
def client(connection: ClickHouseConnection) -> Client:
    return connect(connection)
