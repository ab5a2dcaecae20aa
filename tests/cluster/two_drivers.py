"""Two drivers of one pipeline on two hosts that share servers and an object store: exactly one goes on.

Run `python -m tests.cluster.two_drivers`: one seed of each kind. A seed begins with a driver on one host. It gets
records, and in their midst something happens to its host or to the other one, and another driver is started there:
processes are suspended, the network is cut, the clock is wrong, or both drivers start at once. Then all is put right
again. One driver must have ended, the other one must have read all records, and no row may be lost or doubled.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import clickhouse_connect
import yaml
from clickhouse_connect.driver.client import Client

from glassflow_dagster.runtime.cache import cache_folder
from tests.cluster.hosts import Host, Network, missing, running_network
from tests.cluster.servers import Servers, running_servers
from tests.e2e.support import Pipeline
from tests.support import definition as v3
from tests.support.waiting import wait_until

HOSTS = ("one", "two")
# A clock may be wrong by a tenth of the window, 6 minutes; beyond that its driver is refused.
WINDOW = "1h"
NEAR_SECONDS, FAR_SECONDS = 120, (480, 7200)
# Of one seed; the newer driver waits for what is cut or suspended no longer than this.
DEADLINE = 180.0
# Blocks of a few rows, so that something can happen between two of them.
BLOCK = 50

# Of the driver's Python process, which checks the clock; its JVM, which gives batches their time, has the right one.
# libfaketime cannot be used: librdkafka hangs with it.
_CLOCK_OFFSET = "TEST_CLOCK_OFFSET"
_WRONG_CLOCK = f"""
import os, time
offset, seconds, nanoseconds = float(os.environ.get("{_CLOCK_OFFSET}", 0)), time.time, time.time_ns
time.time = lambda: seconds() + offset
time.time_ns = lambda: nanoseconds() + round(offset * 1e9)
"""


@dataclass
class Driver:
    """A driver in the foreground of a host."""

    host: Host
    process: Any
    log: Path

    @property
    def is_up(self) -> bool:
        return self.process.poll() is None

    @property
    def is_running(self) -> bool:
        return " is running" in self.log.read_text(errors="replace")

    @property
    def last_line(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def signal(self, number: signal.Signals) -> None:
        for pid in self.host.processes():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue


@dataclass
class World:
    """A pipeline, its servers, and two hosts that may run its driver."""

    folder: Path
    network: Network
    servers: Servers
    name: str = "two_drivers"
    sent: Counter[str] = field(default_factory=Counter)
    _starts: int = 0

    @cached_property
    def client(self) -> Client:
        return clickhouse_connect.get_client(
            host=self.servers.address, port=self.servers.clickhouse_port, autogenerate_session_id=False
        )

    @property
    def file(self) -> Path:
        return self.folder / "pipeline.yaml"

    def prepare(self) -> None:
        self.client.command(f"CREATE DATABASE {self.name}")
        fields = [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}]
        clickhouse = {**v3.clickhouse(self.servers.clickhouse_port, self.name), "host": self.servers.address}
        definition = v3.definition(
            self.name,
            v3.source("events", fields, self.servers.brokers, topic=self.name),
            v3.sink(
                {"id": "String", "n": "Int32"},
                clickhouse,
                table="events",
                max_batch_size=BLOCK,
                max_delay_time="200ms",
                create_table={"order_by": "tuple()"},
            ),
            {"type": "dedup", "source_id": "events", "config": {"keys": ["id"], "time_window": WINDOW}},
        )
        self.file.write_text(yaml.safe_dump(definition))
        self._topic.create_topic()

    @property
    def _topic(self) -> Pipeline:
        return Pipeline(self.folder, self.servers.brokers, self.servers.clickhouse_port, self.name)

    def send(self, draw: random.Random) -> None:
        """Send new events, and some that were sent before."""
        new = [f"k{len(self.sent) + number}" for number in range(draw.randint(200, 1500))]
        ids = new + draw.choices([*self.sent, *new], k=len(new) // 4)
        draw.shuffle(ids)
        self.sent.update(ids)
        self._topic.send([{"id": key, "n": 1} for key in ids])

    def start(self, name: str, clock: float = 0.0) -> Driver:
        """Start a driver on a host, whose disk is empty. clock: seconds by which its clock is ahead."""
        self._starts += 1
        host, log = self.network[name], self.folder / f"driver{self._starts}.log"
        variables = {
            **self.servers.store,
            "GLASSFLOW_STATE": self.servers.state_url,
            "GLASSFLOW_CACHE": str(cache_folder()),
            "PYTHONPATH": f"{self.folder}:{Path(__file__).parents[2]}",
        }
        if clock:
            (self.folder / "sitecustomize.py").write_text(_WRONG_CLOCK)
            variables[_CLOCK_OFFSET] = str(clock)
        command = [
            sys.executable,
            "-m",
            "glassflow_dagster",
            "run",
            str(self.file),
            "--state",
            str(host.disk / "state"),
        ]
        return Driver(host, host.start(command, variables, log), log)

    def epochs(self) -> int:
        return int(self.client.query(f"SELECT count() FROM {self.name}.glassflow_epochs").result_rows[0][0])

    def read(self) -> int:
        rows = self.client.query(f"SELECT sum(read) FROM {self.name}.glassflow_ledger").result_rows
        return int(rows[0][0])

    def problems(self) -> list[str]:
        """Return what is wrong with the table and the ledger, given that all records are read."""
        query = f"SELECT count(), uniqExact(id) FROM {self.name}.events"
        rows, keys = self.client.query(query).result_rows[0]
        sums = "sum(read), sum(written), sum(duplicates), sum(dead_letters)"
        ledger = self.client.query(f"SELECT {sums} FROM {self.name}.glassflow_ledger").result_rows[0]
        total, wanted = self.sent.total(), len(self.sent)
        found = []
        if (rows, keys) != (wanted, wanted):
            found.append(f"{rows} rows of {keys} keys instead of {wanted}")
        if tuple(ledger) != (total, wanted, total - wanted, 0):
            found.append(f"the ledger has {ledger} instead of {(total, wanted, total - wanted, 0)}")
        return found


@dataclass
class Seed:
    """One seed: what happens, drawn from its number."""

    world: World
    number: int
    older: Driver
    other: str
    draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.number)

    def kind(self) -> str:
        """Return what happens: each kind in turn."""
        kinds = [*KINDS]
        return kinds[self.number % len(kinds)]

    def wait_for_another_epoch(self, before: int) -> None:
        wait_until(lambda: self.world.epochs() > before, "the newer driver has begun an epoch", DEADLINE)
        time.sleep(self.draw.uniform(0, 3))


def suspend_older(seed: Seed) -> list[Driver]:
    """Suspend the older driver in its work until the newer one has begun."""
    epochs = seed.world.epochs()
    seed.world.send(seed.draw)
    time.sleep(seed.draw.uniform(0, 0.5))
    seed.older.signal(signal.SIGSTOP)
    newer = seed.world.start(seed.other)
    seed.wait_for_another_epoch(epochs)
    seed.older.signal(signal.SIGCONT)
    return [seed.older, newer]


def suspend_newer(seed: Seed) -> list[Driver]:
    """Suspend the newer driver somewhere in its start, while the older one works."""
    newer = seed.world.start(seed.other)
    time.sleep(seed.draw.uniform(0, 10))
    newer.signal(signal.SIGSTOP)
    seed.world.send(seed.draw)
    time.sleep(seed.draw.uniform(0, 3))
    newer.signal(signal.SIGCONT)
    return [seed.older, newer]


def cut_older(seed: Seed) -> list[Driver]:
    """Cut the older driver off from the servers until the newer one has begun."""
    epochs = seed.world.epochs()
    seed.world.send(seed.draw)
    time.sleep(seed.draw.uniform(0, 0.5))
    seed.older.host.cut(off=True)
    newer = seed.world.start(seed.other)
    seed.wait_for_another_epoch(epochs)
    seed.older.host.cut(off=False)
    return [seed.older, newer]


def cut_newer(seed: Seed) -> list[Driver]:
    """Cut the newer driver off somewhere in its start, while the older one works."""
    newer = seed.world.start(seed.other)
    time.sleep(seed.draw.uniform(0, 10))
    newer.host.cut(off=True)
    seed.world.send(seed.draw)
    time.sleep(seed.draw.uniform(0, 3))
    newer.host.cut(off=False)
    return [seed.older, newer]


def both_at_once(seed: Seed) -> list[Driver]:
    """Lose the host of the older driver in its work, then start one on each host at the same time."""
    seed.world.send(seed.draw)
    time.sleep(seed.draw.uniform(0, 0.5))
    seed.older.host.lose()
    first = seed.world.start(seed.older.host.name)
    time.sleep(seed.draw.choice([0, seed.draw.uniform(0, 2)]))
    return [first, seed.world.start(seed.other)]


def near_clock(seed: Seed) -> list[Driver]:
    """Take over with a clock that is wrong, but not by so much that windows would be."""
    seed.world.send(seed.draw)
    newer = seed.world.start(seed.other, clock=seed.draw.choice([-1, 1]) * seed.draw.uniform(10, NEAR_SECONDS))
    seed.world.send(seed.draw)
    return [seed.older, newer]


def far_clock(seed: Seed) -> list[Driver]:
    """Try to take over with a clock that is wrong by more than the window allows: the older driver goes on."""
    seed.world.send(seed.draw)
    clock = seed.draw.choice([-1, 1]) * seed.draw.uniform(*FAR_SECONDS)
    newer = seed.world.start(seed.other, clock=clock)
    said = lambda: newer.log.read_text(errors="replace")[-2000:]  # noqa: E731
    wait_until(lambda: not newer.is_up, "the driver with the wrong clock has ended", DEADLINE, evidence=said)
    assert "the clock of this machine is implausible" in newer.last_line, newer.last_line
    assert seed.older.is_up, seed.older.last_line
    seed.world.send(seed.draw)
    return [seed.older, newer]


KINDS: Mapping[str, Callable[[Seed], list[Driver]]] = {
    "older suspended": suspend_older,
    "newer suspended": suspend_newer,
    "older cut off": cut_older,
    "newer cut off": cut_newer,
    "both at once": both_at_once,
    "clock wrong by minutes": near_clock,
    "clock wrong by more than the window allows": far_clock,
}


@dataclass(frozen=True)
class Result:
    """The result of one seed: what happened, what was wrong, and the last words of the driver that has ended."""

    number: int
    kind: str
    problems: tuple[str, ...]
    ended: str


def run_seeds(world: World, seeds: range) -> Iterator[Result]:
    """Run the seeds one after the other: the driver that remains is the older one of the next seed."""
    older = world.start(HOSTS[0])
    wait_until(lambda: older.is_running, "the first driver runs", DEADLINE, evidence=lambda: older.last_line)
    for number in seeds:
        other = next(name for name in HOSTS if name != older.host.name)
        seed = Seed(world, number, older, other)
        kind = seed.kind()
        drivers = KINDS[kind](seed)
        total = world.sent.total()
        state = lambda drivers=drivers: "; ".join(f"{d.host.name}: {d.last_line}" for d in drivers)  # noqa: E731
        wait_until(
            lambda drivers=drivers: sum(d.is_up for d in drivers) == 1, f"{kind}: one ended", DEADLINE, evidence=state
        )
        wait_until(lambda total=total: world.read() >= total, f"{kind}: all is read", DEADLINE, evidence=state)
        [older], [ended] = [d for d in drivers if d.is_up], [d for d in drivers if not d.is_up]
        wait_until(lambda older=older: older.is_running, "the other one runs", DEADLINE, evidence=state)
        yield Result(number, kind, tuple(world.problems()), ended.last_line)


@contextmanager
def running_world() -> Iterator[World]:
    """Run servers and hosts while the block runs."""
    with tempfile.TemporaryDirectory(prefix="two-drivers-") as name:
        folder = Path(name)
        with (
            running_network(folder / "network", HOSTS) as network,
            running_servers(folder / "servers", network.address) as servers,
        ):
            world = World(folder, network, servers)
            world.prepare()
            try:
                yield world
            finally:
                for host in network.hosts.values():
                    host.lose()


def main() -> int:
    """Run the seeds; return 1 where one was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.two_drivers", description=__doc__)
    parser.add_argument("--seeds", type=int, default=len(KINDS), help="how many; each kind in turn")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    arguments = parser.parse_args()
    if reason := missing():
        print(f"not possible here: {reason}", file=sys.stderr)
        return 1
    kinds: Counter[str] = Counter()
    wrong = 0
    with running_world() as world:
        for result in run_seeds(world, range(arguments.first, arguments.first + arguments.seeds)):
            kinds[result.kind] += 1
            wrong += bool(result.problems)
            print(
                f"{result.number}: {result.kind}: {'; '.join(result.problems) or 'exact'} ({result.ended[:160]})",
                flush=True,
            )
    print(f"{kinds.total()} seeds, {wrong} wrong: {dict(kinds)}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
