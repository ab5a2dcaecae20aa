"""A real HDFS for tests: a name node and a data node of Hadoop's own, with WebHDFS."""

import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from glassflow_dagster.local.ports import free_port
from glassflow_dagster.runtime import direct
from glassflow_dagster.runtime.jars import ensure_jars
from glassflow_dagster.runtime.java import find_java
from glassflow_dagster.runtime.spark_home import pyspark_folder
from tests.servers.state_server import HOST, StateServer
from tests.support.waiting import wait_until

_NODES = "org.apache.hadoop.hdfs.server"
# The web servers look for their pages there, of which WebHDFS needs none.
_PAGES = ("hdfs", "datanode", "static")


@dataclass(frozen=True)
class HdfsServer(StateServer):
    """A running HDFS. port: of its WebHDFS. rpc_port: of the name node's RPC."""

    rpc_port: int

    @property
    def variables(self) -> dict[str, str]:
        return {"GLASSFLOW_WEBHDFS": self.endpoint}

    def definition(self, place: str | None = None) -> dict[str, str]:
        return {"url": f"hdfs://{HOST}:{self.rpc_port}/{place or uuid.uuid4().hex}", "endpoint": self.endpoint}


@contextmanager
def running_hdfs(folder: Path) -> Iterator[HdfsServer]:
    """Run HDFS in a new folder while the block runs."""
    for page in _PAGES:
        (folder / "pages" / "webapps" / page).mkdir(parents=True)
    server = HdfsServer(free_port(), free_port())
    settings = {
        "fs.defaultFS": f"hdfs://{HOST}:{server.rpc_port}",
        "dfs.namenode.name.dir": f"file://{folder}/name",
        "dfs.datanode.data.dir": f"file://{folder}/data",
        "dfs.namenode.http-address": f"{HOST}:{server.port}",
        "dfs.datanode.hostname": HOST,
        **{f"dfs.datanode.{name}": f"{HOST}:{free_port()}" for name in ("address", "http.address", "ipc.address")},
        "dfs.replication": "1",
        # Else a data node with more connections than the average, its own, is passed over.
        "dfs.namenode.redundancy.considerLoad": "false",
        "hadoop.tmp.dir": str(folder / "scratch"),
    }
    for name in ("core-site.xml", "hdfs-site.xml"):
        (folder / "pages" / name).write_text(_xml(settings))
    log = folder / "hdfs.log"
    _java(folder, log, f"{_NODES}.namenode.NameNode", "-format", "-nonInteractive").wait()
    nodes = [_java(folder, log, f"{_NODES}.{name}") for name in ("namenode.NameNode", "datanode.DataNode")]
    try:
        wait_until(lambda: _is_up(server), "HDFS takes files", evidence=log.read_text)
        yield server
    finally:
        for node in nodes:
            node.kill()
            node.wait()


def _java(folder: Path, log: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    jars = [*ensure_jars("hdfs", print), *sorted((pyspark_folder() / "jars").glob("*.jar"))]
    path = os.pathsep.join(map(str, [folder / "pages", *jars]))
    with log.open("ab") as output:
        return subprocess.Popen(
            [find_java().executable, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", path, *arguments],
            stdout=output,
            stderr=output,
            cwd=folder,
        )


def _is_up(server: HdfsServer) -> bool:
    """Return whether the name node has left its safe mode, and knows a data node."""
    query = "Hadoop:service=NameNode,name=FSNamesystemState"
    try:
        with direct.opener.open(f"{server.endpoint}/jmx?qry={query}", timeout=5) as answer:
            return b'"NumLiveDataNodes" : 1' in answer.read()
    except OSError:
        return False


def _xml(settings: Mapping[str, str]) -> str:
    lines = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()]
    return f"<configuration>{''.join(lines)}</configuration>"
