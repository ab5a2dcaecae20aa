"""A pipeline whose table and bookkeeping tables are replicated, behind an address that leads to either replica."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.faults.dedup_workload import DedupWorkload
from tests.faults.judge import differences
from tests.faults.servers import Server
from tests.faults.world import World
from tests.replicas.servers import QUORUM_USER, ReplicatedServers


class ReplicatedWorkload(DedupWorkload):
    """The events of the first workload in replicated tables; the pipeline sets the tables' windows."""

    def definition(self, brokers: str, clickhouse_port: int) -> dict[str, Any]:
        made = super().definition(brokers, clickhouse_port)
        made["sink"]["bookkeeping_engine"] = "ReplicatedMergeTree"
        return made

    def tables(self) -> Sequence[str]:
        columns = "id String, n Int32, text String, CONSTRAINT positive CHECK n >= 0"
        return [
            f"CREATE DATABASE {self.name}",
            f"CREATE TABLE {self.name}.events ({columns}) ENGINE = ReplicatedMergeTree ORDER BY id",
        ]


class QuorumWorkload(ReplicatedWorkload):
    """The same, by a user whose inserts wait for a majority of the replicas."""

    def definition(self, brokers: str, clickhouse_port: int) -> dict[str, Any]:
        made = super().definition(brokers, clickhouse_port)
        made["sink"]["connection_params"]["username"] = QUORUM_USER
        return made


class ReplicatedWorld(World):
    """A pipeline on two replicas; each of them is compared with the oracle, when it has fetched all parts."""

    servers: ReplicatedServers

    def differences(self) -> list[str]:
        return [line for replica in self.servers.replicas for line in self._differences_on(replica)]

    def _differences_on(self, replica: Server) -> list[str]:
        client = self.servers.client_of(replica)
        tables = "SELECT name FROM system.tables WHERE database = {name:String} AND engine LIKE 'Replicated%'"
        for (table,) in client.query(tables, {"name": self.name}).result_rows:
            client.command(f"SYSTEM SYNC REPLICA {self.name}.{table}")
        found = differences(client, self.workload, self.name, self._topics.read())
        client.close()
        return [f"{replica.name}: {line}" for line in found]


@contextmanager
def running_replicas(folder: Path) -> Iterator[ReplicatedServers]:
    """Run the servers while the block runs."""
    servers = ReplicatedServers(folder)
    try:
        yield servers
    finally:
        servers.close()
