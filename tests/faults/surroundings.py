"""Faults outside the driver: in its table, its topic, the server's disk, and the records that others send."""

import json
import random
import re
import shutil
import signal
import threading
import time
import uuid
from pathlib import Path

from confluent_kafka import TopicPartition

from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint
from tests.faults.dedup_workload import WINDOW
from tests.faults.drawn_workload import DrawnTableWorkload
from tests.faults.http_proxy import Exchange, Rule, swallow
from tests.faults.records import PARTITIONS, Event, offset_ranges
from tests.faults.table_workload import TableWorkload
from tests.faults.world import FAULT_SECONDS, START_SECONDS, NotHit, World
from tests.support.partitions import grow_topic, partition_count

# The tables of all workloads.
ROWS = frozenset({"events", "odd", "tens"})
# The most inserts that pass before a fault strikes; a batch here makes about ten.
SKIPPED = 20
_LARGE = 5_000_000  # bytes of a record's text
_DEEP, _DIGITS = 100_000, 1_000_000  # nested brackets; digits of a number
_SHORT_TIMEOUT = 3  # seconds without a server after which this driver gives up
# seconds; Spark waits two minutes for records that it expects before it fails
_MISSED_SECONDS = 240.0
_DAY_MS = 86_400_000
# Fewer blocks than a batch of the records that arrived while the driver was stopped.
_BLOCKS = 8
# Compact a segment as soon as it is closed, and close segments early.
_COMPACTION = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}


def part_lost(world: World, draw: random.Random) -> int:
    """Simulate a server crash between storing an insert's token and committing its part."""
    death = _DeathBeforePart(world, draw.randrange(SKIPPED))
    world.servers.clickhouse_proxy.fail(Rule(death.act, ROWS, times=10_000))
    died = death.died.wait(FAULT_SECONDS)
    world.servers.clickhouse_proxy.behave()
    if not died:
        raise NotHit
    time.sleep(draw.uniform(0, 2))
    world.servers.clickhouse.start()
    world.servers.wait_for_clickhouse()
    return 1


class _DeathBeforePart:
    """Serializes inserts to know the parts of each; kills the server in the chosen insert and removes its parts."""

    def __init__(self, world: World, skip: int) -> None:
        self._world, self._skip = world, skip
        self._one_by_one = threading.Lock()
        self.died = threading.Event()
        world.client.command(f"SYSTEM STOP MERGES {world.name}.events")

    def act(self, exchange: Exchange) -> None:
        with self._one_by_one:
            if self.died.is_set():
                exchange.answer(exchange.forward())
                return
            before = self._parts()
            answer = exchange.forward()
            added = self._parts() - before
            self._skip -= 1
            if self._skip >= 0 or not added:
                exchange.answer(answer)
                return
            self._world.servers.clickhouse.kill()
            for part in added:
                shutil.rmtree(part)
            self.died.set()
        exchange.hang_up()

    def _parts(self) -> set[Path]:
        query = f"SELECT path FROM system.parts WHERE active AND database = '{self._world.name}' AND table = 'events'"
        return {Path(path) for (path,) in self._world.client.query(query).result_rows}


def table_exchanged(world: World, draw: random.Random) -> int:
    """Kill the driver at an insert, and let a copy of the table take its place, which has its rows and no tokens."""
    hits = world.apply_rule(world.killing(ROWS, draw.randrange(SKIPPED), applied=draw.random() < 0.5))
    world.driver.wait()
    _drawn(world).exchange(world.client, with_window=draw.random() < 0.5)
    world.replace_driver()
    return hits


def exchanged_while_running(world: World, draw: random.Random) -> int:
    """Exchange the table between two inserts, then lose answers: in that batch, or in one of the next."""
    pids = world.driver.all
    world.driver.signal(signal.SIGSTOP, pids)
    try:
        running = (
            f"SELECT count() FROM system.processes WHERE current_database = '{world.name}' AND query_kind = 'Insert'"
        )
        world.until(lambda: not world.client.query(running).result_rows[0][0], "no insert is running")
        _drawn(world).exchange(world.client, with_window=False)
    finally:
        world.driver.signal(signal.SIGCONT, pids)
    return world.apply_rule(Rule(swallow, ROWS, draw.randrange(SKIPPED), times=2))


def window_reset(world: World, draw: random.Random) -> int:
    """Reset the table's deduplication window at any moment, then lose answers."""
    time.sleep(draw.uniform(0, 1))
    world.client.command(f"ALTER TABLE {world.name}.events RESET SETTING non_replicated_deduplication_window")
    return world.apply_rule(Rule(swallow, ROWS, draw.randrange(SKIPPED), times=2))


def row_deleted(world: World, draw: random.Random) -> int:
    """Kill the driver behind an insert, delete one of its rows, and restart ClickHouse: the row must stay deleted."""
    hits = world.apply_rule(world.killing(ROWS, draw.randrange(SKIPPED), applied=True))
    world.driver.wait()
    _drawn(world).delete_newest_row(world.client)
    world.servers.clickhouse.kill()
    world.servers.clickhouse.start()
    world.servers.wait_for_clickhouse()
    world.replace_driver()
    return hits


def _drawn(world: World) -> DrawnTableWorkload:
    assert isinstance(world.workload, DrawnTableWorkload)
    return world.workload


def view_appears(world: World, draw: random.Random) -> int:
    """Create a view and kill the driver after an insert: the view must not receive the batch's rows twice.

    A view whose table has no deduplication window is found by the next batch.
    """
    name = f"{world.name}.v{uuid.uuid4().hex[:6]}"
    # With other writers, a view whose table has no deduplication window is rejected.
    remembers = isinstance(world.workload, TableWorkload) or draw.random() < 0.5
    world.client.command(f"CREATE TABLE {name} (id String) ENGINE = MergeTree ORDER BY id {WINDOW * remembers}")
    world.client.command(
        f"CREATE MATERIALIZED VIEW {name}_view TO {name} AS SELECT id FROM {world.name}.{world.workload.own_rows}"
    )
    begun = world.batches
    if not remembers:
        world.until(lambda: world.batches > begun + 1, "a batch is done that was begun behind the view")
    world.add_final_check(lambda: _view_differences(world, name))

    hits = world.apply_rule(world.killing(ROWS, draw.randrange(SKIPPED), applied=True))
    world.replace_driver()
    return hits


def _view_differences(world: World, name: str) -> list[str]:
    """Return surplus rows behind the view, or its missing last row; then drop the view."""
    both = (
        f"SELECT id, countIf(t), countIf(NOT t) FROM (SELECT id, true AS t FROM {world.name}.events UNION ALL "
        f"SELECT id, false AS t FROM {name}) GROUP BY id HAVING countIf(NOT t) > countIf(t) LIMIT 3"
    )
    doubled = world.client.query(both).result_rows
    ends = f"SELECT count() FROM {name} WHERE id = 'last {world.repetitions - 1}'"
    last = world.client.query(ends).result_rows[0][0]
    world.client.command(f"DROP TABLE {name}_view SYNC")
    world.client.command(f"DROP TABLE {name} SYNC")
    wrong = [f"behind the view are too many rows: {doubled}"] if doubled else []
    return wrong if last else [*wrong, "the view did not get the last row"]


def partitions_grow(world: World, draw: random.Random) -> int:
    """Add a partition to the topic, with events."""
    topic = world.workload.topics()[0]
    time.sleep(draw.uniform(0, 2))
    count = partition_count(world.admin, topic)
    grow_topic(world.admin, topic, count + 1)
    events = [
        Event(topic, "", json.dumps({"id": f"grown {count}-{index % 150}", "n": index, "text": ""}).encode(), count)
        for index in range(200)
    ]
    world.send(events)
    return 1


def retention(world: World, draw: random.Random) -> int:
    """Kill the driver, and delete the records that the ledger has counted."""
    time.sleep(draw.uniform(0, 2))
    world.keep_records()
    world.driver.kill(world.driver.all)
    read: dict[tuple[str, int], int] = {}
    for (offsets,) in world.client.query(f"SELECT offsets FROM {world.name}.glassflow_ledger").result_rows:
        for topic, partition, those in offset_ranges(offsets):
            read[topic, partition] = max(read.get((topic, partition), 0), those.stop)
    for deleted in world.admin.delete_records([TopicPartition(*at, offset) for at, offset in read.items()]).values():
        deleted.result(30)
    world.replace_driver()
    return 1


def topic_deleted(world: World, draw: random.Random) -> int:
    """Delete the topic of a driver that has read all of it or still reads: the driver must end with a reason."""
    (topic,) = world.workload.topics()
    time.sleep(draw.uniform(0, 2))
    pids = world.driver.all if draw.random() < 0.5 else []
    world.driver.signal(signal.SIGSTOP, pids)
    world.end_feed()
    world.keep_records()
    world.admin.delete_topics([topic])[topic].result(30)
    world.driver.signal(signal.SIGCONT, pids)
    world.until(lambda: world.driver.code is not None, "the driver ends", _MISSED_SECONDS)
    _require_reason(world, f"topic {topic} does not exist on .* any more: it was deleted after ")
    return 1


def compacted(world: World, draw: random.Random) -> int:
    """Kill the driver after an insert of a batch, and let compaction remove some of the batch's records."""
    assert world.driver.stop() == 0, world.log_tail()
    time.sleep(draw.uniform(0, 1))
    world.end_feed()
    kept = world.keep_records()
    world.change_topic(_COMPACTION)
    world.driver = world.new_driver()
    hits = world.apply_rule(world.killing(ROWS, draw.randrange(_BLOCKS), applied=True), seconds=START_SECONDS)
    world.until(lambda: _compacts(world, kept), "some records are compacted away")
    world.replace_driver()
    world.until(lambda: world.driver.code is not None, "the driver ends")
    _require_reason(world, r"batch \d+, which was in flight .* records when it was started .*: the topic is compacted")
    return hits


def _compacts(world: World, kept: int) -> bool:
    """Send records, which close the current segments; return whether some older records are gone."""
    name = uuid.uuid4().hex
    topic, key = world.workload.topics()[0], f"segment {name}"
    world.send(
        [Event(topic, key, json.dumps({"id": key, "n": 1, "text": ""}).encode(), at) for at in range(PARTITIONS)]
    )
    return world.records_left() < kept


def _require_reason(world: World, pattern: str) -> None:
    output = world.log.read_text(errors="replace")
    assert re.search(pattern, output), f"the driver does not say why it ended: {world.log_tail()}"


def clock_set_right(world: World, draw: random.Random) -> int:
    """Date the last batch a day ahead: the next start must fail until the user accepts the clock."""
    time.sleep(draw.uniform(0, 2))
    assert world.driver.stop() == 0, world.log_tail()
    checkpoint = Checkpoint(world.state / world.name / "checkpoint")
    last = checkpoint.last_committed()
    assert last is not None
    checkpoint.record(last.model_copy(update={"batch_time_ms": last.batch_time_ms + _DAY_MS}))
    read = world.read
    world.driver = world.new_driver()
    world.until(lambda: world.driver.code is not None, "the driver ends")
    _require_reason(world, "the clock of this machine is implausible")
    assert world.read == read, "a batch was written by a clock that was not believed"
    world.driver = world.new_driver("--accept-clock")
    return 1


def long_outage(world: World, draw: random.Random) -> int:
    """Close ClickHouse's port for longer than the driver waits: the driver ends, and the next one continues."""
    assert world.driver.stop() == 0, world.log_tail()
    begun = world.batches
    world.driver = world.new_driver("--timeout", str(_SHORT_TIMEOUT))
    world.until(lambda: world.batches > begun, "the driver with little patience is at work", START_SECONDS)
    time.sleep(draw.uniform(0, 1))
    world.servers.clickhouse_proxy.refuse()
    try:
        world.until(lambda: world.driver.code is not None, "the driver has no more patience")
    finally:
        world.servers.clickhouse_proxy.accept()
    world.replace_driver()
    return 1


def large_records(world: World, draw: random.Random) -> int:
    """Send some records of 5 MB, one of them a duplicate."""
    assert world.feed
    topic, number = world.workload.topics()[0], world.repetitions
    for index in (0, 1, 2, 1):
        time.sleep(draw.uniform(0, 0.5))
        event = {"id": f"large {number}-{index}", "n": index, "text": chr(97 + index) * _LARGE}
        world.feed.add(Event(topic, f"large {number}", json.dumps(event).encode()))
    return 4


def hostile_records(world: World, draw: random.Random) -> int:
    """Send records made to crash the driver or to block a batch; the last one is valid and becomes a row."""
    assert world.feed
    topic, number = world.workload.topics()[0], world.repetitions
    digits = b"1" * _DIGITS
    harmful = (b"[" * _DEEP + b"]" * _DEEP, b'{"a":' * _DEEP + b"1" + b"}" * _DEEP, digits, b'"' + digits + b'"')
    for index, more in enumerate(harmful):
        time.sleep(draw.uniform(0, 0.5))
        event = json.dumps({"id": f"hostile {number}-{index}", "n": index, "text": ""}).encode()
        world.feed.add(Event(topic, f"hostile {number}", event[:-1] + b', "more": ' + more + b"}"))
    return len(harmful)


def jvm_hangs(world: World, draw: random.Random) -> int:
    """Stop the JVM until `status` reports STALLED; then kill and restart the driver, as the sensor would."""
    time.sleep(draw.uniform(0, 2))
    if world.driver.jvm is None:
        raise NotHit
    world.driver.signal(signal.SIGSTOP, [world.driver.jvm])
    world.until(lambda: world.status()["state"] == "STALLED", "status says STALLED")
    world.driver.kill(world.driver.all)
    world.replace_driver()
    return 1


def jvm_paused(world: World, draw: random.Random) -> int:
    """Stop the JVM alone for a while; its Python process and workers continue."""
    time.sleep(draw.uniform(0, 2))
    if world.driver.jvm is None:
        raise NotHit
    pids = [world.driver.jvm]
    world.driver.signal(signal.SIGSTOP, pids)
    time.sleep(draw.uniform(0, 4))
    world.driver.signal(signal.SIGCONT, pids)
    return 1
