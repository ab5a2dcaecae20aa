"""The kinds of faults: what each does to the real processes, at a moment drawn from the repetition's seed."""

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from tests.faults import surroundings
from tests.faults.http_proxy import Answer, Exchange, Rule, exception, failure, late_exception, slowly, swallow
from tests.faults.join_workload import JoinWorkload
from tests.faults.servers import Servers
from tests.faults.surroundings import ROWS, SKIPPED
from tests.faults.world import COMPLETE_SECONDS, START_SECONDS, NotHit, World

DEDUPLICATION, TABLE, JOIN, SHARED = "deduplication", "table", "join", "shared"
AVRO, PROTOBUF, ROUTED, COPIED = "avro", "protobuf", "routed", "copied"
KEYED, OTLP, DRAWN = "keyed", "otlp", "drawn"
# The workloads that differ from the first one in a single stage.
VARIED = (AVRO, PROTOBUF, ROUTED, COPIED, KEYED, OTLP, DRAWN)
_ALL = frozenset({DEDUPLICATION, TABLE, JOIN, SHARED, *VARIED})
_NO_JOIN = frozenset({DEDUPLICATION, TABLE})
# Faults of the driver's processes, which are others where a JVM is shared.
_OF_PROCESSES = frozenset({DEDUPLICATION, SHARED})
SMALL_DISK = "a small disk"

OneWorld = TypeVar("OneWorld", bound=World)

# Rebuilding the state of a pipeline with three tables takes more than five minutes on a busy machine.
_REBUILD_SECONDS = 3 * COMPLETE_SECONDS

# Returns how many times the fault has struck.
Inject = Callable[[World, random.Random], int]

DEAD_LETTERS, LEDGER = (frozenset({name}) for name in ("glassflow_dead_letters", "glassflow_ledger"))
_INSERTS = (frozenset[str](), ROWS, DEAD_LETTERS, LEDGER)
_TIMES = 3


@dataclass(frozen=True)
class Kind:
    """A kind of fault, and the workloads that it is applied to.

    `dies`: the driver may end by the fault, and is restarted. `apart`: the reason why the fault cannot be combined with
    others. `ends`: the pipeline must end permanently. `patience`: how many seconds its records may take.
    """

    name: str
    does: str
    inject: Inject
    dies: bool = False
    workloads: frozenset[str] = frozenset({DEDUPLICATION})
    apart: str = ""
    ends: bool = False
    patience: float = COMPLETE_SECONDS


def in_world(kind: type[OneWorld], inject: Callable[[OneWorld, random.Random], int]) -> Inject:
    """Return a fault of one kind of world as one of any world."""

    def checked(world: World, draw: random.Random) -> int:
        assert isinstance(world, kind)
        return inject(world, draw)

    return checked


def _on_insert(act: Callable[[Exchange, random.Random], None]) -> Inject:
    """Act on some inserts of rows, dead letters or ledger rows."""

    def inject(world: World, draw: random.Random) -> int:
        tables, skip, times = draw.choice(_INSERTS), draw.randrange(SKIPPED), draw.randint(1, _TIMES)
        if tables in {DEAD_LETTERS, LEDGER}:
            skip %= 3
        return world.apply_rule(Rule(lambda exchange: act(exchange, draw), tables, skip, times))

    return inject


def _answer(make: Callable[[], Answer]) -> Inject:
    """Replace the response by an error, with or without executing the insert."""

    def act(exchange: Exchange, draw: random.Random) -> None:
        if draw.random() < 0.5:
            exchange.forward()
        exchange.answer(make())

    return _on_insert(act)


def _cut_request(exchange: Exchange, draw: random.Random) -> None:
    """Send a part of the request, then reset the connection."""
    exchange.forward_part(draw.random())
    exchange.hang_up()


def _cut_answer(exchange: Exchange, draw: random.Random) -> None:
    """Execute the insert and send a part of the response."""
    exchange.answer_part(exchange.forward(), draw.random())


def _delay(exchange: Exchange, draw: random.Random) -> None:
    slowly(draw.uniform(0.5, 3))(exchange)


def _clickhouse_killed(world: World, draw: random.Random) -> int:
    world.apply_rule(Rule(lambda exchange: _kill_server(world, exchange, draw), skip=draw.randrange(SKIPPED)))
    _moment(draw)
    world.servers.clickhouse.start()
    world.servers.wait_for_clickhouse()
    return 1


def _kill_server(world: World, exchange: Exchange, draw: random.Random) -> None:
    if draw.random() < 0.5:
        exchange.forward()
    world.servers.clickhouse.kill()
    exchange.hang_up()


def _for_a_moment(begin: Callable[[Servers], None], end: Callable[[Servers], None]) -> Inject:
    """Begin something at any moment, and end it some time later."""

    def inject(world: World, draw: random.Random) -> int:
        _moment(draw)
        begin(world.servers)
        _moment(draw)
        end(world.servers)
        return 1

    return inject


def _start_broker(servers: Servers) -> None:
    servers.broker.start()
    servers.wait_for_kafka()


def _kafka_cut(world: World, draw: random.Random) -> int:
    proxy = world.servers.kafka_proxy
    for _ in range(draw.randint(1, _TIMES)):
        proxy.cut_after(draw.randrange(1, 200_000))
        world.until(lambda: proxy.is_cut, "the connection is cut")
    return 1


def _at_a_moment(victims: Callable[[World], list[int]]) -> Inject:
    """Kill some of the driver's processes at any moment."""

    def inject(world: World, draw: random.Random) -> int:
        _moment(draw)
        found = victims(world)
        if not found:
            raise NotHit
        world.driver.kill(found)
        if world.driver.pid in found or world.driver.jvm is None:
            world.replace_driver()
        return 1

    return inject


def _kill_at(tables: frozenset[str], *, applied: bool) -> Inject:
    """Kill all processes of the driver during an insert, before or after its execution."""

    def inject(world: World, draw: random.Random) -> int:
        hits = world.apply_rule(_killing(world, draw, tables, applied=applied))
        world.replace_driver()
        return hits

    return inject


def _killing(world: World, draw: random.Random, tables: frozenset[str], *, applied: bool) -> Rule:
    """Return a rule that kills the driver during one of the next inserts; a batch has one into the ledger."""
    return world.killing(tables, draw.randrange(3 if tables == LEDGER else SKIPPED), applied=applied)


def _state_lost(world: World, draw: random.Random) -> int:
    """Kill the driver during a batch, remove its state, and let it be rebuilt."""
    hits = world.apply_rule(_killing(world, draw, draw.choice(_INSERTS), applied=draw.random() < 0.5))
    world.lose_state()
    world.replace_driver("--rebuild-state")
    return hits


def _kill_twice(world: World, draw: random.Random) -> int:
    """Kill the driver during a batch, and again while it repeats that batch."""
    hits = _kill_at(ROWS, applied=True)(world, draw)
    again = _killing(world, draw, ROWS, applied=draw.random() < 0.5)
    # In force while the driver starts: the repeated batch is the first thing that it does then.
    hits += world.apply_rule(again, seconds=START_SECONDS)
    world.replace_driver()
    return hits


def _lost_then_killed(world: World, draw: random.Random) -> int:
    """Lose a response, and kill the driver during its retry."""
    hits = world.apply_rule(Rule(swallow, ROWS, draw.randrange(SKIPPED)))
    time.sleep(draw.uniform(0, 0.2))
    world.driver.kill(world.driver.all)
    world.replace_driver()
    return hits


def _driver_paused(world: World, draw: random.Random) -> int:
    _moment(draw)
    pids = world.driver.all
    world.driver.signal(signal.SIGSTOP, pids)
    _moment(draw)
    world.driver.signal(signal.SIGCONT, pids)
    return 1


def _driver_stopped(world: World, draw: random.Random) -> int:
    _moment(draw)
    code = world.driver.stop()
    assert code == 0, f"a stopped driver ends with {code}: {world.log_tail()}"
    world.driver = world.new_driver()
    return 1


def _second_driver(world: World, draw: random.Random) -> int:
    _moment(draw)
    second = world.new_driver()
    code = second.wait()
    assert code == 1, f"a second driver ends with {code}"
    assert "is running already" in world.log.read_text(), world.log_tail()
    return 1


def _disk_full(world: World, draw: random.Random) -> int:
    ballast = world.state / "ballast"
    _moment(draw)
    # Unbuffered, because closing a buffered file would write the rest of the buffer.
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"0" * 65_536)
        except OSError:
            full = True
    time.sleep(draw.uniform(1, 4))
    # A driver that fails must write its error before space is freed.
    if world.driver.code is None:
        _moment(draw)
    ballast.unlink()
    return int(full)


def _strange_clocks(world: World, draw: random.Random) -> int:
    assert isinstance(world.workload, JoinWorkload)
    assert world.feed
    _moment(draw)
    events = list(world.workload.strange_events(world.repetitions))
    draw.shuffle(events)
    for event in events:
        world.feed.add(event)
    return len(events)


def _moment(draw: random.Random) -> None:
    """Sleep for a random time, in which some batches complete."""
    time.sleep(draw.uniform(0, 2))


def _jvm(world: World) -> list[int]:
    return [] if world.driver.jvm is None else [world.driver.jvm]


KINDS = (
    Kind("no fault", "nothing: the reference for the other kinds", lambda *_: 1, workloads=_ALL),
    Kind(
        "ClickHouse refuses", "its port is closed and all connections are reset",
        _for_a_moment(
            lambda servers: servers.clickhouse_proxy.refuse(), lambda servers: servers.clickhouse_proxy.accept()
        ),
    ),
    Kind("request cut", "an insert's connection is cut within its data", _on_insert(_cut_request)),
    Kind("answer cut", "an insert is applied, its answer is cut", _on_insert(_cut_answer)),
    Kind(
        "answer swallowed", "an insert is applied, its connection is reset",
        _on_insert(lambda exchange, _: swallow(exchange)), workloads=_ALL,
    ),
    Kind("answer delayed", "an insert is applied, its answer is delayed up to 3 s", _on_insert(_delay)),
    Kind("status 500", "an insert is answered by 500 without a code, applied or not", _answer(lambda: failure(500))),
    Kind("status 503", "an insert is answered by 503 without a code, applied or not", _answer(lambda: failure(503))),
    Kind(
        "late exception", "an insert is answered by 200 with an exception in its body, applied or not",
        _answer(lambda: late_exception(241, "memory limit exceeded")), workloads=_ALL,
    ),
    Kind(
        "code 252", "an insert is answered by TOO_MANY_PARTS, applied or not",
        _answer(lambda: exception(252, "Too many parts (300). Merges are processing significantly slower")),
    ),
    Kind(
        "code 241", "an insert is answered by MEMORY_LIMIT_EXCEEDED, applied or not",
        _answer(lambda: exception(241, "Memory limit (total) exceeded")),
    ),
    Kind(
        "code 202", "an insert is answered by TOO_MANY_SIMULTANEOUS_QUERIES, applied or not",
        _answer(lambda: exception(202, "Too many simultaneous queries")),
    ),
    Kind(
        "code 242", "an insert is answered by TABLE_IS_READ_ONLY, applied or not",
        _answer(lambda: exception(242, "Table is in readonly mode")),
    ),
    Kind(
        "ClickHouse killed", "kill -9 of the server during an insert, restart on its data",
        _clickhouse_killed, workloads=_ALL,
    ),
    Kind(
        "ClickHouse paused", "SIGSTOP of the server, up to 2 s",
        _for_a_moment(lambda servers: servers.clickhouse.pause(), lambda servers: servers.clickhouse.resume()),
    ),
    Kind(
        "Kafka refuses", "its port is closed and all connections are reset",
        _for_a_moment(lambda servers: servers.kafka_proxy.refuse(), lambda servers: servers.kafka_proxy.accept()),
    ),
    Kind("Kafka cut", "all connections are reset after a number of bytes", _kafka_cut, workloads=_ALL),
    Kind(
        "Kafka held", "no data passes for up to 2 s, connections stay open",
        _for_a_moment(lambda servers: servers.kafka_proxy.hold(), lambda servers: servers.kafka_proxy.release()),
    ),
    Kind(
        "broker killed", "kill -9 of the broker, restart on its data",
        _for_a_moment(lambda servers: servers.broker.kill(), _start_broker), dies=True,
    ),
    Kind(
        "broker paused", "SIGSTOP of the broker, up to 2 s",
        _for_a_moment(lambda servers: servers.broker.pause(), lambda servers: servers.broker.resume()),
    ),
    Kind(
        "driver killed", "kill -9 of the driver's Python process",
        _at_a_moment(lambda world: [world.driver.pid]), dies=True, workloads=_OF_PROCESSES,
    ),
    Kind("JVM killed", "kill -9 of the driver's JVM", _at_a_moment(_jvm), dies=True, workloads=_OF_PROCESSES),
    Kind(
        "workers killed", "kill -9 of Spark's Python workers",
        _at_a_moment(lambda world: world.driver.workers), dies=True, workloads=_OF_PROCESSES,
    ),
    Kind(
        "all killed", "kill -9 of all the driver's processes at once",
        _at_a_moment(lambda world: world.driver.all), dies=True, workloads=_ALL,
    ),
    Kind(
        "killed before an insert", "kill -9 of all processes when a block is sent",
        _kill_at(ROWS, applied=False), dies=True,
    ),
    Kind(
        "killed behind an insert", "kill -9 of all processes when a block is inserted, before the answer",
        _kill_at(ROWS, applied=True), dies=True, workloads=_ALL,
    ),
    Kind(
        "killed in dead letters", "kill -9 of all processes when dead letters are inserted",
        _kill_at(DEAD_LETTERS, applied=True), dies=True,
    ),
    Kind(
        "killed before the ledger", "kill -9 of all processes when the ledger row is sent",
        _kill_at(LEDGER, applied=False), dies=True,
    ),
    Kind(
        "killed behind the ledger", "kill -9 of all processes when the ledger row is inserted",
        _kill_at(LEDGER, applied=True), dies=True, workloads=_ALL,
    ),
    Kind(
        "state lost", "kill -9 of all processes at an insert, state removed; `run --rebuild-state`",
        _state_lost, dies=True, workloads=_NO_JOIN | {ROUTED, COPIED, KEYED, OTLP, DRAWN}, patience=_REBUILD_SECONDS,
    ),
    Kind(
        "killed twice", "kill -9 during a block, and again in the repeated batch",
        _kill_twice, dies=True, workloads=_NO_JOIN | {ROUTED, COPIED, KEYED, OTLP, DRAWN},
    ),
    Kind(
        "lost, then killed", "an answer is lost, and all processes are killed in the retry",
        _lost_then_killed, dies=True, workloads=_OF_PROCESSES,
    ),
    Kind("driver paused", "SIGSTOP of all the driver's processes, up to 2 s", _driver_paused, workloads=_ALL),
    Kind("driver stopped", "Ctrl-C at any moment, then a new start", _driver_stopped, workloads=_OF_PROCESSES),
    Kind(
        "second driver", "another driver is started on the same state: refused", _second_driver,
        workloads=_OF_PROCESSES,
    ),
    Kind("disk full", "the state's disk is full, then has space again", _disk_full, dies=True, apart=SMALL_DISK),
    Kind(
        "part lost", "kill -9 of the server between an insert's token and its part, restart on its data",
        surroundings.part_lost, workloads=frozenset({DEDUPLICATION, DRAWN}),
    ),
    Kind(
        "table exchanged", "kill -9 of all processes at an insert, a copy takes the table's place (EXCHANGE TABLES)",
        surroundings.table_exchanged, dies=True, workloads=frozenset({DRAWN}),
    ),
    Kind(
        "exchanged while running", "a copy without a window takes the table's place, then answers are lost",
        surroundings.exchanged_while_running, dies=True, workloads=frozenset({DRAWN}),
    ),
    Kind(
        "window reset", "the table's deduplication window is reset, then answers are lost", surroundings.window_reset,
        dies=True, workloads=frozenset({DRAWN}),
    ),
    Kind(
        "row deleted", "kill -9 of all processes after an insert, a row is deleted, ClickHouse restarts",
        surroundings.row_deleted, dies=True, workloads=frozenset({DRAWN}),
        apart="a state that was lost cannot be rebuilt",
    ),
    Kind(
        "view appears", "a materialized view is created, then kill -9 of all processes after an insert",
        surroundings.view_appears, dies=True, workloads=_NO_JOIN,
    ),
    Kind(
        "long outage", "ClickHouse's port is closed for longer than the driver waits",
        surroundings.long_outage, dies=True, workloads=_NO_JOIN,
    ),
    Kind(
        "JVM hangs", "SIGSTOP of only the driver's JVM until `status` says STALLED; kill -9 and a new start",
        surroundings.jvm_hangs, dies=True,
    ),
    Kind("JVM paused", "SIGSTOP of only the driver's JVM, up to 4 s", surroundings.jvm_paused),
    Kind(
        "partitions grow", "the topic gets one more partition, with events", surroundings.partitions_grow,
        workloads=_NO_JOIN,
    ),
    Kind(
        "retention", "kill -9 of all processes, and retention removes the read records", surroundings.retention,
        dies=True, apart="a state that was lost cannot be rebuilt", workloads=_NO_JOIN,
    ),
    Kind(
        "clock set right", "the last batch has tomorrow's time: refused until `run --accept-clock`",
        surroundings.clock_set_right, dies=True,
    ),
    Kind(
        "topic deleted", "the topic is deleted while it is read: the pipeline ends with the reason",
        surroundings.topic_deleted, apart="nothing can follow", ends=True,
    ),
    Kind(
        "compacted", "kill -9 of all processes after an insert, compaction removes records of the batch: refused",
        surroundings.compacted, apart="nothing can follow", ends=True,
    ),
    Kind("large records", "some records have 5 MB", surroundings.large_records),
    Kind(
        "hostile records", "100,000 brackets, numbers of a million digits: dead letters", surroundings.hostile_records,
        workloads=_NO_JOIN,
    ),
    Kind("wrong clocks", "some events are of 1970 and of 2099", _strange_clocks, workloads=frozenset({JOIN})),
)  # fmt: skip
