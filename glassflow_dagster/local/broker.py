"""A Kafka broker for development: broker and KRaft controller in one JVM, on loopback, with its data in one folder.

The controller listens on a port that only the broker uses. Each start chooses a free one: with a static quorum, Kafka
reads the voter's address from the configuration and does not store it.
"""

import base64
import logging
import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.runtime.jars import ensure_jars
from glassflow_dagster.runtime.java import JavaRuntime, find_java, java_environment

# With this the JVM used 370 MB for 76,000 small events per second, written and read; half of it led to long GC pauses.
_HEAP = "512m"

_FORMAT_SECONDS = 60

# The file with the cluster id, written after formatting: storage without it was not formatted completely.
_CLUSTER_ID_FILE = "cluster-id"

_PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={data}
# One broker holds the one copy.
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# Kafka's 50 of each are made for clusters; here they are folders and seconds.
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
share.coordinator.state.topic.num.partitions=4
# A first consumer need not wait for others.
group.initial.rebalance.delay.ms=0
# Events stay: a stack that rested for a week must not come back empty.
log.retention.ms=-1
"""

_LOGGING = """\
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %m (%c)%n
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
"""

# Without it, the admin client that checks the broker would log each refused connection to the terminal.
_SILENT = logging.getLogger(f"{__name__}.probe")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@dataclass(frozen=True)
class Broker:
    """A broker that is ready to start: its command and its environment variables."""

    command: Sequence[str]
    variables: dict[str, str]


def prepare_broker(folder: Path, port: int, report: Callable[[str], None]) -> Broker:
    """Write the broker's configuration into `folder`, and format its storage the first time.

    Downloads the jars if needed. Raises GlassflowError when the jars or Java are not available, or formatting fails.
    """
    java = find_java()
    jars = ensure_jars("broker", report)
    classpath = f"{jars[0].parent}/*"
    folder.mkdir(parents=True, exist_ok=True)
    properties = folder / "server.properties"
    data = folder / "data"
    properties.write_text(_PROPERTIES.format(port=port, controller_port=free_port(), data=_escaped(data)))
    logging_properties = folder / "log4j2.properties"
    logging_properties.write_text(_LOGGING)
    jvm = [str(java.executable), f"-Dlog4j2.configurationFile={logging_properties}", "-cp", classpath]
    if not (folder / _CLUSTER_ID_FILE).exists():
        report("formatting the Kafka storage (once)")
        _format(folder, jvm, java)
    return Broker(
        command=[*jvm[:1], f"-Xmx{_HEAP}", "-XX:+ExitOnOutOfMemoryError", *jvm[1:], "kafka.Kafka", str(properties)],
        variables=java_environment(java),
    )


def broker_answers(port: int, folder: Path) -> bool:
    """Return whether the broker of this folder, and no other, answers at 127.0.0.1:`port`; waits up to a second."""
    client = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"}, logger=_SILENT)
    try:
        return bool(client.list_topics(timeout=1).cluster_id == (folder / _CLUSTER_ID_FILE).read_text().strip())
    except KafkaException:
        return False


def _format(folder: Path, jvm: Sequence[str], java: JavaRuntime) -> None:
    """Format the storage with Kafka's StorageTool, then write the file with the cluster id."""
    shutil.rmtree(folder / "data", ignore_errors=True)
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    command = [
        *jvm,
        "kafka.tools.StorageTool",
        "format",
        f"--cluster-id={cluster_id}",
        "-c",
        str(folder / "server.properties"),
    ]
    try:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            timeout=_FORMAT_SECONDS,
            env={**os.environ, **java_environment(java)},
        )
    except subprocess.SubprocessError as error:
        output = (getattr(error, "stderr", None) or getattr(error, "stdout", None) or str(error)).strip().splitlines()
        raise GlassflowError(f"{folder}: the Kafka storage could not be formatted: {output[-1]}") from error
    (folder / _CLUSTER_ID_FILE).write_text(cluster_id + "\n")


def _escaped(path: Path) -> str:
    """Escape a path for `log.dirs`, a comma-separated list in a Java properties file."""
    text = str(path)
    if "," in text:
        raise GlassflowError(f"{text}: Kafka allows no comma in its folder's name; choose another with --data DIR")
    return text.replace("\\", "\\\\")
