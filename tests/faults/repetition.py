"""A repetition: a running pipeline, one fault at a moment drawn from the seed, and the resulting differences."""

import random
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tests.faults.dedup_workload import DedupWorkload
from tests.faults.drawn_workload import DrawnTableWorkload
from tests.faults.join_workload import JoinWorkload
from tests.faults.keyed_workload import KeyedWorkload
from tests.faults.kinds import (
    AVRO,
    COPIED,
    DEDUPLICATION,
    DRAWN,
    JOIN,
    KEYED,
    OTLP,
    PROTOBUF,
    ROUTED,
    SHARED,
    SMALL_DISK,
    TABLE,
    Kind,
)
from tests.faults.otlp_workload import OtlpWorkload
from tests.faults.records import Workload
from tests.faults.routed_workload import CopiedWorkload, RoutedWorkload
from tests.faults.schema_workloads import AvroWorkload, ProtobufWorkload
from tests.faults.servers import Servers
from tests.faults.shared_workload import SharedWorkload
from tests.faults.table_workload import TableWorkload
from tests.faults.world import NotHit, World

WORKLOADS: dict[str, type[Workload]] = {
    DEDUPLICATION: DedupWorkload, TABLE: TableWorkload, JOIN: JoinWorkload, SHARED: SharedWorkload,
    AVRO: AvroWorkload, PROTOBUF: ProtobufWorkload, ROUTED: RoutedWorkload, COPIED: CopiedWorkload,
    KEYED: KeyedWorkload, OTLP: OtlpWorkload, DRAWN: DrawnTableWorkload,
}  # fmt: skip
# Enough for the state of one pass, with little to spare.
_SMALL_DISK = "192m"
_TRIES = 3


@dataclass(frozen=True)
class Outcome:
    """The outcome of a repetition: how often the fault struck, and what was wrong."""

    kind: str
    workload: str
    seed: int
    hits: int
    wrong: tuple[str, ...]


def run_pass(
    servers: Servers, folder: Path, workload: str, repetitions: Sequence[tuple[Kind, int]]
) -> Iterator[Outcome]:
    """Run repetitions one after the other on one pipeline; stop at the first that goes wrong.

    All kinds of a pass have the same `apart`; a kind that ends the pipeline is alone in its pass.
    """
    first, seed = repetitions[0]
    # The first repetition's seed draws the table.
    make = partial(DrawnTableWorkload, seed=seed) if workload == DRAWN else WORKLOADS[workload]
    with _state(folder, small=first.apart == SMALL_DISK) as state:
        yield from repeat_in(World(servers, folder, make, state), workload, repetitions)


def repeat_in(world: World, workload: str, repetitions: Sequence[tuple[Kind, int]]) -> Iterator[Outcome]:
    """Run repetitions one after the other on the pipeline of a world, which ends; stop at the first that goes wrong."""
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
            yield Outcome(kind.name, workload, seed, 1, (f"stopped with {code}: {world.log_tail()}",))
    finally:
        world.end()


def repeat(world: World, kind: Kind, workload: str, seed: int) -> Outcome:
    """Run one repetition; retry with more events when the fault found nothing to act on."""
    draw = random.Random(f"{kind.name} {workload} {seed}")
    for attempt in range(_TRIES):
        world.begin(f"{kind.name} {seed} {attempt}")
        try:
            hits, failed = kind.inject(world, draw), []
        except NotHit:
            hits, failed = 0, []
        except AssertionError as error:
            hits, failed = 1, [str(error)]
        # A fault that stops a server restarts it itself; a server that is still down here is an error.
        failed += world.servers.restart_ended()
        wrong = failed + (
            _ended(world) if hits and kind.ends else world.wait_and_compare(dies=kind.dies, seconds=kind.patience)
        )
        if hits or wrong:
            return Outcome(kind.name, workload, seed, hits, tuple(wrong))
    return Outcome(kind.name, workload, seed, 0, ("the fault found nothing to act on",))


def _ended(world: World) -> list[str]:
    """Return what is wrong with a pipeline that had to end, and with its data."""
    left = world.differences_where_it_ended() + world.run_final_checks()
    return left if world.driver.code == 1 else [f"the driver's code is {world.driver.code}, not 1", *left]


@contextmanager
def _state(folder: Path, *, small: bool) -> Iterator[Path | None]:
    """Mount a small disk for the state if the fault needs one."""
    if not small:
        yield None
        return
    disk = folder / "small disk"
    disk.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SMALL_DISK}", "tmpfs", disk], check=True)
    try:
        yield disk
    finally:
        # Lazy unmount: a process that was just killed may still hold the disk.
        subprocess.run(["umount", "--lazy", disk], check=True)
