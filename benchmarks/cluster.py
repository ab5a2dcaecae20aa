"""Run a command on a Spark standalone cluster on this machine, with workers of one core each.

    python -m benchmarks.cluster WORKERS COMMAND ...

starts a master and the workers, then the command with `--conf spark.master=URL` appended, and stops when the command
ends. All processes are descendants of this one, so that their CPU time and memory can be measured together.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.console import say
from benchmarks.pipelines import wait_until
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.runtime.java import find_java, java_environment
from glassflow_dagster.runtime.spark_home import pyspark_folder

HOST = "127.0.0.1"
# An executor's heap; Spark needs the rest of a worker's memory for itself.
WORKER_MEMORY = "2g"
_MASTER, _WORKER = (f"org.apache.spark.deploy.{name}" for name in ("master.Master", "worker.Worker"))
_START_SECONDS = 60.0
_END_SECONDS = 30.0


@contextmanager
def running_cluster(workers: int, *, apart: bool = False) -> Iterator[str]:
    """Start a master and the given number of workers; yield the master's URL.

    apart: each worker has a loopback address of its own, which Spark takes for a host of its own.
    """
    with tempfile.TemporaryDirectory(prefix="spark-cluster-") as name, ExitStack() as stack:
        folder, port = Path(name), free_port()
        url = f"spark://{HOST}:{port}"
        place = ("--port", str(port), "--webui-port", str(free_port()))
        stack.enter_context(_daemon(folder / "master.log", "New state: ALIVE", HOST, _MASTER, *place))
        for number in range(workers):
            log = folder / f"worker{number}.log"
            place = ("--work-dir", str(folder / f"work{number}"), "--webui-port", str(free_port()))
            size = ("--cores", "1", "--memory", WORKER_MEMORY)
            host = f"127.0.0.{number + 2}" if apart else HOST
            stack.enter_context(_daemon(log, "Successfully registered with master", host, _WORKER, *size, *place, url))
        yield url


@contextmanager
def _daemon(log: Path, ready: str, host: str, name: str, *arguments: str) -> Iterator[None]:
    """Start a Spark daemon on an address of this machine, and wait until its log contains `ready`."""
    environment = {
        **os.environ, **java_environment(find_java()), "SPARK_HOME": str(pyspark_folder()), "SPARK_LOCAL_IP": host,
    }  # fmt: skip
    command = [str(pyspark_folder() / "bin" / "spark-class"), name, "--host", host, *arguments]
    with log.open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        wait_until(lambda: ready in log.read_text(encoding="utf-8"), process, _START_SECONDS, f"{name}: {ready}")
        yield
    finally:
        process.terminate()
        process.wait(_END_SECONDS)


def main(workers: int, command: Sequence[str]) -> int:
    """Run a command on a cluster and return its exit code; SIGTERM is passed on to the command."""
    with running_cluster(workers) as url:
        process = subprocess.Popen([*command, "--conf", f"spark.master={url}"])
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        return process.wait()


if __name__ == "__main__":
    if len(sys.argv) < 3:  # noqa: PLR2004 - the two that the usage names
        say(__doc__ or "")
        sys.exit(2)
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
