"""What Dagster costs with a hundred pipelines in one code location, and how soon it notices a dead driver.

The pipelines' drivers are stood in for by their heartbeats, which this process writes every second as they would, with
no new batches: so Dagster has nothing to do but to look. One pipeline's driver is a process of its own, which is killed
at the end; the time until Dagster's sensor has requested its restart is `notice_seconds`. A location without pipelines
is the base: what `dagster dev` costs in any case. `--before FOLDER` also measures an earlier checkout of this project.

    make bench-fleet        or: python -m benchmarks.fleet --pipelines 10 --runs 1
"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import results
from benchmarks.dagster_process import running_dagster
from benchmarks.processes import Memory, cpu_seconds
from benchmarks.results import Figures, Runs, turns
from glassflow_dagster.control.heartbeat import DriverState, Heartbeat, write_heartbeat
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.runtime.process import start_of
from glassflow_dagster.stores.bookkeeping.outcomes import Totals

PIPELINES = 100
# Dagster's sensors have their first evaluations behind them.
_SETTLED_SECONDS = 75
# Six evaluations of each sensor.
_IDLE_SECONDS = 180
_NOTICE_SECONDS = 180
PROJECT = Path(__file__).parent.parent

_DEFINITION = """
version: v3
pipeline_id: {name}
sources:
  - type: kafka
    source_id: events
    connection_params: {{brokers: ["127.0.0.1:1"]}}
    topic: {name}
    schema_fields: [{{name: id, type: string}}, {{name: amount, type: float}}]
transforms:
  - {{type: dedup, source_id: events, config: {{key: id, time_window: 10m}}}}
sink:
  type: clickhouse
  connection_params: {{host: 127.0.0.1, port: 1, database: fleet, username: default}}
  table: {name}
  mapping:
    - {{name: id, column_name: id, column_type: String}}
    - {{name: amount, column_name: amount, column_type: Float64}}
# Never while this runs: the servers do not exist.
checks: {{every: "0 0 29 2 *"}}
"""
# Prints how long Dagster takes to import, and the location to load.
_LOAD = """
import time
began = time.monotonic()
import dagster
imported = time.monotonic()
import importlib
definitions = importlib.import_module("{module}").defs
definitions = definitions() if not isinstance(definitions, dagster.Definitions) else definitions
definitions.get_repository_def().load_all_definitions()
print(imported - began, time.monotonic() - imported)
"""
_RUNS_QUERY = (
    '{ runsOrError(filter: {tags: [{key: "glassflow/automated", value: "restart"}]}) { ... on Runs { count } } }'
)


@dataclass(frozen=True)
class Location:
    """A code location: its module, the folder that it is imported from, and its pipelines' definitions."""

    module: str
    code: Path
    pipelines: Path


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("fleet")
    parser.add_argument("--pipelines", type=int, default=PIPELINES)
    parser.add_argument("--before", type=Path, help="checkout of an earlier commit")
    arguments = parser.parse_args()
    runs = Runs()
    with tempfile.TemporaryDirectory() as folder:
        definitions, empty = Path(folder, "pipelines"), Path(folder, "empty")
        write_definitions(definitions, arguments.pipelines)
        empty.mkdir()
        (empty / "without_pipelines.py").write_text("import dagster as dg\n\ndefs = dg.Definitions()\n")
        module, many = "glassflow_dagster.definitions", f"{arguments.pipelines} pipelines"
        cases = {
            "no pipelines": Location("without_pipelines", empty, empty),
            many: Location(module, PROJECT, definitions),
            **({f"{many}, before": Location(module, arguments.before, definitions)} if arguments.before else {}),
        }
        for _, (case, location) in turns(list(cases.items()), arguments.runs):
            runs.measure(case, lambda location=location: measure(location))
    parameters = {"pipelines": arguments.pipelines, "idle_seconds": _IDLE_SECONDS}
    runs.write(arguments.results, "fleet", parameters)


def write_definitions(folder: Path, count: int) -> None:
    """Write definitions of `count` pipelines."""
    folder.mkdir()
    for index in range(count):
        name = f"fleet_{index:03}"
        (folder / f"{name}.yaml").write_text(_DEFINITION.format(name=name))


def measure(location: Location) -> Figures:
    """Load a location; run Dagster with it while its pipelines idle; kill a driver, and wait until that is noticed."""
    with tempfile.TemporaryDirectory() as home:
        state = Path(home, "state")
        environment = {
            # With bytecode files, as an installed package has them.
            **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
            "PYTHONPATH": str(location.code),
            "GLASSFLOW_PIPELINES": str(location.pipelines),
            "GLASSFLOW_STATE": str(state),
            "DAGSTER_HOME": home,
        }
        load_seconds(location, environment)  # writes them
        found = dict(load_seconds(location, environment))
        with (
            beating_drivers(location.pipelines, state) as driver,
            running_dagster(environment, "-m", location.module, folder=location.code) as (pid, port),
        ):
            time.sleep(_SETTLED_SECONDS)
            memory = Memory({"dagster": pid})
            memory.start()
            began, used = time.monotonic(), cpu_seconds(pid)
            time.sleep(_IDLE_SECONDS)
            found["idle_cpu_cores"] = (cpu_seconds(pid) - used) / (time.monotonic() - began)
            found["peak_memory_mib"] = memory.stop()["dagster"]
            if driver:
                found["notice_seconds"] = seconds_to_notice(driver, port)
        return found


def load_seconds(location: Location, environment: Mapping[str, str]) -> Figures:
    """Return how long a new process takes to import Dagster, and then to load the location."""
    command = [sys.executable, "-c", _LOAD.format(module=location.module)]
    done = subprocess.run(command, env=environment, cwd=location.code, capture_output=True, text=True, check=True)
    imported, loaded = map(float, done.stdout.split())
    return {"load_seconds": loaded, "import_seconds_dagster": imported}


@contextmanager
def beating_drivers(pipelines: Path, state: Path) -> Iterator["subprocess.Popen[bytes] | None"]:
    """Write the heartbeats of all pipelines while the block runs; yield the process that is the first one's driver."""
    beats = [heartbeat(file, os.getpid()) for file in sorted(pipelines.glob("*.yaml"))]
    if not beats:
        yield None
        return
    driver = subprocess.Popen(["sleep", "3600"])
    beats[0] = beats[0].model_copy(update={"pid": driver.pid, "process_started": start_of(driver.pid)})
    stopped = threading.Event()

    def beat() -> None:
        while not stopped.wait(1):
            # The heartbeat of a driver that was killed stays as it was.
            for one in beats if driver.poll() is None else beats[1:]:
                write_heartbeat(state / one.pipeline_id, one.model_copy(update={"updated_at": time.time()}))

    for one in beats:
        (state / one.pipeline_id).mkdir(parents=True)
        (state / one.pipeline_id / "wanted").touch()
        write_heartbeat(state / one.pipeline_id, one)
    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield driver
    finally:
        stopped.set()
        thread.join()
        driver.kill()
        driver.wait()


def heartbeat(definition: Path, pid: int) -> Heartbeat:
    """Return the heartbeat of a driver that runs a definition and has nothing to read."""
    config = load_pipeline(definition)
    return Heartbeat(
        pipeline_id=config.pipeline_id, state=DriverState.RUNNING, pid=pid, process_started=start_of(pid) or "",
        updated_at=time.time(), fingerprint=config.fingerprint, batch_id=7, batch_time=time.time(),
        offsets={config.source.topic: {0: 100}}, totals=Totals(read=100, written=90, duplicates=10), lag=0,
        lags={config.source.topic: 0},
    )  # fmt: skip


def seconds_to_notice(driver: "subprocess.Popen[bytes]", port: int) -> float:
    """Kill a driver; return the seconds until Dagster has a run that restarts it."""
    driver.kill()
    driver.wait()
    began = time.monotonic()
    while time.monotonic() < began + _NOTICE_SECONDS:
        if restarts(port):
            return time.monotonic() - began
        time.sleep(0.5)
    raise SystemExit(f"no restart was requested within {_NOTICE_SECONDS} s")


def restarts(port: int) -> int:
    """Return how many runs the observer has requested."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/graphql",
        json.dumps({"query": _RUNS_QUERY}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - loopback
        return int(json.load(answer)["data"]["runsOrError"]["count"])


if __name__ == "__main__":
    main()
