"""A repetition: a pipeline at work, one fault at a moment that the seed draws, and what is wrong afterwards."""

import random
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.faults.dedup_workload import DedupWorkload
from tests.faults.join_workload import JoinWorkload
from tests.faults.kinds import DEDUPLICATION, JOIN, SMALL_DISK, TABLE, Kind
from tests.faults.records import Workload
from tests.faults.servers import Servers
from tests.faults.table_workload import TableWorkload
from tests.faults.world import SETTLE_SECONDS, NotHit, World

WORKLOADS: dict[str, type[Workload]] = {DEDUPLICATION: DedupWorkload, TABLE: TableWorkload, JOIN: JoinWorkload}
# Room for the state of one pass and little more.
_SMALL_DISK = "192m"
_TRIES = 3


@dataclass(frozen=True)
class Outcome:
    """What a repetition came to: how often the fault struck, and what was wrong."""

    kind: str
    workload: str
    seed: int
    hits: int
    wrong: tuple[str, ...]


def run_pass(
    servers: Servers, folder: Path, workload: str, repetitions: Sequence[tuple[Kind, int]]
) -> Iterator[Outcome]:
    """Run repetitions one after the other on one pipeline, and stop at the first that goes wrong.

    Kinds that keep apart from others, for whatever reason, do not go together with them; one that ends the pipeline is
    the only one.
    """
    with _state(folder, small=repetitions[0][0].apart == SMALL_DISK) as state:
        world = World(servers, folder, WORKLOADS[workload], state)
        try:
            try:
                world.warm_up()
            except AssertionError as error:
                kind, seed = repetitions[0]
                yield Outcome(kind.name, workload, seed, 0, (f"the pipeline did not begin: {error}",))
                return
            for kind, seed in repetitions:
                outcome = repeat(world, kind, workload, seed)
                yield outcome
                if outcome.wrong:
                    return
            kind, seed = repetitions[-1]
            code = 0 if kind.ends else world.close()
            if code:
                yield Outcome(kind.name, workload, seed, 1, (f"stopped with {code}: {world.last_words()}",))
        finally:
            world.end()


def repeat(world: World, kind: Kind, workload: str, seed: int, patience: float = SETTLE_SECONDS) -> Outcome:
    """Run one repetition; a fault that found nothing to act on is tried again on more events."""
    draw = random.Random(f"{kind.name} {workload} {seed}")
    for attempt in range(_TRIES):
        world.begin(f"{kind.name} {seed} {attempt}")
        try:
            hits, failed = kind.inject(world, draw), []
        except NotHit:
            hits, failed = 0, []
        except AssertionError as error:
            hits, failed = 1, [str(error)]
        # A fault that takes a server away brings it back itself: the pipeline is not held against one that is gone.
        failed += world.servers.revive()
        wrong = failed + (_ended(world) if hits and kind.ends else world.settle(dies=kind.dies, seconds=patience))
        if hits or wrong:
            return Outcome(kind.name, workload, seed, hits, tuple(wrong))
    return Outcome(kind.name, workload, seed, 0, ("the fault found nothing to act on",))


def _ended(world: World) -> list[str]:
    """Say what is wrong with a pipeline that had to end, and what it left."""
    left = world.differences_where_it_ended() + world.seen_afterwards()
    return left if world.driver.code == 1 else [f"the driver's code is {world.driver.code}, not 1", *left]


@contextmanager
def _state(folder: Path, *, small: bool) -> Iterator[Path | None]:
    """A disk of its own for the state, where the fault is about that."""
    if not small:
        yield None
        return
    disk = folder / "small disk"
    disk.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SMALL_DISK}", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        # Lazily: a process that was killed a moment ago may still hold it.
        subprocess.run(["umount", "--lazy", disk], check=True)
