"""The pipelines of the archives of released versions, and their events."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.support.definition import clickhouse, dedup, definition, fields, filter_transform, sink, source
from tests.support.sending import Sender

DATABASE = "kept"
# Events and orders are known by their own times, so also to who reads the archive long after.
EVENTS, ORDERS, READINGS = "kept_events", "kept_orders", "kept_readings"
# What is read before the driver is killed, and what its open batch is of.
FIRST, ALL = 1000, 20_000
FILTERED, REFUSED = 13, 17  # values of n: the filter drops the one, the table's constraint refuses the other
_BEGIN = 1_790_000_000  # time of the first events, in seconds since 1970
_BLOCK_ROWS = 50  # few, so that a batch has many blocks

Event = dict[str, Any]


def definitions() -> Iterator[dict[str, Any]]:
    """Yield the definitions, with the addresses of the embedded stack's defaults."""
    events = [*fields(id="string", n="int", at="int"), {"name": "note", "type": "string", "required": False}]
    yield definition(
        EVENTS,
        source("events", events, topic="kept.events"),
        _sink({"id": "String", "n": "Int32", "note": "Nullable(String)"}, "events", max_batch_size=_BLOCK_ROWS),
        filter_transform("events", f"n != {FILTERED}"),
        dedup("events", "id", time_window="7d", clock="event", event_time="at", allowed_lateness="7d"),
    )
    yield definition(
        READINGS,
        source("readings", fields(id="string", value="float"), topic="kept.readings"),
        _sink({"id": "String", "value": "Float64"}, "readings"),
        dedup("readings", "id", time_window="7d"),
    )
    side = {"key": "user_id", "time_window": "1h", "event_time": "at"}
    yield definition(
        ORDERS,
        [
            source("orders", fields(order_id="string", user_id="string", at="int"), topic="kept.orders"),
            source("users", fields(user_id="string", name="string", at="int"), topic="kept.users"),
        ],
        _sink({"order_id": "String", "name": "Nullable(String)"}, "orders"),
        dedup("orders", "order_id", time_window="7d"),
        join={
            "enabled": True,
            "type": "left",
            "clock": "event",
            "allowed_lateness": "1h",
            "left_source": {"source_id": "orders", **side},
            "right_source": {"source_id": "users", **side},
            "output_fields": [
                {"source_id": "orders", "name": "order_id"},
                {"source_id": "users", "name": "name"},
            ],
        },
    )


def _sink(columns: Mapping[str, str], table: str, **more: Any) -> dict[str, Any]:
    made = sink(columns, clickhouse(8123, DATABASE), table=table, max_delay_time="200ms", **more)
    if table != "events":  # which has a constraint, so that it is made by hand
        made["create_table"] = {"order_by": next(iter(columns))}
    return made


_COLUMNS = f"id String, n Int32, note Nullable(String), CONSTRAINT c CHECK n != {REFUSED}"
_ENGINE = "MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 10000"
TABLES = (f"CREATE DATABASE {DATABASE}", f"CREATE TABLE {DATABASE}.events ({_COLUMNS}) ENGINE = {_ENGINE}")
TOPICS = {"kept.events": 2, "kept.readings": 1, "kept.orders": 1, "kept.users": 1}


def event(number: int) -> Event:
    """Return an event of `EVENTS`; each tenth repeats the one before it."""
    number -= number % 10 == 9
    note = {"note": f"note {number}"} if number % 3 else {}
    return {"id": f"k{number}", "n": number, "at": _BEGIN + number, **note}


READ = [{"id": f"r{number}", "value": number / 4} for number in range(100)]
# All orders wait for the end of their hour; the users of some come later.
KNOWN, LATER = 20, 5
USERS = [{"user_id": f"u{number}", "name": f"Name {number}", "at": _BEGIN} for number in range(KNOWN + LATER)]
ORDERED = [{"order_id": f"o{number}", "user_id": f"u{number}", "at": _BEGIN + 1} for number in range(KNOWN + LATER)]


def behind_the_hour(days: int) -> tuple[Event, Event]:
    """Return an order and a user with whose times the hour of all others is over."""
    at = _BEGIN + days * 86_400
    return {"order_id": f"day {days}", "user_id": "", "at": at}, {"user_id": "", "name": "", "at": at}


def send(brokers: str, topic: str, events: Iterable[Event]) -> None:
    """Send events to a topic; the first field of each is its key."""
    sender = Sender(brokers)
    for each in events:
        sender.send(topic, json.dumps(each), next(iter(each.values())))
    sender.flush()
