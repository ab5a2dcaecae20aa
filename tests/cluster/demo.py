"""`make demo-cluster`: the demo's four pipelines on hosts of their own, two of which are lost while records arrive.

Dagster on one host starts the drivers, which run on the workers' hosts with their state in an object store. While they
write, the host of a driver is lost, and that of Dagster. Another Dagster, on a host with an empty disk, finds the
drivers running, checks the streams and stops them. All counts and rows are compared with those sent, as `make demo`
does.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import clickhouse_connect
import yaml
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import DatabaseError

from glassflow_dagster.local.demo.check import (
    Servers,
    count,
    different_flights,
    find_join_mistakes,
    find_mistakes,
    recount,
)
from glassflow_dagster.local.demo.pipelines import Topic, demos, join_demos
from glassflow_dagster.local.demo.produce import create_topic, send
from tests.cluster.dagster_host import LOCATION, DagsterHost, start_dagster, write_project
from tests.cluster.hosts import Network, missing, running_network
from tests.cluster.servers import Servers as ClusterServers
from tests.cluster.servers import running_servers
from tests.cluster.spark import PROJECT, SparkCluster, driver_outputs, running_spark, submitted_drivers
from tests.support.pictures import take_picture
from tests.support.waiting import wait_until

_HOSTS = ("master", "worker1", "worker2", "worker3", "dagster1", "dagster2")
# Two workers must have room for four drivers with an executor each, twice: the master keeps a lost driver's executors
# until it takes the connection for dead.
_WORKER_CORES, _WORKER_MEMORY = 8, "6g"
_SIZES = {
    "spark.driver.memory": "512m", "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "1",
    "spark.sql.shuffle.partitions": "2",
}  # fmt: skip
_PIPELINES = [demo.pipeline for demo in (*demos(), *join_demos())]
_JOB = f"{LOCATION}__health_check"
_SEED = 7
_LONG = 600.0  # seconds; all hosts share this machine's cores
# Seconds. Less than the idle timeout, after which waiting events are decided though the newest ones were forgotten.
_DECIDED_WITHIN = 240.0
# Picture -> page of Dagster's, and width and height in pixels.
_PICTURES = {
    "another_host_lineage.png": (f"locations/{LOCATION}/asset-groups/flights_with_weather/lineage", (1900, 760)),
}


def main() -> int:
    """Run it; return 0 when every count has the expected value."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.demo", description=__doc__)
    parser.add_argument("--pictures", type=Path, help="folder for pictures of the second Dagster; needs Chromium")
    arguments = parser.parse_args()
    if reason := missing():
        print(f"not possible here: {reason}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="demo-") as folder, _running(Path(folder)) as demo:
        mistakes = demo.run(arguments.pictures)
    for mistake in mistakes:
        print(mistake, file=sys.stderr)
    print("wrong" if mistakes else "All counts and rows are exact.")
    return int(bool(mistakes))


@contextmanager
def _running(folder: Path) -> Iterator["ClusterDemo"]:
    """Run the hosts with all servers while the block runs."""
    with (
        running_network(folder / "network", _HOSTS) as network,
        running_servers(folder / "servers", network.address) as servers,
        running_spark(folder / "spark", network, _WORKER_CORES, _WORKER_MEMORY) as spark,
    ):
        write_project(folder / "project", _component(servers, spark))
        yield ClusterDemo(folder, network, servers, spark)


def _component(servers: ClusterServers, spark: SparkCluster) -> str:
    """Return the text of `defs.yaml`."""
    runner = {
        "type": "spark-submit", "deploy_mode": "cluster", "master": spark.master, "python": sys.executable,
        "state": servers.state_url, "spark_config": _SIZES,
    }  # fmt: skip
    attributes = {"name": LOCATION, "folder": str(PROJECT / "pipelines"), "runner": runner}
    return yaml.safe_dump({"type": "glassflow_dagster.PipelineFolder", "attributes": attributes})


@dataclass(frozen=True)
class ClusterDemo:
    """The hosts, and what they run."""

    folder: Path
    network: Network
    servers: ClusterServers
    spark: SparkCluster

    def run(self, pictures: Path | None) -> list[str]:
        """Run the pipelines, lose hosts, and return a line for each count or row that is wrong."""
        for topic in _topics():
            create_topic(self.servers.brokers, topic.name)
        # What others are joined with is there whole, for one batch: an event takes the values of the newest one that is
        # known by then, and of those in one batch that of the last partition, which is what the rows are compared with.
        self._send(_joined_with())
        first = self._start_dagster("dagster1")
        first.run(_JOB, {}, _LONG)
        _say(f"Dagster on dagster1 has started {', '.join(_PIPELINES)} on {self._hosts_of_drivers()}")
        with clickhouse_connect.get_client(host="127.0.0.1", port=self.servers.clickhouse_port) as client:
            return self._lose_and_check(client, pictures)

    def _lose_and_check(self, client: Client, pictures: Path | None) -> list[str]:
        """Send all other events, lose hosts, and return what `run` does, found by a second Dagster."""
        self._send_and_lose(client)
        self.network["dagster1"].lose_power()
        _say("dagster1 is lost, too")
        second = self._start_dagster("dagster2")
        wait_until(
            lambda: self._read(client) == sum(topic.sent for topic in _topics()),
            "all is read", _LONG, lambda: f"{self._read_by_pipeline(client)}\n{driver_outputs(self.spark.workers)}",
        )  # fmt: skip
        _say(f"all is read; the drivers are on {self._hosts_of_drivers()}")
        self._await_joins(client)
        _say("the joins have written all that is decided")
        drivers = submitted_drivers(self.spark.workers)
        second.run(_JOB, {}, _LONG)
        checks = second.checks()
        assert len(checks) >= len(_PIPELINES), f"only these checks were run: {checks}"
        mistakes = self._mistakes() + [
            f"{check}: {status}: {why}" for check, (status, why) in sorted(checks.items()) if status != "SUCCEEDED"
        ]
        if submitted_drivers(self.spark.workers) != drivers:
            mistakes.append("Dagster on dagster2 has started drivers, though all ran")
        _say(f"Dagster on dagster2 has run {len(checks)} checks")
        if pictures:
            _take_pictures(second, pictures)
        second.run(_JOB, {"ops": {f"{name}__stream": {"config": {"mode": "STOP"}} for name in _PIPELINES}}, _LONG)
        wait_until(lambda: not submitted_drivers(self.spark.workers), "all drivers have ended")
        _say("Dagster on dagster2 has stopped them")
        return mistakes

    @property
    def _from_here(self) -> Servers:
        """Return the servers as this machine reaches them."""
        return Servers(self.servers.brokers, f"http://127.0.0.1:{self.servers.clickhouse_port}")

    def _start_dagster(self, name: str) -> DagsterHost:
        variables = {
            **self.servers.store,
            "PYTHONPATH": f"{self.folder / 'project'}:{PROJECT}",
            "GLASSFLOW_KAFKA_BROKERS": self.servers.brokers,
            "GLASSFLOW_CLICKHOUSE_URL": self.servers.clickhouse_url,
        }
        return start_dagster(self.network[name], self.folder / "project", variables, self.folder / f"{name}.log")

    def _send_and_lose(self, client: Client) -> None:
        """Send all other events; lose the host of the flights' driver while that inserts them."""
        first = _joined_with()
        wait_until(lambda: self._read(client) == sum(topic.sent for topic in first), "they are read", _LONG)
        self._send([topic for topic in _topics() if topic not in first])
        wait_until(lambda: _number(client, "SELECT count() FROM analytics.flights"), "flights arrive", _LONG)
        [[name]] = client.query(
            "SELECT argMax(host, epoch) FROM analytics.glassflow_drivers WHERE pipeline_id = 'flights'"
        ).result_rows
        lost, read = self.network[name], self._read(client)
        drivers = len(submitted_drivers([lost]))
        lost.lose_power()
        _say(f"{name} is lost, with {drivers} of the drivers; the ledger has {read:,} records")

    def _await_joins(self, client: Client) -> None:
        """Wait for the batch behind the one that has read the newest events: it writes what these have decided."""
        decided = {join.table: int(recount(join, self._from_here).joined.decided.sum()) for join in join_demos()}
        wait_until(
            lambda: all(_number(client, f"SELECT count() FROM {table}") >= rows for table, rows in decided.items()),
            f"at least these rows are there: {decided}", _DECIDED_WITHIN, lambda: driver_outputs(self.spark.workers),
        )  # fmt: skip

    def _send(self, topics: list[Topic]) -> None:
        for topic in topics:
            send(self.servers.brokers, topic.name, topic.events(), _SEED, lambda _: None)

    def _read(self, client: Client) -> int:
        """Return how many records all pipelines have read, as their ledgers say."""
        return _number(client, "SELECT sum(read) FROM analytics.glassflow_ledger")

    def _read_by_pipeline(self, client: Client) -> list[Sequence[Any]]:
        """Return the pipelines, and how many records each has read."""
        query = "SELECT pipeline_id, sum(read) FROM analytics.glassflow_ledger GROUP BY 1"
        return list(client.query(query).result_rows)

    def _hosts_of_drivers(self) -> str:
        return ", ".join(host.name for host, _ in submitted_drivers(self.spark.workers))

    def _mistakes(self) -> list[str]:
        """Return a line for each count or row that differs from what was sent."""
        mistakes = different_flights(self._from_here)
        for demo in demos():
            mistakes += find_mistakes(demo, count(demo, self._from_here))
        for join in join_demos():
            mistakes += find_join_mistakes(join, recount(join, self._from_here))
        return mistakes


def _topics() -> list[Topic]:
    """Return all topics of the demo."""
    return [*(demo.topic for demo in demos()), *(topic for demo in join_demos() for topic in (demo.left, demo.right))]


def _joined_with() -> list[Topic]:
    """Return the topics with whose events those of another one are joined."""
    return [demo.right for demo in join_demos()]


def _number(client: Client, query: str) -> int:
    """Return the number that a query returns; 0 where its table does not exist yet."""
    try:
        return int(client.query(query).result_rows[0][0])
    except DatabaseError as error:
        if "UNKNOWN_TABLE" not in str(error):
            raise
        return 0


def _take_pictures(dagster: DagsterHost, folder: Path) -> None:
    for name, (page, size) in _PICTURES.items():
        take_picture(f"{dagster.url}/{page}", size, folder.absolute() / name)
        _say(name)


def _say(text: str) -> None:
    print(f"{time.strftime('%X')} {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
