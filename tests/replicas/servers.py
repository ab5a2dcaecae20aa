"""Kafka, ZooKeeper, and two ClickHouse servers with replicated tables behind one address."""

import itertools
import os
import shutil
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

import clickhouse_connect
from clickhouse_connect.driver.client import Client

from glassflow_dagster.local.ports import free_port
from glassflow_dagster.runtime import direct
from glassflow_dagster.runtime.java import find_java
from glassflow_dagster.runtime.spark_home import pyspark_folder
from tests.faults.doors import Door
from tests.faults.http_proxy import Exchange, HttpProxy
from tests.faults.servers import UP_SECONDS, Server, Servers
from tests.support.waiting import wait_until

# Replicas fetch parts there, and clients use the same port on 127.0.0.1.
_INTERSERVER_HOST = "127.0.0.2"
_REPLICAS = 2
# A user whose inserts wait until a majority of the replicas has them.
QUORUM_USER = "quorum"
# A replica that ZooKeeper has not heard of for so long is taken for dead; its tables are read-only until it is back.
SESSION_SECONDS = 6
_DDL = (b"CREATE ", b"ALTER ", b"DROP ")

_CONFIG = """\
<clickhouse>
  <logger><console>true</console></logger>
  <log-level>error</log-level>
  <display_name>{name}</display_name>
  <listen_host>127.0.0.1</listen_host>
  <listen_host>{interserver}</listen_host>
  <listen_try>1</listen_try>
  <http_port>{port}</http_port>
  <background_schedule_pool_size>16</background_schedule_pool_size>
  <background_pool_size>4</background_pool_size>
  <background_fetches_pool_size>4</background_fetches_pool_size>
  <background_common_pool_size>4</background_common_pool_size>
  <zookeeper>
    <node><host>127.0.0.1</host><port>{keeper}</port></node>
    <session_timeout_ms>{session_ms}</session_timeout_ms>
    <sessions_path>/clickhouse/sessions/{name}</sessions_path>
  </zookeeper>
  <users_config>{users}</users_config>
  <default_replica_path>/clickhouse/tables/{{database}}/{{table}}</default_replica_path>
  <default_replica_name>{name}</default_replica_name>
</clickhouse>
"""
_USERS = """\
<clickhouse>
  <profiles>
    <default/>
    <quorum><insert_quorum>auto</insert_quorum></quorum>
  </profiles>
  <quotas><default/></quotas>
  <users>
    <default>{access}<profile>default</profile></default>
    <{quorum}>{access}<profile>quorum</profile></{quorum}>
  </users>
</clickhouse>
"""
_ACCESS = "<password/><networks><ip>::/0</ip></networks><quota>default</quota>"
_KEEPER_CONFIG = """\
tickTime=500
minSessionTimeout=1000
dataDir={data}
clientPort={port}
clientPortAddress=127.0.0.1
admin.enableServer=false
"""


class FailoverProxy(HttpProxy):
    """A proxy for several servers: each request goes to the first one that accepts connections.

    A statement that defines something goes to all of these, as ON CLUSTER and replicated databases make it happen,
    neither of which the engine of the tests has.
    """

    def __init__(self, port: int, upstreams: Sequence[int], door: Door | None = None) -> None:
        self._upstreams = upstreams
        self.left_out: int | None = None  # the port of a server that gets no requests although it accepts connections
        super().__init__(port, upstreams[0], door)

    def choose_upstream(self) -> int:
        return next(filter(self._is_up, self._upstreams), self._upstreams[0])

    def _is_up(self, port: int) -> bool:
        return port != self.left_out and _accepts(port)

    def handle(self, exchange: Exchange) -> None:
        if not exchange.statement.lstrip().upper().startswith(_DDL):
            super().handle(exchange)
            return
        answers = [exchange.forward_to(port) for port in filter(self._is_up, self._upstreams)]
        exchange.answer(max(answers, key=lambda answer: answer.status))


class BalancingProxy(FailoverProxy):
    """A proxy for several servers in turn; those that accept no connections are passed over."""

    def __init__(self, port: int, upstreams: Sequence[int], door: Door | None = None) -> None:
        self._turns = itertools.cycle(range(len(upstreams)))
        super().__init__(port, upstreams, door)

    def choose_upstream(self) -> int:
        turn = next(self._turns)
        in_turn = [*self._upstreams[turn:], *self._upstreams[:turn]]
        return next(filter(self._is_up, in_turn), in_turn[0])


class ReplicatedServers(Servers):
    """Two replicas and their ZooKeeper. A pipeline reaches the replicas in turn, the tests the first one that is up."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.keeper = _keeper(folder, free_port())
        ports = [free_port() for _ in range(_REPLICAS)]
        self.replicas = [_replica(folder, f"replica{index + 1}", port, self.keeper.port)
                         for index, port in enumerate(ports)]  # fmt: skip
        self._direct_port = free_port()
        self._direct = FailoverProxy(self._direct_port, ports)
        super().__init__(folder)

    @property
    def all(self) -> Sequence[Server]:
        return self.broker, self.keeper, *self.replicas

    def client(self) -> Client:
        return clickhouse_connect.get_client(
            host="127.0.0.1", port=self._direct_port, query_limit=0, autogenerate_session_id=False
        )

    def client_of(self, replica: Server) -> Client:
        return clickhouse_connect.get_client(host="127.0.0.1", port=replica.port, query_limit=0)

    def replace(self, lost: Server) -> None:
        """Remove the data of a replica that was killed, and let a new one take its place, as operators do.

        No request reaches it before it has its tables and their rows.
        """
        proxies = (self._direct, self._balancing)
        for proxy in proxies:
            proxy.left_out = lost.port
        shutil.rmtree(self._folder / lost.name / "data")
        kept = next(replica for replica in self.replicas if replica is not lost)
        survivor = self.client_of(kept)
        tables = survivor.query(
            "SELECT r.database, r.table, r.zookeeper_path, t.create_table_query FROM system.replicas AS r "
            "JOIN system.tables AS t ON r.database = t.database AND r.table = t.name"
        ).result_rows
        active = "SELECT max(active_replicas) FROM system.replicas"
        wait_until(lambda: survivor.query(active).result_rows[0][0] == 1, f"ZooKeeper takes {lost.name} for dead")
        for _, _, path, _ in tables:
            survivor.command(f"SYSTEM DROP REPLICA '{lost.name}' FROM ZKPATH '{path}'")
        survivor.close()
        lost.start()
        wait_until(lambda: _takes_inserts(lost), f"{lost.name} is up", UP_SECONDS, lost.condition)
        new = self.client_of(lost)
        for database, table, _, statement in tables:
            new.command(f"CREATE DATABASE IF NOT EXISTS {database}")
            # The server has written its own name into the statement.
            new.command(statement.replace(f"'{kept.name}'", f"'{lost.name}'"))
            new.command(f"SYSTEM SYNC REPLICA {database}.{table}")
            # Else inserts that waited for the lost replica would wait for ever: parts that a new replica copies count
            # for a quorum only when its session begins.
            new.command(f"SYSTEM RESTART REPLICA {database}.{table}")
        new.close()
        for proxy in proxies:
            proxy.left_out = None

    def wait_for_clickhouse(self) -> None:
        for replica in self.replicas:
            wait_until(lambda r=replica: _takes_inserts(r), f"{replica.name} is up", UP_SECONDS, replica.condition)

    def close(self) -> None:
        self._direct.close()
        super().close()

    def _make_clickhouse_proxy(self, port: int, upstream: int, door: Door | None) -> HttpProxy:
        del upstream
        self._balancing = BalancingProxy(port, [replica.port for replica in self.replicas], door)
        return self._balancing

    def _make_clickhouse(self, folder: Path, port: int) -> Server:
        del folder, port
        return self.replicas[0]


def _keeper(folder: Path, port: int) -> Server:
    data = folder / "keeper"
    data.mkdir(parents=True)
    config = data / "zoo.cfg"
    config.write_text(_KEEPER_CONFIG.format(data=data / "data", port=port))
    # ZooKeeper and all that it needs are among Spark's jars.
    jars, program = pyspark_folder() / "jars", "org.apache.zookeeper.server.ZooKeeperServerMain"
    command = [str(find_java().executable), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    command += [program, str(config)]
    return Server("ZooKeeper", command, port, data / "keeper.log", {})


def _replica(folder: Path, name: str, port: int, keeper: int) -> Server:
    data = folder / name
    data.mkdir(parents=True)
    users = folder / "users.xml"
    users.write_text(_USERS.format(quorum=QUORUM_USER, access=_ACCESS))
    config = _CONFIG.format(
        name=name, interserver=_INTERSERVER_HOST, port=port, keeper=keeper, session_ms=1000 * SESSION_SECONDS,
        users=users,
    )  # fmt: skip
    (data / "config.xml").write_text(config)
    command = [sys.executable, "-m", "tests.replicas.engine", str(data), _INTERSERVER_HOST, str(port)]
    return Server(name, command, port, data / "replica.log", {"PYTHONPATH": os.pathsep.join(sys.path)})


def _accepts(port: int) -> bool:
    """Return whether a server accepts connections; one that is stopped does."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _takes_inserts(replica: Server) -> bool:
    """Return whether a replica answers, and none of its tables is read-only."""
    query = b"SELECT countIf(is_readonly OR is_session_expired) FROM system.replicas"
    try:
        with direct.opener.open(f"http://127.0.0.1:{replica.port}/", query, timeout=5) as answer:
            return bool(answer.read().strip() == b"0")
    except OSError:
        return False
