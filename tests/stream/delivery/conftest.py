"""The connection fixtures of the ClickHouse tests: a server, and a database per test."""

from tests.stores.clickhouse.conftest import client, connection

__all__ = ["client", "connection"]
