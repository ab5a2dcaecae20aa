"""The faults of a cluster: what each does to hosts, networks and the object store, at a moment drawn from its seed."""

import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from tests.cluster.fault_world import SILENT_SECONDS, ClusterWorld, StoreReads, StoreWrites, executors_of
from tests.cluster.hosts import Host
from tests.faults.http_proxy import Act, Answer, Exchange, Rule, swallow
from tests.faults.kinds import Inject, Kind, in_world
from tests.faults.surroundings import ROWS, SKIPPED
from tests.faults.world import START_SECONDS, NotHit

CLUSTER = "cluster"
# seconds; some cuts are longer than an executor may be silent, most are not
_LONGEST_CUT = 1.3 * SILENT_SECONDS
_BACKLOG_SECONDS = 3
# About as long as the clients of the store try again, and longer.
_GONE_SECONDS = (40, 90)
_DELAY_SECONDS = 0.3
# Bytes a second; a batch of a few hundred records sends more than that.
_SLOWEST, _LESS_SLOW = 60_000, 400_000


# Returns a fault of these worlds as one of any world.
_here = partial(in_world, ClusterWorld)


def _worker_lost(world: ClusterWorld, draw: random.Random) -> int:
    """Lose the host of an executor that inserts; it comes back empty."""
    lost: list[Host] = []

    def act(exchange: Exchange, worker: Host) -> None:
        if draw.random() < 0.5:
            exchange.forward()
        worker.lose_power()
        lost.append(worker)
        exchange.hang_up()

    _at_an_insert(world, draw, act)
    time.sleep(draw.uniform(0, _LONGEST_CUT))
    for host in lost:
        host.cut(off=False)
        world.cluster.spark.start_worker(host)
    return len(lost)


def _all_workers_lost(world: ClusterWorld, draw: random.Random) -> int:
    """Lose the hosts of all executors at once; they come back empty, one after the other."""
    workers = world.cluster.workers

    def act(exchange: Exchange, _: Host) -> None:
        if draw.random() < 0.5:
            exchange.forward()
        for worker in workers:
            worker.lose_power()
        exchange.hang_up()

    _at_an_insert(world, draw, act)
    for host in workers:
        time.sleep(draw.uniform(0, _LONGEST_CUT / 2))
        host.cut(off=False)
        world.cluster.spark.start_worker(host)
    return len(workers)


def _executor_killed(world: ClusterWorld, draw: random.Random) -> int:
    """Kill the executor that inserts, with its Python workers."""

    def act(exchange: Exchange, worker: Host) -> None:
        if draw.random() < 0.5:
            exchange.forward()
        world.driver.kill(executors_of(worker))
        exchange.hang_up()

    return _at_an_insert(world, draw, act)


def _at_an_insert(world: ClusterWorld, draw: random.Random, strike: Callable[[Exchange, Host], None]) -> int:
    """Act on one of the next inserts of rows, all of which are executors'; return how many it was."""

    def act(exchange: Exchange) -> None:
        worker = world.worker_of(exchange)
        assert worker is not None, f"{exchange.client} has inserted rows"
        strike(exchange, worker)

    return world.apply_rule(Rule(act, ROWS, draw.randrange(SKIPPED)))


def _driver_lost(world: ClusterWorld, draw: random.Random) -> int:
    """Lose the driver's host in a batch while more records wait; start a driver on the other host."""
    processes = world.driver.all
    world.driver.signal(signal.SIGSTOP, processes)
    time.sleep(_BACKLOG_SECONDS)
    world.driver.signal(signal.SIGCONT, processes)
    host = world.driver.host

    def act(exchange: Exchange) -> None:
        if draw.random() < 0.5:
            exchange.forward()
        host.lose_power()
        exchange.hang_up()

    hits = world.apply_rule(Rule(act, ROWS, draw.randrange(SKIPPED)))
    assert world.unread > 0, "no record waits"
    begun = world.batches
    world.replace_driver()
    # Executors of the lost driver may insert meanwhile.
    world.until(lambda: world.batches > begun, "the driver on the other host has written a batch", START_SECONDS)
    host.cut(off=False)
    return hits


def _cut(ends: Callable[[ClusterWorld, random.Random], tuple[Sequence[Host], Sequence[Host]]]) -> Inject:
    """Cut the hosts of two kinds from each other at any moment, for some seconds."""

    def inject(world: ClusterWorld, draw: random.Random) -> int:
        some, others = ends(world, draw)
        _moment(draw)
        before = _resent([*some, *others])
        with _cut_from_each_other([(one, other) for one in some for other in others]):
            time.sleep(draw.uniform(1, _LONGEST_CUT))
            hits = _resent([*some, *others]) - before
        if not hits:
            raise NotHit
        return hits

    return _here(inject)


def _resent(hosts: Sequence[Host]) -> int:
    """Return how many packets these hosts have sent again, which they do when nobody confirms them."""
    return sum(host.resent() for host in hosts)


@contextmanager
def _cut_from_each_other(pairs: Sequence[tuple[Host, Host]]) -> Iterator[None]:
    for one, other in pairs:
        one.cut_from(other, off=True)
    try:
        yield
    finally:
        for one, other in pairs:
            one.cut_from(other, off=False)


def _driver_and(name: str) -> Inject:
    return _cut(lambda world, _: ([world.driver.host], [world.cluster.network[name]]))


def _executors_and(name: str) -> Inject:
    """One worker, or all."""
    return _cut(lambda world, draw: (_some_workers(world, draw), [world.cluster.network[name]]))


def _some_workers(world: ClusterWorld, draw: random.Random) -> Sequence[Host]:
    workers = world.cluster.workers
    return draw.sample(workers, draw.randint(1, len(workers)))


def _slow_network(hosts: Callable[[ClusterWorld, random.Random], Sequence[Host]]) -> Inject:
    """Limit what some hosts send, for some seconds."""

    def inject(world: ClusterWorld, draw: random.Random) -> int:
        slow = hosts(world, draw)
        _moment(draw)
        for host in slow:
            host.slow_down(draw.randint(_SLOWEST, _LESS_SLOW))
        time.sleep(draw.uniform(1, _LONGEST_CUT))
        for host in slow:
            host.speed_up()
        return len(slow)

    return _here(inject)


def _slow_requests(set_delay: Callable[[ClusterWorld, float], None]) -> Inject:
    """Delay each request, or each piece of data, to a server, for some seconds."""

    def inject(world: ClusterWorld, draw: random.Random) -> int:
        _moment(draw)
        set_delay(world, draw.uniform(_DELAY_SECONDS / 10, _DELAY_SECONDS))
        time.sleep(draw.uniform(1, _LONGEST_CUT))
        set_delay(world, 0)
        return 1

    return _here(inject)


def _slow_clickhouse(world: ClusterWorld, seconds: float) -> None:
    world.servers.clickhouse_proxy.change = _delay(seconds)


def _slow_kafka(world: ClusterWorld, seconds: float) -> None:
    world.servers.kafka_proxy.delay = seconds


def _slow_store(world: ClusterWorld, seconds: float) -> None:
    world.servers.store_proxy.change = _delay(seconds)


def _delay(seconds: float) -> Callable[[Exchange], None]:
    def change(_: Exchange) -> None:
        time.sleep(seconds)

    return change


def _store_refuses(world: ClusterWorld, draw: random.Random) -> int:
    _moment(draw)
    world.servers.store_proxy.refuse()
    time.sleep(draw.uniform(1, _LONGEST_CUT))
    world.servers.store_proxy.accept()
    return 1


def _on_write(act: Callable[[Exchange, random.Random], None]) -> Inject:
    """Act on some of the next writes to the store."""

    def inject(world: ClusterWorld, draw: random.Random) -> int:
        struck: Act = lambda exchange: act(exchange, draw)  # noqa: E731
        rule = StoreWrites(struck, skip=draw.randrange(SKIPPED), times=draw.randint(1, 5))
        return world.apply_rule(rule, world.servers.store_proxy)

    return _here(inject)


def _error(status: int, code: str) -> Answer:
    """Return an error of S3."""
    return Answer(status, {"Content-Type": "application/xml"}, f"<Error><Code>{code}</Code></Error>".encode())


_INTERNAL_ERROR, _SLOW_DOWN = _error(500, "InternalError"), _error(503, "SlowDown")


def _status(answer: Answer) -> Inject:
    """Answer some writes by an error of S3, with or without executing them."""

    def act(exchange: Exchange, draw: random.Random) -> None:
        if draw.random() < 0.5:
            exchange.forward()
        exchange.answer(answer)

    return _on_write(act)


def _store_gone(world: ClusterWorld, draw: random.Random) -> int:
    """Close the store's port until the driver ends, or for some time longer than it should be patient."""
    _moment(draw)
    world.servers.store_proxy.refuse()
    deadline = time.monotonic() + draw.uniform(*_GONE_SECONDS)
    while world.driver.code is None and time.monotonic() < deadline:
        time.sleep(1)
    world.servers.store_proxy.accept()
    return 1


def _reads_fail(world: ClusterWorld, draw: random.Random) -> int:
    """Kill an executor, so that its keys are read from the store again, which answers many reads by errors."""
    _executor_killed(world, draw)

    def act(exchange: Exchange) -> None:
        if draw.random() < 0.3:
            exchange.hang_up()
        else:
            exchange.answer(draw.choice([_INTERNAL_ERROR, _SLOW_DOWN]))

    return world.apply_rule(StoreReads(act, times=draw.randint(1, 8)), world.servers.store_proxy)


def _moment(draw: random.Random) -> None:
    """Sleep for a random time, in which some batches complete."""
    time.sleep(draw.uniform(0, 3))


KINDS = (
    Kind("no fault", "nothing: the reference for the other kinds", lambda *_: 1),
    Kind(
        "worker's host lost", "all processes and the disk of a worker's host are gone in an insert, nobody is told",
        _here(_worker_lost),
    ),
    Kind("all workers lost", "the same of both workers' hosts at once", _here(_all_workers_lost)),
    Kind(
        "driver's host lost", "the same of the driver's host, while records wait; a driver starts on another host",
        _here(_driver_lost), dies=True,
    ),
    Kind(
        "executor killed", "kill -9 of an executor and its Python workers in an insert, applied or not",
        _here(_executor_killed),
    ),
    Kind("cut: driver, ClickHouse", "no packet passes between these hosts", _driver_and("clickhouse")),
    Kind("cut: driver, store", "the same", _driver_and("store")),
    Kind("cut: driver, Kafka", "the same", _driver_and("kafka")),
    Kind("cut: executors, ClickHouse", "the same, for one worker's host or both", _executors_and("clickhouse")),
    Kind("cut: executors, store", "the same", _executors_and("store")),
    Kind("cut: executors, Kafka", "the same", _executors_and("kafka")),
    Kind(
        "cut: driver, executors", "the same",
        _cut(lambda world, draw: ([world.driver.host], _some_workers(world, draw))),
    ),
    Kind(
        "driver's network slow", f"its host sends {_SLOWEST // 1000} to {_LESS_SLOW // 1000} kB a second",
        _slow_network(lambda world, _: [world.driver.host]),
    ),
    Kind("workers' network slow", "the same for one worker's host or both", _slow_network(_some_workers)),
    Kind("ClickHouse slow", "each request takes up to 0.3 s longer", _slow_requests(_slow_clickhouse)),
    Kind("Kafka slow", "each piece of data takes up to 0.3 s longer", _slow_requests(_slow_kafka)),
    Kind("store slow", "each request takes up to 0.3 s longer", _slow_requests(_slow_store)),
    Kind("store refuses", "its port is closed and all connections are reset", _here(_store_refuses)),
    Kind("store: 500", "writes are answered by 500, applied or not", _status(_INTERNAL_ERROR)),
    Kind("store: 503", "writes are answered by 503 Slow Down, applied or not", _status(_SLOW_DOWN)),
    Kind(
        "store: reads fail", "an executor is killed, and reads are answered by 500, 503 or a reset", _here(_reads_fail)
    ),
    Kind("store gone", "its port is closed for 40 to 90 s; the driver may end by that", _here(_store_gone), dies=True),
    Kind("store: answer lost", "writes are applied, their connections are reset", _on_write(lambda x, _: swallow(x))),
)  # fmt: skip
