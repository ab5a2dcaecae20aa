"""The runners under test, with real servers.

For Spark's there is a standalone cluster whose hosts share only a network; for Kubernetes, with
GLASSFLOW_TEST_KUBERNETES=1, a real API server (`tests/kubernetes`).
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from glassflow_dagster.control.deployment import DriverOptions
from glassflow_dagster.control.launch import Action
from glassflow_dagster.control.lock import end_remains
from glassflow_dagster.control.runners.choose import build_runner
from glassflow_dagster.control.runners.kubernetes.manifests import MAIN_FILE
from glassflow_dagster.control.runners.kubernetes.names import driver_labels
from glassflow_dagster.control.runners.runner import StreamRunner
from glassflow_dagster.control.runners.settings import LocalSettings, RunnerSettings, SparkSubmitSettings
from glassflow_dagster.control.status import UP, StreamState, StreamStatus, stream_status
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from tests.cluster.hosts import Host, Network, missing, running_network
from tests.cluster.servers import Servers, running_servers
from tests.cluster.spark import SparkCluster, running_spark, submitted_drivers
from tests.e2e.support import Pipeline
from tests.kubernetes.cluster import KubernetesCluster, kubernetes_settings, running_kubernetes
from tests.kubernetes.cluster import missing as missing_kubernetes
from tests.kubernetes.operators import OPERATORS
from tests.servers.stack import Stack
from tests.support.waiting import wait_until

KUBERNETES = tuple(OPERATORS) if os.environ.get("GLASSFLOW_TEST_KUBERNETES") else ()
RUNNERS = ("local", "client", "cluster", *KUBERNETES)
# An error that ends a thread of the node's or of the operators' fails the test.
THREADS_FAIL = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
_POD_FILE = MAIN_FILE.removeprefix("local://")
# Small, so that a driver and two executors fit into the memory of a test machine.
_SIZES = {
    "spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2",
    "spark.sql.shuffle.partitions": "2",
}  # fmt: skip


@dataclass(frozen=True)
class Cluster:
    """A Spark cluster with hosts of its own, and the servers that all of them reach."""

    network: Network
    servers: Servers
    spark: SparkCluster


@dataclass(frozen=True)
class Place:
    """A runner for one pipeline. environment: variables with which its definition is loaded."""

    kind: str
    pipeline: Pipeline
    runner: StreamRunner
    environment: Mapping[str, str]
    hosts: tuple[Host, ...] = ()
    kubernetes: KubernetesCluster | None = None

    @property
    def is_supervised(self) -> bool:
        """Return whether the system that runs the drivers starts them again."""
        return self.kind not in {"local", "client"}

    def config(self) -> PipelineConfig:
        return load_pipeline(self.pipeline.file, {**os.environ, **self.environment})

    def launch(self) -> StreamStatus:
        return self.runner.launch(self.config(), print)

    def ensure(self) -> tuple[StreamStatus, Action]:
        return self.runner.ensure_running(self.config(), print)

    def state(self) -> StreamState:
        return self.runner.status(self.config()).state

    def is_up(self) -> bool:
        return self.state() in UP

    def drivers(self) -> list[int]:
        """Return the process ids of the pipeline's drivers, on all hosts."""
        if self.kubernetes:
            found = self.kubernetes.kubelet.processes(driver_labels(self.pipeline.name))
            # The JVM that has started it has the file as a URL.
            return [pid for pid, command in found.items() if f" {_POD_FILE} " in command]
        if self.kind != "cluster":
            heartbeat = stream_status(self.pipeline.state, self.pipeline.name).heartbeat
            return [heartbeat.pid] if heartbeat and self.is_up() else []
        return [pid for _, pid in submitted_drivers(self.hosts)]

    def kill_driver(self) -> None:
        """Kill the driver's process, as a crash does."""
        [driver] = self.drivers()
        os.kill(driver, signal.SIGKILL)
        wait_until(lambda: driver not in self.drivers(), "the driver is dead")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Run a master, two workers, Kafka, ClickHouse and an object store; skips where there can be no such hosts."""
    if reason := missing():
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("cluster")
    with (
        running_network(folder / "network", ("master", "worker1", "worker2")) as network,
        running_servers(folder / "servers", network.address) as servers,
        running_spark(folder / "spark", network) as spark,
    ):
        yield Cluster(network, servers, spark)


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesCluster]:
    """Run an API server and a node for the pods; skips where there can be none."""
    if reason := missing_kubernetes():
        pytest.skip(reason)
    with running_kubernetes(tmp_path_factory.mktemp("kubernetes") / "cluster") as cluster:
        yield cluster


@pytest.fixture
def place_of(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], Place]]:
    """Return a function that makes a runner of a kind for a pipeline of the test's own, which it stops at the end."""
    made: list[Place] = []

    def make(kind: str) -> Place:
        made.append(_place(kind, tmp_path, request, monkeypatch))
        return made[-1]

    yield make
    for place in made:
        place.runner.stop(place.config())
        end_remains(place.pipeline.state / place.pipeline.name)


def _place(kind: str, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    if kind == "local":
        return _local(folder, request)
    make = _on_kubernetes if kind in OPERATORS else _on_spark
    return make(kind, folder, request, monkeypatch)


def _local(folder: Path, request: pytest.FixtureRequest) -> Place:
    stack: Stack = request.getfixturevalue("stack")
    pipeline = Pipeline(folder, stack.kafka, stack.clickhouse_port).write()
    pipeline.create_topic()
    return Place("local", pipeline, _built(LocalSettings(), pipeline, {}, {}), {})


def _on_spark(kind: str, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    cluster: Cluster = request.getfixturevalue("cluster")
    servers, spark = cluster.servers, cluster.spark
    pipeline, environment = _on_servers(servers, folder, monkeypatch)
    # The hosts' image.
    package = spark.variables["PYTHONPATH"]
    settings = SparkSubmitSettings(
        master=spark.master, deploy_mode="cluster" if kind == "cluster" else "client", python=sys.executable
    )
    spark_config = {**_SIZES, "spark.executorEnv.PYTHONPATH": package}
    runner = _built(settings, pipeline, spark_config, {"PYTHONPATH": package})
    return Place(kind, pipeline, runner, environment, tuple(spark.workers))


def _on_servers(servers: Servers, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Pipeline, Mapping[str, str]]:
    """Return a pipeline, and the variables with which its definition is loaded; set them, and the store's, here.

    A driver of this host loads the definition's file itself.
    """
    pipeline = Pipeline(folder, servers.brokers, servers.clickhouse_port).write()
    pipeline.create_topic()
    environment = {"GLASSFLOW_CLICKHOUSE_URL": servers.clickhouse_url, "GLASSFLOW_STATE": servers.state_url}
    for name, value in {**servers.store, **environment}.items():
        monkeypatch.setenv(name, value)
    return pipeline, environment


def _on_kubernetes(
    operator: str, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Place:
    cluster: KubernetesCluster = request.getfixturevalue("kubernetes")
    # The store's keys are for this process, as for one in a pod; the drivers get them from a Secret.
    pipeline, environment = _on_servers(cluster.servers, folder, monkeypatch)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(cluster.kubeconfig))
    runner = _built(kubernetes_settings(cluster, operator), pipeline, _SIZES, {})
    return Place(operator, pipeline, runner, environment, kubernetes=cluster)


def _built(
    settings: RunnerSettings, pipeline: Pipeline, spark_config: Mapping[str, str], environment: Mapping[str, str]
) -> StreamRunner:
    return build_runner(settings, DriverOptions(pipeline.state, spark_config=spark_config, environment=environment))
