"""Run a deduplicating pipeline for some minutes, with a fault every 20 to 60 seconds: `python -m tests.faults.soak`.

Report whether all results are exact, and the resident memory of the driver's processes after two minutes and at the
end. Faults that end the driver are left out by default, because a new process starts with fresh memory.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.faults.dedup_workload import DedupWorkload
from tests.faults.driver import resident_bytes
from tests.faults.kinds import DEDUPLICATION, KINDS, Kind
from tests.faults.servers import Servers
from tests.faults.world import NotHit, World

_PAUSE = (20, 60)  # seconds between two faults
_BLOCK_ROWS = 5_000
_WARM = 120  # seconds after which the memory should be stable
_MIB = 1024 * 1024


@dataclass
class Memory:
    """Samples the resident memory of a driver's processes once a second: seconds, and MiB per kind of process."""

    world: World
    began: float = field(default_factory=time.monotonic)
    samples: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.ended.wait(1):
            driver = self.world.driver
            kinds = {
                "driver": [driver.pid],
                "JVM": [] if driver.jvm is None else [driver.jvm],
                "workers": driver.workers,
            }
            sizes = {kind: sum(map(_resident, pids)) for kind, pids in kinds.items()}
            self.samples.append((time.monotonic() - self.began, sizes))

    def around(self, second: float) -> dict[str, float]:
        """Return the median over the half minute that ends at a second."""
        found = [sizes for at, sizes in self.samples if second - 30 < at <= second]
        kinds = found[0] if found else {}
        return {kind: statistics.median(sizes[kind] for sizes in found) for kind in kinds}

    def by_minute(self, seconds: float) -> list[dict[str, int]]:
        """Return the medians of the half minutes that end with each minute."""
        minutes = (self.around(60 * minute) for minute in range(1, int(seconds / 60) + 1))
        return [{kind: round(size) for kind, size in sizes.items()} for sizes in minutes]


def _resident(pid: int) -> float:
    try:
        return resident_bytes(pid) / _MIB
    except (OSError, IndexError):
        return 0.0  # the worker has just ended


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--rate", type=int, default=5_000, help="events a second")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    parser.add_argument("--deadly", action="store_true", help="also faults that end the driver")
    arguments = parser.parse_args()
    kinds = [
        kind
        for kind in KINDS
        if DEDUPLICATION in kind.workloads
        and not kind.apart
        # The first ends the driver on purpose; the second would measure the memory of a few large records.
        and kind.name not in {"driver stopped", "large records"}
        and (arguments.deadly or not kind.dies)
    ]
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        servers = Servers(Path(folder) / "servers")
        try:
            world = World(servers, Path(folder), partial(DedupWorkload, block_rows=_BLOCK_ROWS), variables={})
            try:
                found = _soak(world, kinds, arguments)
            finally:
                world.end()
        finally:
            servers.close()
    print(json.dumps(found, indent=1))
    return int(bool(found["wrong"]))


def _soak(world: World, kinds: list[Kind], arguments: argparse.Namespace) -> dict[str, object]:
    draw = random.Random(arguments.seed)
    world.warm_up()
    memory = Memory(world)
    threading.Thread(target=memory.run, daemon=True).start()
    world.begin(f"soak {arguments.seed}", arguments.rate, arguments.rate)
    struck: list[str] = []
    end = time.monotonic() + 60 * arguments.minutes
    while (pause := draw.uniform(*_PAUSE)) < end - time.monotonic():
        time.sleep(pause)
        kind = draw.choice(kinds)
        try:
            kind.inject(world, draw)
        except NotHit:
            continue
        struck.append(kind.name)
        print(time.strftime("%H:%M:%S"), kind.name, flush=True)
    time.sleep(max(0, end - time.monotonic()))
    lasted = time.monotonic() - memory.began
    early, late = (sum(memory.around(second).values()) for second in (_WARM, lasted))
    memory.ended.set()
    wrong = world.wait_and_compare(dies=arguments.deadly)
    return {
        "seed": arguments.seed, "seconds": round(lasted), "events": world.sent, "faults": struck, "wrong": wrong,
        "memory after two minutes, MiB": round(early), "memory at the end, MiB": round(late),
        "ratio": round(late / early, 3) if early else None,
        "memory by minute, MiB": memory.by_minute(lasted),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
