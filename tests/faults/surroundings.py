"""What happens around a pipeline: to its table, its topic, its server's disk, and in what others send."""

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
from confluent_kafka.admin import NewPartitions

from glassflow_dagster.streaming.checkpoint.checkpoint import Checkpoint
from tests.faults.dedup_workload import WINDOW
from tests.faults.http_proxy import Exchange, Rule
from tests.faults.records import PARTITIONS, Event, offset_ranges
from tests.faults.table_workload import TableWorkload
from tests.faults.world import NotHit, World

ROWS = frozenset({"events"})
# Inserts that pass before a fault strikes, at most: a batch here makes some ten.
SKIPPED = 20
_LARGE = 5_000_000  # bytes of a record's text
_DEEP, _DIGITS = 100_000, 1_000_000  # brackets inside each other; of a number
_SHORT_TIMEOUT = 3  # seconds that a server may be out of reach, where that is to be over soon
_FAULT_SECONDS = 90.0
# Spark waits for records that it has counted on for two minutes before it gives up.
_MISSED_SECONDS = 240.0
_DAY_MS = 86_400_000
# A batch of what has come meanwhile has more than this.
_BLOCKS = 8
# As soon as a segment is closed, and it is closed soon.
_COMPACTION = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}


def part_lost(world: World, draw: random.Random) -> int:
    """Leave on the disk what a server leaves that dies between an insert's token and its part."""
    death = _DeathBeforePart(world, draw.randrange(SKIPPED))
    world.servers.clickhouse_proxy.fail(Rule(death.act, ROWS, times=10_000))
    died = death.died.wait(_FAULT_SECONDS)
    world.servers.clickhouse_proxy.behave()
    if not died:
        raise NotHit
    time.sleep(draw.uniform(0, 2))
    world.servers.clickhouse.start()
    world.servers.wait_for_clickhouse()
    return 1


class _DeathBeforePart:
    """Inserts go one by one, so that what an insert has added is known; the chosen one's parts are removed."""

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


def view_appears(world: World, draw: random.Random) -> int:
    """Make a view, and kill all behind an insert: what it got of the batch must not come twice.

    One whose table remembers nothing is found with the next batch.
    """
    name = f"{world.name}.v{uuid.uuid4().hex[:6]}"
    # Where others write to the table, a view whose table remembers nothing is refused.
    remembers = isinstance(world.workload, TableWorkload) or draw.random() < 0.5
    world.client.command(f"CREATE TABLE {name} (id String) ENGINE = MergeTree ORDER BY id {WINDOW * remembers}")
    world.client.command(
        f"CREATE MATERIALIZED VIEW {name}_view TO {name} AS SELECT id FROM {world.name}.{world.workload.own_rows}"
    )
    begun = world.batches
    if not remembers:
        world.until(lambda: world.batches > begun + 1, "a batch is done that was begun behind the view")
    world.see_afterwards(lambda: _view_differences(world, name))

    hits = world.hit(Rule(lambda exchange: _forward_and_kill(world, exchange), ROWS, draw.randrange(SKIPPED)))
    world.replace_driver()
    return hits


def _forward_and_kill(world: World, exchange: Exchange) -> None:
    exchange.forward()
    world.driver.kill(world.driver.all)
    exchange.hang_up()


def _view_differences(world: World, name: str) -> list[str]:
    """No row more often than the table has it, and the repetition's last one there; removes the view."""
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
    """Give the topic one more partition, with events of its own."""
    topic = world.workload.topics()[0]
    time.sleep(draw.uniform(0, 2))
    count = len(world.admin.list_topics(topic, timeout=30).topics[topic].partitions)
    for grown in world.admin.create_partitions([NewPartitions(topic, count + 1)]).values():
        grown.result(30)
    events = [
        Event(topic, "", json.dumps({"id": f"grown {count}-{index % 150}", "n": index, "text": ""}).encode(), count)
        for index in range(200)
    ]
    world.send(events)
    return 1


def retention(world: World, draw: random.Random) -> int:
    """Kill all, and let the topic lose what the ledger has read."""
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
    """Delete the topic under a driver that has read all of it, or is to read on: it ends, and says why."""
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
    """Kill all behind an insert of a batch, and let compaction take some of its records."""
    assert world.driver.stop() == 0, world.last_words()
    time.sleep(draw.uniform(0, 1))
    world.end_feed()
    kept = world.keep_records()
    world.change_topic(_COMPACTION)
    world.driver = world.new_driver()
    hits = world.hit(Rule(lambda exchange: _forward_and_kill(world, exchange), ROWS, draw.randrange(_BLOCKS)))
    world.until(lambda: _compacts(world, kept), "some records are compacted away")
    world.replace_driver()
    world.until(lambda: world.driver.code is not None, "the driver ends")
    _require_reason(world, r"batch \d+, which was in flight .* records when it was started .*: the topic is compacted")
    return hits


def _compacts(world: World, kept: int) -> bool:
    """Give whether some of the records are gone that were kept; what is sent ends the segment that they are in."""
    name = uuid.uuid4().hex
    topic, key = world.workload.topics()[0], f"segment {name}"
    world.send(
        [Event(topic, key, json.dumps({"id": key, "n": 1, "text": ""}).encode(), at) for at in range(PARTITIONS)]
    )
    return world.records_left() < kept


def _require_reason(world: World, pattern: str) -> None:
    said = world.log.read_text(errors="replace")
    assert re.search(pattern, said), f"the driver does not say why it ended: {world.last_words()}"


def clock_set_right(world: World, draw: random.Random) -> int:
    """Let the last batch be of a clock that was a day ahead: nothing goes on before somebody says that it is right."""
    time.sleep(draw.uniform(0, 2))
    assert world.driver.stop() == 0, world.last_words()
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
    """Close ClickHouse's port for longer than a driver waits: it ends, and the next one goes on."""
    assert world.driver.stop() == 0, world.last_words()
    begun = world.batches
    world.driver = world.new_driver("--timeout", str(_SHORT_TIMEOUT))
    world.until(lambda: world.batches > begun, "the driver with little patience is at work")
    time.sleep(draw.uniform(0, 1))
    world.servers.clickhouse_proxy.refuse()
    try:
        world.until(lambda: world.driver.code is not None, "the driver has no more patience")
    finally:
        world.servers.clickhouse_proxy.accept()
    world.replace_driver()
    return 1


def large_records(world: World, draw: random.Random) -> int:
    """Send some records of 5 MB among the others, one of them a duplicate."""
    assert world.feed
    topic, number = world.workload.topics()[0], world.repetitions
    for index in (0, 1, 2, 1):
        time.sleep(draw.uniform(0, 0.5))
        event = {"id": f"large {number}-{index}", "n": index, "text": chr(97 + index) * _LARGE}
        world.feed.add(Event(topic, f"large {number}", json.dumps(event).encode()))
    return 4


def hostile_records(world: World, draw: random.Random) -> int:
    """Send records that are made to end a driver or to hold a batch up; the last one is a row."""
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
    """Stop the JVM until `status` says that the driver is stalled; then do as the observer does."""
    time.sleep(draw.uniform(0, 2))
    if world.driver.jvm is None:
        raise NotHit
    world.driver.signal(signal.SIGSTOP, [world.driver.jvm])
    world.until(lambda: world.status()["state"] == "STALLED", "status says STALLED")
    world.driver.kill(world.driver.all)
    world.replace_driver()
    return 1


def jvm_paused(world: World, draw: random.Random) -> int:
    """Stop the JVM alone for a while: its Python process and workers go on."""
    time.sleep(draw.uniform(0, 2))
    if world.driver.jvm is None:
        raise NotHit
    pids = [world.driver.jvm]
    world.driver.signal(signal.SIGSTOP, pids)
    time.sleep(draw.uniform(0, 4))
    world.driver.signal(signal.SIGCONT, pids)
    return 1
