"""Every alert is fired by a fault on a real pipeline, and ends with it: `make alerts`.

The durations in the rule of the alert are shortened; its thresholds stay, except seconds. The residual is no fault but
a changed heartbeat, because nothing is known that leaves a record without an outcome.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.servers import Servers
from tests.monitoring.alert_faults import FAULTS, AlertFault
from tests.monitoring.alert_rules import rules
from tests.monitoring.monitored import monitored
from tests.monitoring.prometheus import binaries
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers

# Enough for the state of the pipeline, and few bytes to fill.
_SMALL_DISK = "192m"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    binaries()
    found = Servers(tmp_path_factory.mktemp("servers"))
    yield found
    found.close()


def test_every_alert_has_a_fault() -> None:
    assert {fault.alert for fault in FAULTS} == set(rules())


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_fires_its_alert_and_no_record_is_without_an_outcome(
    fault: AlertFault, servers: Servers, tmp_path: Path
) -> None:
    with (
        _state_folder(tmp_path, small=fault.small_disk),
        monitored(servers, tmp_path, fault.alert, fault.durations, event_clock=fault.event_clock) as world,
    ):
        with fault.strike(world):
            seconds = world.seconds_until_fired(fault.alert)
            print(f"{fault.name}: fired {seconds:.0f} s after the fault")
            [alert] = [alert for alert in world.prometheus.alerts() if alert.name == fault.alert]
            assert world.pipeline.name in alert.annotations["description"]
        wait_until(
            lambda: fault.alert not in world.prometheus.firing(), "the alert ends", evidence=world.prometheus.alerts
        )
        world.feed.end()
        world.wait_until_read()
        if not fault.residual:
            world.require_no_residual()


@contextmanager
def _state_folder(folder: Path, *, small: bool) -> Iterator[None]:
    """Mount a small disk for the state if the fault needs one; skip the test where none can be mounted."""
    if not small:
        yield
        return
    state = folder / "state"
    state.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_SMALL_DISK}", "tmpfs", str(state)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no small disk can be mounted: {done.stderr.strip()}")
    try:
        yield
    finally:
        # Lazy unmount: a process that was just killed may still hold the disk.
        subprocess.run(["umount", "--lazy", str(state)], check=True)
