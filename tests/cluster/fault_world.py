"""A pipeline whose driver and executors are on hosts of their own, and whose state is in an object store.

Kafka, ClickHouse and the object store run beside the tests. The hosts reach them by proxies, which listen on a host
each.
"""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from glassflow_dagster.local.object_store import BUCKET, object_store_variables, prepare_object_store
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.runtime.cache import cache_folder
from tests.cluster.hosts import Host, Network, running_network
from tests.cluster.spark import SparkCluster, running_spark
from tests.faults.dedup_workload import DedupWorkload
from tests.faults.driver import Driver
from tests.faults.http_proxy import Exchange, HttpProxy, Rule
from tests.faults.servers import Server, Servers
from tests.faults.world import QUICK_COMPILATION, World

DRIVER_HOSTS, WORKERS = ("driver1", "driver2"), ("worker1", "worker2")
_HOSTS = ("master", *WORKERS, *DRIVER_HOSTS, "kafka", "clickhouse", "store")
_RATE = 400  # events a second, with two cores for all hosts
# A driver takes an executor for lost that was silent for so long; by default 120.
SILENT_SECONDS = 10
_SETTINGS = {
    "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "2", "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.heartbeatInterval": "1s", "spark.network.timeout": f"{SILENT_SECONDS}s",
    "spark.network.timeoutInterval": "1s",
}  # fmt: skip
_EXECUTOR = "CoarseGrainedExecutorBackend"


class StoreWrites(Rule):
    """A rule for the requests by which objects of the store are written or removed."""

    def concerns(self, exchange: Exchange) -> bool:
        return exchange.method in {"PUT", "POST", "DELETE"}


class StoreReads(Rule):
    """A rule for the requests by which objects of the store are read, looked up or listed."""

    def concerns(self, exchange: Exchange) -> bool:
        return exchange.method in {"GET", "HEAD"}


class ClusterServers(Servers):
    """Kafka, ClickHouse and an object store, whose proxies listen on the hosts `kafka`, `clickhouse` and `store`."""

    def __init__(self, folder: Path, network: Network) -> None:
        super().__init__(folder, network["kafka"], network["clickhouse"])
        self._network = network
        port = free_port()
        made = prepare_object_store(folder / "objects", port, print)
        variables = dict(made.variables)
        self.store = Server("the object store", list(made.command), port, folder / "objects.log", variables)
        self.store.start()
        self.store_proxy = HttpProxy(free_port(), port, network["store"])

    @property
    def variables(self) -> Mapping[str, str]:
        """Return the environment variables by which a driver of another host finds them."""
        kafka, clickhouse, store = (self._network[name].address for name in ("kafka", "clickhouse", "store"))
        return {
            **object_store_variables(self.store_proxy.port),
            "AWS_ENDPOINT_URL": f"http://{store}:{self.store_proxy.port}",
            "GLASSFLOW_KAFKA_BROKERS": f"{kafka}:{self.kafka_proxy.port}",
            "GLASSFLOW_CLICKHOUSE_URL": f"http://default:@{clickhouse}:{self.clickhouse_proxy.port}",
            "GLASSFLOW_STATE": f"s3a://{BUCKET}/state",
        }

    def close(self) -> None:
        super().close()
        self.store_proxy.close()
        self.store.end()


@dataclass(frozen=True)
class Cluster:
    """Hosts, the servers that all of them reach, and a Spark cluster on some."""

    network: Network
    servers: ClusterServers
    spark: SparkCluster

    @property
    def workers(self) -> Sequence[Host]:
        return self.spark.workers


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Run a cluster while the block runs."""
    with running_network(folder / "network", _HOSTS) as network:
        servers = ClusterServers(folder / "servers", network)
        try:
            with running_spark(folder / "spark", network) as spark:
                yield Cluster(network, servers, spark)
        finally:
            servers.close()


class HostDriver(Driver):
    """A driver on a host, whose disk is empty, with its executors on the cluster."""

    def __init__(self, host: Host, definition: Path, log: Path, variables: Mapping[str, str], master: str) -> None:
        self.host = host
        settings = {
            **_SETTINGS,
            "spark.master": master,
            "spark.driver.host": host.address,
            "spark.driver.bindAddress": host.address,
            "spark.executorEnv.PYTHONPATH": variables["PYTHONPATH"],
        }
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        super().__init__(definition, host.disk / "state", log, variables, options)

    def _start(self, command: Sequence[str], variables: Mapping[str, str]) -> "subprocess.Popen[bytes]":
        return self.host.start(command, variables, self.log)


class ClusterWorld(World):
    """A deduplicating pipeline on a cluster. Each driver is on another host than the one before."""

    driver: HostDriver
    servers: ClusterServers

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self._driver_hosts = cycle(cluster.network[name] for name in DRIVER_HOSTS)
        variables = {
            **QUICK_COMPILATION,
            **cluster.spark.variables,
            **cluster.servers.variables,
            "GLASSFLOW_CACHE": str(cache_folder()),
        }
        super().__init__(cluster.servers, folder, DedupWorkload, variables=variables)

    def new_driver(self, *options: str) -> HostDriver:
        """Start a driver on the other host; it takes no options."""
        assert not options
        host = next(self._driver_hosts)
        return HostDriver(host, self.definition, self.log, self._variables, self.cluster.spark.master)

    def begin(self, seed: str, rate: int = _RATE, low_rate: int = _RATE) -> None:
        super().begin(seed, rate, low_rate)

    def worker_of(self, exchange: Exchange) -> Host | None:
        """Return the worker from which a request has come; None where the driver has sent it."""
        return next((host for host in self.cluster.workers if host.address == exchange.client), None)

    @property
    def unread(self) -> int:
        """Return the number of records that no finished batch has read."""
        return self.sent + (self.feed.sent if self.feed else 0) - self.read


def executors_of(host: Host) -> list[int]:
    """Return the process ids of the executors of a worker's host, with those of their Python workers."""
    return [pid for pid, command in host.processes().items() if _EXECUTOR in command or "pyspark" in command]
