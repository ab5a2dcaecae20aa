"""What the tests of joins share: a pipeline of two topics, seeded events, and the rows recomputed from the topics."""

import json
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import yaml
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.support import Pipeline
from tests.streaming.joining import Happened, Windows, joined

SECOND = 1_000_000
PARTITIONS = 2
LEFT, RIGHT = "left", "right"


@dataclass
class JoinPipeline(Pipeline):
    """A pipeline that joins two topics of its own; both sides are deduplicated by their id."""

    match: str = "latest"
    kind: str = "inner"
    event_clock: bool = False
    left_window: int = 20  # seconds
    right_window: int = 40
    at: str = "Int64"
    join: dict[str, Any] = field(default_factory=dict)

    def write(self, *, dedup: bool = True) -> "JoinPipeline":
        super().write(dedup=False)
        definition = yaml.safe_load(self.file.read_text())
        connection = definition["sources"][0]["connection_params"]
        definition["sources"] = [
            {"type": "kafka", "source_id": side, "connection_params": connection, "topic": self.topic(side),
             "schema_fields": [
                 {"name": "id", "type": "string"}, {"name": key, "type": "string", "required": False},
                 {"name": "at", "type": "int"}, {"name": "skip", "type": "bool", "required": False}]}
            for side, key in ((LEFT, "user"), (RIGHT, "owner"))
        ]  # fmt: skip
        once = {"key": "id", "time_window": self.window}
        definition["transforms"] = [
            *({"type": "dedup", "source_id": side, "config": once} for side in (LEFT, RIGHT) if dedup),
            {"type": "filter", "source_id": LEFT, "config": {"expression": "skip != true"}},
            *({**transform, "source_id": "join"} for transform in self.transforms),
        ]
        clock = {"clock": "event", "allowed_lateness": "10m"} if self.event_clock else {}
        time = {"event_time": "at"} if self.event_clock else {}
        definition["join"] = {
            "enabled": True, "type": self.kind, "match": self.match, **clock,
            "left_source": {"source_id": LEFT, "key": "user", "time_window": f"{self.left_window}s", **time},
            "right_source": {"source_id": RIGHT, "key": "owner", "time_window": f"{self.right_window}s", **time},
            "output_fields": [
                {"source_id": LEFT, "name": "id", "output_name": "left_id"},
                {"source_id": LEFT, "name": "at", "output_name": "at"},
                {"source_id": RIGHT, "name": "id", "output_name": "right_id"},
            ],
            **self.join,
        }  # fmt: skip
        columns = {"left_id": "String", "at": self.at, "right_id": "Nullable(String)"}
        definition["sink"]["mapping"] = [
            {"name": name, "column_name": name, "column_type": kind} for name, kind in columns.items()
        ]
        self.file.write_text(yaml.safe_dump(definition))
        return self

    def topic(self, side: str) -> str:
        return f"{self.name}-{side}"

    def create_topic(self, partitions: int = PARTITIONS) -> None:
        admin = AdminClient({"bootstrap.servers": self.brokers})
        for made in admin.create_topics([NewTopic(self.topic(side), partitions, 1) for side in (LEFT, RIGHT)]).values():
            made.result(30)

    def send_sides(self, events: Sequence[tuple[str, Any]]) -> None:
        """Send events of both sides in this order, over the partitions in turn."""
        producer = Producer({"bootstrap.servers": self.brokers, "linger.ms": 5, "enable.idempotence": True})
        for index, (side, event) in enumerate(events):
            value = event if isinstance(event, bytes) else json.dumps(event).encode()
            producer.produce(self.topic(side), value, partition=index % PARTITIONS)
            producer.poll(0)
        assert producer.flush(30) == 0

    def rows(self) -> Counter[tuple[str, str | None]]:
        """The table's rows: left id, right id."""
        return Counter((left, right) for left, right in self.query("SELECT left_id, right_id FROM {db}.events"))

    def join_ledger(self) -> dict[str, int]:
        names = ("read", "written", "duplicates", "filtered", "late", "dead_letters", "taken", "accepted", "matched",
                 "unmatched", "null_keys", "joined")  # fmt: skip
        sums = ", ".join(f"sum({name})" for name in names)
        found = self.query(f"SELECT {sums}, argMax(waiting, batch_id) FROM {{db}}.glassflow_ledger")[0]
        return dict(zip((*names, "waiting"), found, strict=True))


class Message(NamedTuple):
    """A record of a topic."""

    side: str
    partition: int
    offset: int
    event: dict[str, Any] | None


@dataclass
class Expected:
    """What the topics' contents make."""

    rows: Counter[tuple[str, str | None]]
    counts: dict[str, int]


def read_topics(pipeline: JoinPipeline) -> list[Message]:
    """Read all that is in both topics."""
    found = []
    for side in (LEFT, RIGHT):
        consumer = Consumer({"bootstrap.servers": pipeline.brokers, "group.id": "oracle", "enable.auto.commit": False})
        for partition in range(PARTITIONS):
            topic = TopicPartition(pipeline.topic(side), partition, 0)
            end = consumer.get_watermark_offsets(topic, timeout=30)[1]
            consumer.assign([topic])
            count = 0
            while count < end:
                message = consumer.poll(30)
                assert message is not None
                assert not message.error()
                found.append(Message(side, partition, message.offset(), _decoded(message.value())))
                count += 1
        consumer.close()
    return found


def batches(pipeline: JoinPipeline, messages: Sequence[Message]) -> Iterator[tuple[int, list[Message]]]:
    """Give each batch's time in microseconds and its records in their order, as the ledger says."""
    ledger = pipeline.query(
        "SELECT toUnixTimestamp64Milli(batch_time), offsets FROM {db}.glassflow_ledger ORDER BY batch_id"
    )
    by_place = {(m.side, m.partition, m.offset): m for m in messages}
    for milliseconds, offsets in ledger:
        ranges = {(o["topic"], o["partition"]): range(o["from"], o["until"]) for o in map(_named, offsets)}
        places = [
            (side, partition, offset)
            for side in (LEFT, RIGHT)
            for partition in range(PARTITIONS)
            for offset in ranges.get((pipeline.topic(side), partition), ())
        ]
        yield milliseconds * 1000, [by_place[place] for place in places]


def recompute(pipeline: JoinPipeline, late: Sequence[str] = (), complete: int | None = None) -> Expected:
    """Make the rows from the topics' contents, by definition.

    On the processing clock the ledger's batches are taken as given, and the time of the last one says who has waited
    long enough. On the event clock `late` are the ids of events that came too late, and `complete` is how far the
    clock is.
    """
    counts: Counter[str] = Counter()
    seen: set[tuple[str, str]] = set()
    sides: dict[str, list[Happened]] = {LEFT: [], RIGHT: []}
    for time, records in batches(pipeline, read_topics(pipeline)):
        for rank, partition, offset, side, event in _ranked(records):
            counts["read"] += 1
            if event is None:
                counts["dead_letters"] += 1
            elif side == LEFT and event.get("skip"):
                counts["filtered"] += 1
            elif (side, event["id"]) in seen:
                counts["duplicates"] += 1
            else:
                seen.add((side, event["id"]))
                if event["id"] in late:
                    counts["late"] += 1
                    continue
                at = event["at"] * SECOND if pipeline.event_clock else time
                key = event.get("user" if side == LEFT else "owner")
                sides[side].append(Happened(event["id"], key, at, (rank, partition, offset)))
        if not pipeline.event_clock:
            complete = time
    assert complete is not None
    windows = Windows(pipeline.left_window * SECOND, pipeline.right_window * SECOND)
    decided = [left for left in sides[LEFT] if left.key is None or left.time + windows.left <= complete]
    pairs = joined(sides[LEFT], sides[RIGHT], windows, pipeline.match)
    matched = {name for name, _ in pairs}
    alone = {left.name for left in decided} - matched
    rows = Counter(pairs | ({(name, None) for name in alone} if pipeline.kind == "left" else set()))
    counts.update(
        taken=len(sides[LEFT]) + len(sides[RIGHT]), accepted=len(sides[RIGHT]), matched=len(matched),
        unmatched=len(alone), waiting=len(sides[LEFT]) - len(matched) - len(alone), joined=rows.total(),
        written=rows.total(), null_keys=sum(e.key is None for events in sides.values() for e in events),
    )  # fmt: skip
    for name in ("late", "dead_letters", "filtered", "duplicates"):
        counts[name] += 0
    return Expected(rows, dict(counts))


def seeded(seed: int, lefts: int, rights: int, start: int, spread: int) -> list[tuple[str, dict[str, Any]]]:
    """Make events of both sides in a seeded order, each time of a key only once, with doubles and null keys.

    start and spread in seconds since 1970; keys belong to the seed alone.
    """
    draw = random.Random(seed)
    times = draw.sample(range(start, start + spread), lefts + rights)
    found: list[tuple[str, dict[str, Any]]] = []
    for number, at in enumerate(times):
        side, key = (LEFT, "user") if number < lefts else (RIGHT, "owner")
        who = None if draw.random() < 0.03 else f"{seed} of {draw.randrange(4)}"
        found.append((side, {"id": f"{seed}-{number}", key: who, "at": at, "skip": draw.random() < 0.05}))
    found += draw.sample(found, len(found) // 10)
    draw.shuffle(found)
    return found


def _ranked(records: Sequence[Message]) -> Iterator[tuple[int, int, int, str, dict[str, Any] | None]]:
    for message in records:
        yield int(message.side == RIGHT), message.partition, message.offset, message.side, message.event


def _decoded(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(value or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _named(offsets: Any) -> dict[str, Any]:
    return (
        offsets
        if isinstance(offsets, dict)
        else dict(zip(("topic", "partition", "from", "until"), offsets, strict=True))
    )
