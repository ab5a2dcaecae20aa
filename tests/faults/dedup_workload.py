"""A pipeline with deduplication, filter, mapping, and rows that the server rejects; and its oracle in plain Python."""

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clickhouse_connect.driver.client import Client

from tests.faults.records import Event, Expected, Position, Record
from tests.support.definition import clickhouse, dedup, definition, fields, filter_transform, sink, source

# The setting with which a table remembers tokens.
WINDOW = "SETTINGS non_replicated_deduplication_window = 10000"
_LARGEST_INT32 = 2**31 - 1
_TEXT = "x" * 120  # bytes; with the other fields an event has about 190
# Rows in a block: few, so that a batch has many blocks.
SMALL_BLOCK = 100
_COLUMNS = {"id": "String", "n": "Int32", "text": "String"}
_FATES = ("written", "duplicates", "filtered", "dead_letters")


class DedupWorkload:
    """Events of about 190 bytes: a fifth are duplicates, and each stage rejects some."""

    columns = ("id", "n", "text")
    own_rows = "events"  # the table with the pipeline's rows, as in a query's FROM
    prefix = ""  # prefix of every key
    window_seconds = 604_800
    refused_numbers: Sequence[int] = (-1,)  # values of n that the table rejects

    def __init__(self, name: str, block_rows: int = SMALL_BLOCK) -> None:
        self.name, self.block_rows = name, block_rows
        # All repetitions of a pipeline compare the records of the earlier ones, too; decoding takes most of the time.
        self._decoded: dict[Position, Sequence[tuple[int, dict[str, Any] | None]]] = {}

    def topics(self) -> Sequence[str]:
        return [f"{self.name}-events"]

    def definition(self, brokers: str, clickhouse_port: int) -> dict[str, Any]:
        declared = [*fields(id="string", n="int", text="string"), {"name": "skip", "type": "bool", "required": False}]
        return definition(
            self.name,
            source("events", declared, brokers, topic=self.topics()[0]),
            sink_of(self.name, clickhouse_port, self.block_rows, _COLUMNS),
            filter_transform("events", "skip != true"),
            dedup("events", "id", time_window=f"{self.window_seconds}s"),
        )

    def tables(self) -> Sequence[str]:
        return table(self.name, "id String, n Int32, text String, CONSTRAINT positive CHECK n >= 0", "id")

    def events(self, seed: str, number: int) -> Iterator[Event]:
        draw = random.Random(seed)
        refused = {draw.randrange(100, 900) for _ in range(2)}
        for index in itertools.count():
            key = f"{self.prefix}{number}-{index}"
            chance = draw.random()
            if index and chance < 0.2:
                key = f"{self.prefix}{number}-{draw.randrange(index)}"
            elif number and chance < 0.22:
                key = f"{self.prefix}{number - 1}-{draw.randrange(1000)}"  # of the previous repetition
            yield self._event(key, index, draw.random(), server_refuses=index in refused)

    def last_events(self, number: int) -> Sequence[Event]:
        return [Event(self.topics()[0], "last", self.encode({"id": f"last {number}", "n": 1, "text": ""}))]

    def encode(self, event: dict[str, Any]) -> bytes:
        return json.dumps(event).encode()

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return an event; raises ValueError for what is none."""
        found: dict[str, Any] = json.loads(value)
        return found

    def event_of(self, record: Record) -> dict[str, Any]:
        """Return the event of a record, none where the record has no event or no key."""
        try:
            event = self.decode(record.value)
        except (ValueError, RecursionError):
            return {}
        return event if "id" in event else {}

    def events_of(self, record: Record) -> Iterator[tuple[int, dict[str, Any] | None]]:
        """Yield each event of a record with its index; an empty one where it fails, None where the record has none."""
        yield -1, self.event_of(record)

    def decoded(self, record: Record) -> Sequence[tuple[int, dict[str, Any] | None]]:
        """Return the events of a record as `events_of`, decoded once."""
        if record.position not in self._decoded:
            self._decoded[record.position] = [*self.events_of(record)]
        return self._decoded[record.position]

    def write_concurrently(self, client: Client, number: int) -> None:
        """Do nothing: there is no other writer."""

    def differences(self, client: Client) -> list[str]:
        """Return nothing: the comparison of rows is complete."""
        del client
        return []

    def undecided(self, records: Sequence[Record]) -> int:
        """Return 0: there is no join."""
        del records
        return 0

    def expected(self, records: Sequence[Record], times: Mapping[Position, int]) -> Expected:
        found = Expected(Counter(), {}, {})
        known_until: dict[str, int] = {}
        time_ms = 0
        # A key is always in one partition, so its first event does not depend on how batches are cut.
        for record in sorted(records):
            # A record that is in no batch is treated as if it were in the previous one.
            time_ms = times.get(record.position, time_ms)
            outcomes = []
            for item, event in self.decoded(record):
                # A record without events counts as a filtered one.
                fate, detail = ("filtered", "") if event is None else self.judge(event, time_ms, known_until)
                outcomes.append(fate)
                if fate == "dead_letters":
                    found.dead_letters[record.place(item)] = detail
                elif event and fate == "written":
                    found.rows[event["id"], event["n"], event["text"]] += 1
            found.fates[record.position], found.further[record.position] = outcomes[0], outcomes[1:]
        counts = Counter(found.fates.values()) + Counter(itertools.chain(*found.further.values()))
        found.sums = {"read": counts.total(), "records": len(records), **{fate: counts[fate] for fate in _FATES}}
        return found

    def judge(self, event: dict[str, Any], time_ms: int, known_until: dict[str, int]) -> tuple[str, str]:
        """Return the outcome of an event in a batch of that time, and a dead letter's stage."""
        if not event:
            return "dead_letters", "decode"
        if event.get("skip"):
            return "filtered", ""
        if event["n"] > _LARGEST_INT32:
            return "dead_letters", "mapping"
        if time_ms < known_until.get(event["id"], 0):
            return "duplicates", ""
        known_until[event["id"]] = time_ms + self.window_seconds * 1000
        return ("dead_letters", "insert") if event["n"] in self.refused_numbers else ("written", "")

    def _event(self, key: str, number: int, chance: float, *, server_refuses: bool) -> Event:
        event: dict[str, Any] = {"id": key, "n": number, "text": _TEXT}
        if server_refuses:
            event["n"] = self.refused_numbers[number % len(self.refused_numbers)]
        elif chance < 0.01:
            return Event(self.topics()[0], key, b"{not json")
        elif chance < 0.02:
            del event["id"]
        elif chance < 0.03:
            event["n"] = _LARGEST_INT32 + 1
        elif chance < 0.08:
            event["skip"] = True
        return Event(self.topics()[0], key, self.encode(event))


def sink_of(name: str, clickhouse_port: int, block_rows: int, columns: dict[str, str]) -> dict[str, Any]:
    """Return a sink whose blocks have this many rows."""
    connection = clickhouse(clickhouse_port, name)
    return sink(columns, connection, table="events", max_batch_size=block_rows, max_delay_time="200ms")


def table(name: str, columns: str, order_by: str) -> Sequence[str]:
    """Return statements that create a pipeline's table, with room for tokens."""
    engine = f"MergeTree ORDER BY {order_by} {WINDOW}"
    return [f"CREATE DATABASE {name}", f"CREATE TABLE {name}.events ({columns}) ENGINE = {engine}"]
