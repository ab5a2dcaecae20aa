"""A pipeline that joins two deduplicated topics on the event clock; its oracle is a join in plain Python."""

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clickhouse_connect.driver.client import Client

from tests.faults.dedup_workload import SMALL_BLOCK, sink_of, table
from tests.faults.records import Event, Expected, Position, Record
from tests.stream.stages.joins import JoinEvent, Windows, decide
from tests.support.definition import dedup, definition, fields, source

_SECOND = 1_000_000
_BEGIN = 1_577_836_800  # 2020-01-01; event times, independent of the machine's clock
_DAY = 86_400
_ROUND = 600  # seconds of event time in one round of shuffled events
_EVENTS = 150  # events per source in a round
_KEYS = 12
_LATENESS = 7200
_WINDOWS = Windows(20 * _SECOND, 40 * _SECOND)
_FAR_FUTURE = 4_070_908_800  # 2099
# An event time that is late however the batches are cut.
_OLD = 0


class JoinWorkload:
    """Left events with the latest right event of their key; a left join keeps the unmatched ones."""

    columns = ("left_id", "at", "right_id")
    own_rows = "events"

    def __init__(self, name: str) -> None:
        self.name = name

    def topics(self) -> Sequence[str]:
        return [f"{self.name}-left", f"{self.name}-right"]

    def definition(self, brokers: str, clickhouse_port: int) -> dict[str, Any]:
        who = {"name": "who", "type": "string", "required": False}
        declared = [*fields(id="string"), who, *fields(at="int")]
        columns = {"left_id": "String", "at": "Int64", "right_id": "Nullable(String)"}
        sides = ("left", "right")
        return definition(
            self.name,
            [source(side, declared, brokers, topic=topic) for side, topic in zip(sides, self.topics(), strict=True)],
            sink_of(self.name, clickhouse_port, SMALL_BLOCK, columns),
            *(dedup(side, "id", time_window="7d") for side in sides),
            join={
                "enabled": True, "type": "left", "clock": "event", "allowed_lateness": f"{_LATENESS}s",
                "left_source": {"source_id": "left", "key": "who", "time_window": "20s", "event_time": "at"},
                "right_source": {"source_id": "right", "key": "who", "time_window": "40s", "event_time": "at"},
                "output_fields": [
                    {"source_id": "left", "name": "id", "output_name": "left_id"},
                    {"source_id": "left", "name": "at", "output_name": "at"},
                    {"source_id": "right", "name": "id", "output_name": "right_id"}],
            },
        )  # fmt: skip

    def tables(self) -> Sequence[str]:
        return table(self.name, "left_id String, at Int64, right_id Nullable(String)", "left_id")

    def events(self, seed: str, number: int) -> Iterator[Event]:
        draw = random.Random(seed)
        for index in itertools.count():
            begin = _BEGIN + number * _DAY + index * _ROUND
            times = draw.sample(range(begin, begin + _ROUND), 2 * _EVENTS)
            events = [self._event(f"{number}-{index}-{i}", i % 2, at, draw) for i, at in enumerate(times)]
            events += draw.sample(events, len(events) // 10)
            draw.shuffle(events)
            yield from events

    def last_events(self, number: int) -> Sequence[Event]:
        at = _BEGIN + (number + 1) * _DAY - 1
        # With different keys, because a match at exactly the clock's time is not final.
        return [self._make(side, f"last {number} {side}", f"last {number} {side}", at) for side in (0, 1)]

    def strange_events(self, number: int) -> Sequence[Event]:
        """Yield events whose times are wrong by decades, in both directions."""
        future = [self._make(1, f"{number}-future-{i}", f"{number} 0", _FAR_FUTURE + i) for i in range(10)]
        return [*future, *(self._make(i % 2, f"{number}-old-{i}", f"{number} 0", _OLD) for i in range(10))]

    def write_concurrently(self, client: Client, number: int) -> None:
        """Do nothing: there is no other writer."""

    def differences(self, client: Client) -> list[str]:
        """Return nothing: the comparison of rows is complete."""
        del client
        return []

    def undecided(self, records: Sequence[Record]) -> int:
        return self.expected(records, {}).sums["waiting"]

    def expected(self, records: Sequence[Record], times: Mapping[Position, int]) -> Expected:
        del times
        found = Expected(Counter(), {}, {})
        counts: Counter[str] = Counter(read=len(records), late=0, dead_letters=0, filtered=0, duplicates=0)
        sides: tuple[list[JoinEvent], list[JoinEvent]] = ([], [])
        seen: set[tuple[str, str]] = set()
        for record in sorted(records):
            side = self.topics().index(record.topic)
            try:
                event = json.loads(record.value)
            except ValueError:
                counts["dead_letters"] += 1
                found.dead_letters[record.place()] = "decode"
                continue
            if (record.topic, event["id"]) in seen:
                counts["duplicates"] += 1
            elif event["at"] == _OLD:
                seen.add((record.topic, event["id"]))
                counts["late"] += 1
            else:
                seen.add((record.topic, event["id"]))
                rank = (side, record.partition, record.offset)
                sides[side].append(JoinEvent(event["id"], event.get("who"), event["at"] * _SECOND, rank))
        lefts, rights = sides
        complete = max((e.time for e in lefts if e.time < _FAR_FUTURE * _SECOND), default=0) - _LATENESS * _SECOND
        fates = decide(lefts, rights, _WINDOWS, "latest", complete)
        times = {e.name: e.time // _SECOND for e in lefts}
        for left, right in fates.pairs | fates.alone:
            found.rows[left, times[left], right] += 1
        counts.update(fates.counts, joined=found.rows.total(), written=found.rows.total())
        found.sums = dict(counts)
        return found

    def _event(self, name: str, side: int, at: int, draw: random.Random) -> Event:
        if draw.random() < 0.01:
            return Event(self.topics()[side], name, b"{not json")
        who = None if draw.random() < 0.03 else f"{name.split('-', maxsplit=1)[0]} {draw.randrange(_KEYS)}"
        return self._make(side, name, who, at)

    def _make(self, side: int, name: str, who: str | None, at: int) -> Event:
        return Event(self.topics()[side], name, json.dumps({"id": name, "who": who, "at": at}).encode())
