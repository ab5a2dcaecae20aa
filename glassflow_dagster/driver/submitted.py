"""The driver as a process that a cluster has started, on a host that the launcher does not share.

    python -m glassflow_dagster.driver.submitted [FILE]

What it is to do comes in a file, or in the environment variable GLASSFLOW_SUBMISSION: never on a command line, since a
definition has secrets. The cluster starts Spark's `PythonRunner`, and that this process. It gets a JVM of its own, as
every driver does, with the jars of this host.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from glassflow_dagster.control.log import DriverLog, LogFormat
from glassflow_dagster.control.log_file import RotatingStderr, write_to_stderr
from glassflow_dagster.control.state_folder import prepare_folder
from glassflow_dagster.control.stop import STOP_TIMEOUT
from glassflow_dagster.control.submission import STOPPED, SUBMISSION, Submission
from glassflow_dagster.control.wanted import want
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.python_output import python_output
from glassflow_dagster.driver.run import drive
from glassflow_dagster.errors import Fenced, GlassflowError
from glassflow_dagster.runtime.address import address_toward_master
from glassflow_dagster.runtime.spark_properties import read_properties

# By these, pyspark would use the JVM that has started this process.
_GATEWAY = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
# Settings of the cluster for its driver, where it writes some (Kubernetes).
_PROPERTIES = "spark.properties"
# Of those, what describes the JVM that has started this process.
_OF_STARTER = frozenset({
    "spark.driver.extraClassPath", "spark.driver.extraJavaOptions", "spark.jars", "spark.submit.pyFiles",
    "spark.app.name", "spark.submit.deployMode",
})  # fmt: skip
# The output of the process, in the folder in which a standalone worker starts it.
_OUTPUT = Path("stdout")
_POLL_SECONDS = 1.0


def main(arguments: list[str] | None = None) -> int:
    """Run the driver; return its exit code: 0 when it was stopped, or a newer driver runs the pipeline; 1 on errors."""
    files = sys.argv[1:] if arguments is None else arguments
    for name in _GATEWAY:
        os.environ.pop(name, None)
    write_line = write_to_stderr
    if _OUTPUT.is_file():
        _write_to(_OUTPUT)
        write_line = RotatingStderr(_OUTPUT.absolute()).write_line
    log = DriverLog(write_line, is_timed=True)
    try:
        submission = _read(files, os.environ)
    except (OSError, ValueError) as error:
        log.fail(f"the submission cannot be read ({type(error).__name__}): it is of another version, or was cut off")
        return 1
    log.format = submission.log_format or LogFormat.TEXT
    log.takes_jvm_output = True
    end_with_parent()
    with python_output(log):
        return _run(submission, log)


def _run(submission: Submission, log: DriverLog) -> int:
    """Run the pipeline; return the exit code. The cluster starts the driver again unless that is 0."""
    settings = _with_address({**_cluster_settings(os.environ), **submission.spark})
    options = RunOptions(
        state=submission.state, create_table=submission.create_table, spark=settings, submission=submission.id
    )
    try:
        config = submission.definition.load()
        # For the hosts that see this driver in ClickHouse: it is meant to run.
        want(prepare_folder(submission.state, config.pipeline_id))
        drive(config, options, log)
    except Fenced as fenced:
        log(f"{fenced}; this driver ends, and is not started again")
        return 0
    except GlassflowError as error:
        log.fail(str(error))
        return 1
    log(STOPPED)
    return 0


def _read(files: list[str], environment: MutableMapping[str, str]) -> Submission:
    """Return the submission in a file, else in the environment, where no child process needs it."""
    if files:
        return Submission.model_validate_json(Path(files[0]).read_bytes())
    return Submission.decode(environment.pop(SUBMISSION, ""))


def _cluster_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that the cluster has written for its driver: its addresses, the executors' pods."""
    folder = environment.get("SPARK_CONF_DIR")
    file = Path(folder, _PROPERTIES) if folder else None
    if file is None or not file.is_file():
        return {}
    return {key: value for key, value in read_properties(file).items() if key not in _OF_STARTER}


def _with_address(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with this host's address for the executors, unless the cluster has chosen one."""
    address = address_toward_master(settings.get("spark.master", ""))
    # A pod's own address (Kubernetes).
    bind_address = os.environ.get("SPARK_DRIVER_BIND_ADDRESS") or address
    return {"spark.driver.host": address, "spark.driver.bindAddress": bind_address, **settings}


def _write_to(file: Path) -> None:
    """Make a file the stdout and stderr: of the pipe that they are, the other end may be gone first."""
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(descriptor, stream)
    os.close(descriptor)


def end_with_parent() -> None:
    """Stop this process in good order when the process that has started it ends, and kill it if that takes too long.

    A cluster ends the JVM that it has started, and knows nothing of this process.
    """
    threading.Thread(target=watch_parent, args=(os.getppid(),), name="parent", daemon=True).start()


def watch_parent(parent: int) -> None:
    """Wait for the parent's end; then ask this process to stop, and kill it after `STOP_TIMEOUT` seconds."""
    while os.getppid() == parent:
        time.sleep(_POLL_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(STOP_TIMEOUT)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
