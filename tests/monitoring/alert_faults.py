"""The faults that fire the alerts: what each does to a real pipeline, and how it ends."""

import signal
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from glassflow_dagster.control.heartbeat import pipeline_folder, read_heartbeat, write_heartbeat
from tests.e2e.support import invoke, kill, lock_holder, start, stop
from tests.monitoring.monitored import Monitored
from tests.support.waiting import wait_until

# More than the alert's threshold; the attempts of the driver's two partitions may overlap.
_REFUSED_INSERTS = 12
_BURST = 2000  # events
_DISK = ("free", "size")


class Strike(Protocol):
    """A fault as a block; the function's name says what it is."""

    __name__: str

    def __call__(self, world: Monitored) -> AbstractContextManager[None]:
        """Strike, and repair at the end of the block."""


@dataclass(frozen=True)
class AlertFault:
    """An alert, and the fault that fires it: it strikes at the beginning of a block, and is repaired at its end.

    durations: as in `shortened_rules`. small_disk: the state is on a disk of its own. residual: whether records are
    left without an outcome, as in no other fault.
    """

    alert: str
    strike: Strike
    durations: Mapping[str, str] = field(default_factory=dict)
    event_clock: bool = False
    small_disk: bool = False
    residual: bool = False

    @property
    def name(self) -> str:
        """The alert and the fault."""
        return f"{self.alert}{self.strike.__name__}"


@contextmanager
def _driver_killed(world: Monitored) -> Iterator[None]:
    """Kill -9 of the driver."""
    kill(world.pipeline)
    yield
    start(world.pipeline)


@contextmanager
def _driver_stopped(world: Monitored) -> Iterator[None]:
    """SIGSTOP of all the driver's processes."""
    pids = world.processes()
    world.signal(signal.SIGSTOP, pids)
    try:
        yield
    finally:
        world.signal(signal.SIGCONT, pids)


@contextmanager
def _jvm_stopped(world: Monitored) -> Iterator[None]:
    """SIGSTOP of the driver's JVM, and a burst of events."""
    jvm = lock_holder(world.pipeline).jvm
    assert jvm
    world.signal(signal.SIGSTOP, [jvm])
    try:
        world.send(*({"id": f"burst{index}", "n": index} for index in range(_BURST)))
        yield
    finally:
        world.signal(signal.SIGCONT, [jvm])


@contextmanager
def _clickhouse_stopped(world: Monitored) -> Iterator[None]:
    """SIGSTOP of ClickHouse, and a burst of events."""
    world.servers.clickhouse.pause()
    try:
        world.send(*({"id": f"burst{index}", "n": index} for index in range(_BURST)))
        yield
    finally:
        world.servers.clickhouse.resume()


@contextmanager
def _residual(world: Monitored) -> Iterator[None]:
    """Change the heartbeat of a driver that was stopped: no fault is known that loses a record's outcome."""
    stop(world.pipeline)
    folder = pipeline_folder(world.pipeline.state, world.pipeline.name)
    beat = read_heartbeat(folder)
    assert beat
    write_heartbeat(folder, beat.model_copy(update={"totals": beat.totals.model_copy(update={"read": 103})}))
    yield
    # It reads the totals from the ledger.
    start(world.pipeline)


@contextmanager
def _poison(world: Monitored) -> Iterator[None]:
    """Send messages that are no events, and purge their dead letters."""
    world.send(b"poison", b"{", b"[]")
    yield
    done = invoke(
        "dead-letters", "purge", world.pipeline.name, "--pipelines", str(world.pipeline.file.parent), "--where", "1"
    )
    assert done.code == 0, done.err


@contextmanager
def _too_many_parts(world: Monitored) -> Iterator[None]:
    """Make ClickHouse refuse every insert into the table: it has too many parts, as its limit is one."""
    table, client = f"{world.pipeline.name}.events", world.servers.client()
    refused = "SELECT sum(value) FROM system.errors WHERE name = 'TOO_MANY_PARTS'"

    def refusals() -> int:
        return int(client.query(refused).result_rows[0][0])

    before = refusals()
    client.command(f"ALTER TABLE {table} MODIFY SETTING parts_to_throw_insert = 1, parts_to_delay_insert = 0")
    world.send(*({"id": f"refused{index}", "n": index} for index in range(_BURST)))
    wait_until(lambda: refusals() >= before + _REFUSED_INSERTS, "inserts are refused")
    # A batch counts its retries when it is written.
    client.command(f"ALTER TABLE {table} RESET SETTING parts_to_throw_insert, parts_to_delay_insert")
    yield


@contextmanager
def _disk_filled(world: Monitored) -> Iterator[None]:
    """Fill the disk of the state to 93 %."""
    ballast = world.pipeline.state / "ballast"
    free, size = (world.prometheus.value(f"glassflow_state_disk_{what}_bytes{world.selector}") for what in _DISK)
    assert free
    assert size
    ballast.write_bytes(b"0" * int(free - 0.07 * size))
    yield
    ballast.unlink()


@contextmanager
def _source_silent(world: Monitored) -> Iterator[None]:
    """Send no more events."""
    world.feed.end()
    yield
    world.feed.start()


@contextmanager
def _exporter_killed(world: Monitored) -> Iterator[None]:
    """Kill -9 of the command `metrics`."""
    world.exporter.kill()
    yield
    world.exporter.start()


FAULTS = (
    AlertFault("GlassflowDriverDown", _driver_killed),
    AlertFault("GlassflowNoHeartbeat", _driver_stopped, {"> 60": "> 10"}),
    AlertFault("GlassflowLagGrowing", _jvm_stopped, {"offset 10m": "offset 5s", "> 300": "> 5"}),
    # For longer than it takes until the driver asks ClickHouse for the dead letters: that must not delay the lag.
    AlertFault("GlassflowLagGrowing", _clickhouse_stopped, {"offset 10m": "offset 5s", "> 300": "> 35"}),
    AlertFault("GlassflowLedgerResidual", _residual, residual=True),
    AlertFault("GlassflowDeadLettersWaiting", _poison),
    AlertFault("GlassflowInsertRetries", _too_many_parts, {"10m": "20s"}),
    AlertFault("GlassflowDiskNearlyFull", _disk_filled, small_disk=True),
    AlertFault("GlassflowWatermarkBehind", _source_silent, {"30m": "15s"}, event_clock=True),
    AlertFault("GlassflowExporterAbsent", _exporter_killed),
)
