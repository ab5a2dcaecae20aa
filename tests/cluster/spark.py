"""A Spark standalone cluster: a master and workers, each on a host of its own."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from glassflow_dagster.runtime.java import find_java, java_environment
from glassflow_dagster.runtime.spark_home import pyspark_folder
from tests.cluster.hosts import Host, Network
from tests.support.waiting import wait_until

PORT, REST_PORT, WEB_PORT, WORKER_WEB_PORT = 7077, 6066, 8080, 8081
PROJECT = Path(__file__).parents[2]
# Seconds after which the master takes a worker for lost; by default 60.
_WORKER_TIMEOUT = 5
# The most characters of a driver's output that are shown.
_OUTPUT = 3000
_MASTER, _WORKER = (f"org.apache.spark.deploy.{name}" for name in ("master.Master", "worker.Worker"))


@dataclass(frozen=True)
class SparkCluster:
    """A running cluster. variables: of every process of it, and of drivers that are to find this package.

    cores, memory: of each worker.
    """

    master: str
    workers: Sequence[Host]
    variables: dict[str, str]
    logs: Path
    cores: int
    memory: str

    def start_worker(self, host: Host) -> None:
        """Start the worker of a host, and wait until the master knows it."""
        log = self.logs / f"{host.name}.log"
        before = _registrations(log)
        size = ("--cores", str(self.cores), "--memory", self.memory, "--work-dir", str(host.disk / "work"))
        place = ("--host", host.address, "--webui-port", str(WORKER_WEB_PORT))
        host.start([*_spark_class(), _WORKER, *place, *size, self.master], self.variables, log)
        wait_until(lambda: _registrations(log) > before, f"{host.name} has registered", evidence=log.read_text)


@contextmanager
def running_spark(folder: Path, network: Network, cores: int = 2, memory: str = "3g") -> Iterator[SparkCluster]:
    """Run a master on the host `master`, and a worker on each host with such a name, while the block runs.

    cores, memory: of each worker.
    """
    folder.mkdir(parents=True)
    master = network["master"]
    workers = [host for name, host in network.hosts.items() if name.startswith("worker")]
    variables = {
        **java_environment(find_java()),
        "SPARK_HOME": str(pyspark_folder()),
        "PYTHONPATH": str(PROJECT),
        "SPARK_MASTER_OPTS": f"-Dspark.master.rest.enabled=true -Dspark.worker.timeout={_WORKER_TIMEOUT}",
        "SPARK_WORKER_OPTS": f"-Dspark.worker.timeout={_WORKER_TIMEOUT}",
    }
    # As docs/guides/clusters.md recommends: else it starts the executors of a lost driver again and again.
    master.notice_dead_peers_soon()
    log = folder / "master.log"
    place = ("--host", master.address, "--port", str(PORT), "--webui-port", str(WEB_PORT))
    master.start([*_spark_class(), _MASTER, *place], variables, log)
    wait_until(lambda: "New state: ALIVE" in log.read_text(), "the master is up", evidence=log.read_text)
    cluster = SparkCluster(f"spark://{master.address}:{PORT}", workers, variables, folder, cores, memory)
    for worker in workers:
        cluster.start_worker(worker)
    yield cluster


def submitted_drivers(hosts: Iterable[Host]) -> list[tuple[Host, int]]:
    """Return the host and the process id of each driver that a worker on these hosts has started."""
    module = "-m glassflow_dagster.driver.submitted"
    return [
        (host, pid) for host in hosts for pid, command in host.processes().items() if command.rstrip().endswith(module)
    ]


def driver_outputs(hosts: Iterable[Host]) -> str:
    """Return the ends of what the drivers on these hosts have written, for people; without hosts that are lost."""
    texts = []
    for host in hosts:
        # A host's disk is seen through one of its processes.
        for pid in [*host.processes()][:1]:
            files = sorted(Path(f"/proc/{pid}/root{host.disk}/work").glob("driver-*/std*"))
            texts += [f"{host.name}, {file.parent.name}, {file.name}:\n{file.read_text()[-_OUTPUT:]}" for file in files]
    return "\n".join(texts)


def _spark_class() -> tuple[str]:
    return (str(pyspark_folder() / "bin" / "spark-class"),)


def _registrations(log: Path) -> int:
    """Return how often the worker with this log has registered."""
    return log.read_text().count("Successfully registered with master") if log.exists() else 0
