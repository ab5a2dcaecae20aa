"""A server and a database of the test's own, as the tests of ClickHouse have them."""

from tests.clickhouse.conftest import client, connection

__all__ = ["client", "connection"]
