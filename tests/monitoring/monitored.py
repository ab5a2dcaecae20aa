"""A pipeline on servers of its own, watched by a real Prometheus through the command `metrics`."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from glassflow_dagster.control.heartbeat import pipeline_folder, read_heartbeat
from glassflow_dagster.local.ports import free_port
from tests.e2e.support import Pipeline, start, state, stop
from tests.faults.servers import Servers
from tests.monitoring.alert_rules import shortened_rules
from tests.monitoring.prometheus import Prometheus, running_prometheus
from tests.support.processes import descendants
from tests.support.waiting import wait_until

# The job that the alerts expect.
JOB = "glassflow"
_FEED_SECONDS = 0.2
_END_SECONDS = 30


@dataclass
class Exporter:
    """The command `glassflow-dagster metrics` as a process."""

    state: Path
    log: Path
    port: int = field(default_factory=free_port)
    _process: "subprocess.Popen[bytes] | None" = None

    def start(self) -> None:
        """Start the command."""
        command = [sys.executable, "-m", "glassflow_dagster", "metrics", "--port", str(self.port)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*command, "--state", str(self.state)], stdout=log, stderr=log)

    def kill(self) -> None:
        """Kill the command (SIGKILL), and wait for its end."""
        assert self._process
        self._process.kill()
        self._process.wait(_END_SECONDS)


@dataclass
class Feed:
    """Sends an event with the time of now, five times a second, while the block runs."""

    pipeline: Pipeline
    sent: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to send."""
        self._ended.clear()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop sending; all events have arrived."""
        self._ended.set()
        if self._thread:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        while not self._ended.wait(_FEED_SECONDS):
            event = {"id": f"fed{self.sent}", "n": self.sent, "at": datetime.now(UTC).isoformat()}
            self.sent += self.pipeline.send([event, {**event, "id": f"{event['id']} again"}])


@dataclass
class Monitored:
    """A pipeline with all that watches it. sent: the events that it got, without those of the feed."""

    pipeline: Pipeline
    servers: Servers
    exporter: Exporter
    prometheus: Prometheus
    feed: Feed
    sent: int = 0

    @property
    def selector(self) -> str:
        """The selector of the pipeline's series."""
        return f'{{pipeline="{self.pipeline.name}"}}'

    def send(self, *events: object) -> None:
        """Send events."""
        self.sent += self.pipeline.send(events)

    def processes(self) -> list[int]:
        """Return the pids of the driver's processes."""
        beat = read_heartbeat(pipeline_folder(self.pipeline.state, self.pipeline.name))
        assert beat
        return [beat.pid, *descendants(beat.pid)]

    def signal(self, number: int, pids: list[int]) -> None:
        """Send a signal to processes of the driver; one that has ended is left out."""
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def wait_until_read(self) -> None:
        """Wait until the ledger has all events."""
        wait_until(
            lambda: self.pipeline.ledger()["read"] == self.sent + self.feed.sent,
            "all is read", evidence=lambda: f"state {state(self.pipeline)}, {self.pipeline.ledger()}",
        )  # fmt: skip

    def wait_until_healthy(self) -> None:
        """Wait until Prometheus has seen the driver run, and no alert fires."""
        wait_until(lambda: self.prometheus.value(f"glassflow_up{self.selector}") == 1, "the driver is up")
        wait_until(lambda: not self.prometheus.firing(), "no alert fires", evidence=self.prometheus.alerts)

    def seconds_until_fired(self, alert: str) -> float:
        """Wait until an alert fires, about this pipeline if it has its name; return how many seconds that took."""
        begin = time.monotonic()
        wait_until(lambda: alert in self.prometheus.firing(), f"{alert} fires", evidence=self.prometheus.alerts)
        return time.monotonic() - begin

    def require_no_residual(self) -> None:
        """Fail if a scrape has seen a record without an outcome."""
        name = f"glassflow_ledger_residual{self.selector}[1h]"
        assert self.prometheus.value(f"count_over_time({name})")
        assert self.prometheus.value(f"min_over_time({name})") == 0
        assert self.prometheus.value(f"max_over_time({name})") == 0


@contextmanager
def monitored(
    servers: Servers, folder: Path, alert: str, durations: Mapping[str, str], *, event_clock: bool
) -> Iterator[Monitored]:
    """Run a pipeline and all that watches it while the block runs; all is healthy at its beginning.

    folder: for all files; the state is in `state` in it. alert, durations: as in `shortened_rules`.
    """
    pipeline = Pipeline(folder, f"127.0.0.1:{servers.kafka_proxy.port}", servers.clickhouse_proxy.port)
    if event_clock:
        pipeline.fields.append({"name": "at", "type": "string"})
        pipeline.columns["at"] = "DateTime64(3)"
        pipeline.clock = {"clock": "event", "event_time": "at", "allowed_lateness": "1s"}
    pipeline.write().create_topic()
    exporter = Exporter(pipeline.state, folder / "metrics.log")
    feed = Feed(pipeline)
    try:
        exporter.start()
        start(pipeline)
        if event_clock:
            feed.start()
        with running_prometheus(
            folder / "prometheus", {JOB: exporter.port}, shortened_rules(alert, durations)
        ) as found:
            watched = Monitored(pipeline, servers, exporter, found, feed)
            if not event_clock:
                watched.send(*({"id": f"k{index}", "n": index} for index in range(100)))
                watched.wait_until_read()
            watched.wait_until_healthy()
            yield watched
    finally:
        feed.end()
        exporter.kill()
        stop(pipeline)
