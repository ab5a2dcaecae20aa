"""Shared parts of the join tests: pipelines of two topics, seeded events, and expected rows computed from the topics.

The computation uses none of the product's code. Each kind of pipeline defines what its events contain (`identity`,
`key_of`, `time_of`) and the rows that they produce (`row`): an artificial one here, the repository's in `shipped.py`.
"""

import json
import random
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from tests.e2e.support import Pipeline
from tests.faults.records import PARTITIONS, Topics, offset_ranges
from tests.stream.stages.joins import JoinEvent, Windows, decide
from tests.support.sending import Sender

SECOND = 1_000_000
LEFT, RIGHT = "left", "right"
NULL_KEYS = 0.03  # share of the events whose key may be null
RESENT = 0.1

Event = dict[str, Any]
Row = tuple[Any, ...]


@dataclass
class TwoTopics(Pipeline, ABC):
    """A pipeline that joins two topics of its own.

    Windows and lateness are in seconds. The times of its seeded events start at `begin`, spread over `spread` seconds
    in steps of `step`. The lateness is longer than the spread, so no event is late in any order of arrival.
    """

    nullable: ClassVar[tuple[str, ...]] = (LEFT, RIGHT)  # the sources whose key may be null
    begin: ClassVar[int] = 1_751_356_800  # 2025-07-01T08:00:00Z, the day of the demo's orders
    spread: ClassVar[int] = 600
    step: ClassVar[int] = 1

    match: str = "latest"
    kind: str = "inner"
    event_clock: bool = False
    left_window: int = 20
    right_window: int = 40
    lateness: int = 600

    @abstractmethod
    def event(self, side: str, name: str, key: str | None, at: int) -> Event:
        """Return an event with this time, in seconds since 1970."""

    @abstractmethod
    def details(self, draw: random.Random, side: str) -> Event:
        """Draw the event's fields besides name, key and time."""

    @abstractmethod
    def identity(self, side: str, event: Event) -> str:
        """Return the event's deduplication key."""

    @abstractmethod
    def key_of(self, side: str, event: Event) -> Hashable:
        """Return the event's join key; None matches nothing."""

    @abstractmethod
    def time_of(self, side: str, event: Event) -> int:
        """Return the event's time in microseconds since 1970."""

    def is_filtered(self, side: str, event: Event) -> bool:
        """Return whether the filter before the join drops an event."""
        return False

    @abstractmethod
    def row(self, left: Event, right: Event | None, joined_at: int | None) -> Row:
        """Return the row of a pair; joined_at: its batch's time in milliseconds since 1970, None if not known."""

    @abstractmethod
    def rows(self) -> Counter[Row]:
        """Read the table's rows, in the form of `row`."""

    def topic(self, side: str) -> str:
        return f"{self.name}-{side}"

    def create_topic(self, partitions: int = PARTITIONS) -> None:
        admin = AdminClient({"bootstrap.servers": self.brokers})
        for made in admin.create_topics([NewTopic(self.topic(side), partitions, 1) for side in (LEFT, RIGHT)]).values():
            made.result(30)

    def send_both(self, events: Sequence[tuple[str, Any]]) -> None:
        """Send events of both sources in this order, alternating between partitions."""
        sender = Sender(self.brokers, {"linger.ms": 5, "enable.idempotence": True})
        for index, (side, event) in enumerate(events):
            value = event if isinstance(event, bytes) else json.dumps(event).encode()
            sender.send(self.topic(side), value, partition=index % PARTITIONS)
        sender.flush()

    def seeded(self, seed: int, lefts: int, rights: int) -> list[tuple[str, Event]]:
        """Return events of both sources in a seeded order; a tenth comes again with the same id and other details.

        No two seeds share a join key. A fifth of the left events has a key that no right event has.
        """
        draw = random.Random(seed)
        found: list[tuple[str, Event]] = []
        for number in range(lefts + rights):
            side = LEFT if number < lefts else RIGHT
            null = side in self.nullable and draw.random() < NULL_KEYS
            at = self.begin + draw.randrange(0, self.spread, self.step)
            key = f"{seed} of {draw.randrange(5 if side == LEFT else 4)}"
            event = self.event(side, f"{seed}-{number}", None if null else key, at)
            found.append((side, event | self.details(draw, side)))
        resent = draw.sample(found, int(len(found) * RESENT))
        found += [(side, event | self.details(draw, side)) for side, event in resent]
        draw.shuffle(found)
        return found

    def join_ledger(self) -> dict[str, int]:
        """Return the ledger's counts, summed over all batches."""
        names = ("read", "written", "duplicates", "filtered", "late", "dead_letters", "taken", "accepted", "matched",
                 "unmatched", "null_keys", "joined")  # fmt: skip
        sums = ", ".join(f"sum({name})" for name in names)
        found = self.query(f"SELECT {sums}, argMax(waiting, batch_id) FROM {{db}}.glassflow_ledger")[0]
        return dict(zip((*names, "waiting"), found, strict=True))


@dataclass
class JoinPipeline(TwoTopics):
    """An artificial pipeline with a filter before the join; both sources are deduplicated by id."""

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
        clock = {"clock": "event", "allowed_lateness": f"{self.lateness}s"} if self.event_clock else {}
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

    def event(self, side: str, name: str, key: str | None, at: int) -> Event:
        return {"id": name, "user" if side == LEFT else "owner": key, "at": at}

    def details(self, draw: random.Random, side: str) -> Event:
        return {"skip": draw.random() < 0.05}

    def identity(self, side: str, event: Event) -> str:
        return str(event["id"])

    def key_of(self, side: str, event: Event) -> Hashable:
        return event.get("user" if side == LEFT else "owner")

    def time_of(self, side: str, event: Event) -> int:
        return int(event["at"]) * SECOND

    def is_filtered(self, side: str, event: Event) -> bool:
        return side == LEFT and bool(event.get("skip"))

    def row(self, left: Event, right: Event | None, joined_at: int | None) -> Row:
        return left["id"], right and right["id"]

    def rows(self) -> Counter[Row]:
        """Read the table's rows: left id, right id."""
        return Counter((left, right) for left, right in self.query("SELECT left_id, right_id FROM {db}.events"))


class Message(NamedTuple):
    """A record of a topic with its decoded event; None for invalid JSON."""

    side: str
    partition: int
    offset: int
    event: Event | None


@dataclass
class Expected:
    """The expected rows, and the expected sums of the ledger."""

    rows: Counter[Row]
    counts: dict[str, int]


def read_topics(pipeline: TwoTopics) -> list[Message]:
    """Read all records of both topics."""
    inputs = {pipeline.topic(side): side for side in (LEFT, RIGHT)}
    topics = Topics(pipeline.brokers, list(inputs))
    try:
        return [Message(inputs[r.topic], r.partition, r.offset, _decoded(r.value)) for r in topics.read()]
    finally:
        topics.close()


def batches(pipeline: TwoTopics, messages: Sequence[Message]) -> Iterator[tuple[int, list[Message]]]:
    """Yield each batch's time in microseconds and its records in order, according to the ledger."""
    ledger = pipeline.query(
        "SELECT toUnixTimestamp64Milli(batch_time), offsets FROM {db}.glassflow_ledger ORDER BY batch_id"
    )
    by_place = {(m.side, m.partition, m.offset): m for m in messages}
    for milliseconds, offsets in ledger:
        ranges = {(topic, partition): read for topic, partition, read in offset_ranges(offsets)}
        places = [
            (side, partition, offset)
            for side in (LEFT, RIGHT)
            for partition in range(PARTITIONS)
            for offset in ranges.get((pipeline.topic(side), partition), ())
        ]
        yield milliseconds * 1000, [by_place[place] for place in places]


def recompute(pipeline: TwoTopics, late: Sequence[str] = (), complete: int | None = None) -> Expected:
    """Compute the expected rows and counts from the topics' contents.

    On the processing clock, the ledger's batches define each record's time, and the last batch's time decides which
    left events have waited long enough. On the event clock, `late` lists the identities of late events, and `complete`
    is the time that the clock has reached, in microseconds since 1970.
    """
    counts: Counter[str] = Counter(late=0, dead_letters=0, filtered=0, duplicates=0)
    accepted: dict[tuple[str, str], Event] = {}
    inputs: dict[str, list[JoinEvent]] = {LEFT: [], RIGHT: []}
    times: list[int] = []
    for time, records in batches(pipeline, read_topics(pipeline)):
        times.append(time)
        for side, partition, offset, event in records:
            counts["read"] += 1
            if event is None:
                counts["dead_letters"] += 1
            elif pipeline.is_filtered(side, event):
                counts["filtered"] += 1
            elif (side, name := pipeline.identity(side, event)) in accepted:
                counts["duplicates"] += 1
            else:
                accepted[side, name] = event
                if name in late:
                    counts["late"] += 1
                    continue
                at = pipeline.time_of(side, event) if pipeline.event_clock else time
                inputs[side].append(JoinEvent(name, pipeline.key_of(side, event), at, (partition, offset)))
    if not pipeline.event_clock:
        complete = times[-1]
    assert complete is not None
    windows = Windows(pipeline.left_window * SECOND, pipeline.right_window * SECOND)
    outcome = decide(inputs[LEFT], inputs[RIGHT], windows, pipeline.match, complete)
    written = outcome.pairs | (outcome.alone if pipeline.kind == "left" else set())
    at_of = _joined_at(inputs, windows, () if pipeline.event_clock else times)
    rows = Counter(
        pipeline.row(accepted[LEFT, left], accepted[RIGHT, right] if right else None, at_of(left, right))
        for left, right in written
    )
    counts.update(outcome.counts, joined=rows.total(), written=rows.total())
    return Expected(rows, dict(counts))


def _joined_at(
    inputs: dict[str, list[JoinEvent]], windows: Windows, times: Sequence[int]
) -> Callable[[str, str | None], int | None]:
    """Return a function that gives the time of the batch that writes a row, in milliseconds since 1970.

    A pair is written with its later event. An unmatched left event is written with the first batch after its window, or
    at once when its key is null. Without the batches' times the function returns None.
    """
    lefts, rights = ({event.name: event for event in inputs[side]} for side in (LEFT, RIGHT))

    def of(left: str, right: str | None) -> int | None:
        if not times:
            return None
        event = lefts[left]
        if right is not None:
            return max(event.time, rights[right].time) // 1000
        over = event.time + (windows.left if event.key is not None else 0)
        return min(time for time in times if time >= over) // 1000

    return of


def _decoded(value: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(value or b"")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
