from tests.clickhouse.conftest import client, connection
from tests.driver.fakes import definition, deployment, state

__all__ = ["client", "connection", "definition", "deployment", "state"]  # fixtures
