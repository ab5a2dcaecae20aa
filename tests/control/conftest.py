from tests.control.fakes import definition, deployment, state
from tests.stores.clickhouse.conftest import client, connection

__all__ = ["client", "connection", "definition", "deployment", "state"]  # fixtures
