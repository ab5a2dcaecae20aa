"""The repository's own joins on topics of a test: seeded events with the demo's fields, and the rows they produce.

The tests change the definition's names, connections, type, match, clock and lateness, and, on the processing clock, the
windows: a test is over within the windows.
"""

import json
import random
from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import yaml

from glassflow_dagster.local.demo.events import departure_events, weather_events
from glassflow_dagster.local.demo.orders import orders, user_events
from tests.e2e.joins import LEFT, RIGHT, SECOND, Event, Row, TwoTopics

HOUR = 3600
PIPELINES = Path(__file__).parents[2] / "pipelines"
FLIGHT = ("year", "month", "day", "carrier", "flight", "origin", "dest", "sched_dep_time", "dep_delay", "time_hour")
WEATHER = ("temp", "wind_speed", "precip", "visib")


@dataclass
class ShippedJoin(TwoTopics):
    """A definition of `pipelines/`."""

    file_name: ClassVar[str]
    event_time: ClassVar[str]
    columns_read: ClassVar[tuple[str, ...]]  # expressions for the table's columns, except joined_at

    # On the event clock the windows of the definition.
    left_window: int = HOUR
    right_window: int = HOUR

    def __post_init__(self) -> None:
        if not self.event_clock:
            self.left_window, self.right_window = 10, 15

    def write(self, *, dedup: bool = True) -> "ShippedJoin":
        assert dedup, "the definitions deduplicate"
        definition = yaml.safe_load((PIPELINES / self.file_name).read_text())
        definition["pipeline_id"] = self.name
        for source, side in zip(definition["sources"], (LEFT, RIGHT), strict=True):
            source["topic"] = self.topic(side)
            source["connection_params"]["brokers"] = [self.brokers]
        definition["sink"]["connection_params"] |= {
            "host": "127.0.0.1", "http_port": str(self.clickhouse_port), "database": self.name,
        }  # fmt: skip
        definition["sink"]["table"] = "events"
        join = definition["join"]
        join |= {"type": self.kind, "match": self.match, "clock": "event" if self.event_clock else "processing"}
        join.pop("allowed_lateness", None)
        for side in (join["left_source"], join["right_source"]):
            side.pop("event_time", None)
        if self.event_clock:
            join["allowed_lateness"] = f"{self.lateness}s"
            for side in (join["left_source"], join["right_source"]):
                side["event_time"] = self.event_time
        else:
            join["left_source"]["time_window"] = f"{self.left_window}s"
            join["right_source"]["time_window"] = f"{self.right_window}s"
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(yaml.safe_dump(definition))
        return self

    def time_of(self, side: str, event: Event) -> int:
        return int(datetime.fromisoformat(event[self.event_time]).timestamp()) * SECOND

    def rows(self) -> Counter[Row]:
        """Read the table's rows, all columns; on the event clock joined_at is NULL where it is a batch's time."""
        joined_at = "toUnixTimestamp64Milli(joined_at)"
        if self.event_clock:
            joined_at = f"if(joined_at IN (SELECT batch_time FROM {{db}}.glassflow_ledger), NULL, {joined_at})"
        return Counter(self.query(f"SELECT {', '.join(self.columns_read)}, {joined_at} FROM {{db}}.events"))


@dataclass
class OrdersWithUsers(ShippedJoin):
    """Orders joined with the user events nearest in time."""

    nullable = (LEFT,)
    spread = 5 * HOUR
    step = 60
    file_name = "orders_with_users.yaml"
    event_time = "created_at"
    columns_read = ("order_id", "user_id", "user_name", "user_email", "amount", "price",
                    "formatDateTime(created_at, '%Y-%m-%dT%H:%i:%SZ', 'UTC')")  # fmt: skip

    lateness: int = 6 * HOUR

    def event(self, side: str, name: str, key: str | None, at: int) -> Event:
        shape = orders()[0] if side == LEFT else user_events()[0]
        return shape | {"order_id" if side == LEFT else "event_id": name, "user_id": key, "created_at": iso(at)}

    def details(self, draw: random.Random, side: str) -> Event:
        if side == LEFT:
            return _only(draw.choice(orders()), "amount", "price")
        return _only(draw.choice(user_events()), "name", "email")

    def identity(self, side: str, event: Event) -> str:
        return str(event["order_id" if side == LEFT else "event_id"])

    def key_of(self, side: str, event: Event) -> Hashable:
        return event["user_id"]

    def row(self, left: Event, right: Event | None, joined_at: int | None) -> Row:
        user = (right["name"], right["email"]) if right else (None, None)
        price = Decimal(str(left["price"]))
        return left["order_id"], left["user_id"], *user, left["amount"], price, left["created_at"], joined_at


@dataclass
class FlightsWithWeather(ShippedJoin):
    """Flights joined with the weather at their airport, at the full hour as in the real data and half an hour later."""

    nullable = ()
    begin = 1_357_344_000  # 2013-01-05
    spread = 20 * HOUR
    step = HOUR // 2
    file_name = "flights_with_weather.yaml"
    event_time = "time_hour"
    columns_read = (*FLIGHT[:-1], "formatDateTime(time_hour, '%Y-%m-%dT%H:%i:%SZ', 'UTC')", *WEATHER)

    lateness: int = 24 * HOUR

    def event(self, side: str, name: str, key: str | None, at: int) -> Event:
        day = datetime.fromtimestamp(at, UTC)
        shape = _departures()[0] if side == LEFT else _weather()[0]
        date = {"year": day.year, "month": day.month, "day": day.day}
        named = {"carrier": name} if side == LEFT else {}
        return shape | date | named | {"origin": key, "time_hour": iso(at)}

    def details(self, draw: random.Random, side: str) -> Event:
        if side == LEFT:
            return _only(draw.choice(_departures()), "dest", "sched_dep_time", "dep_delay")
        return _only(draw.choice(_weather()), *WEATHER)

    def identity(self, side: str, event: Event) -> str:
        names = FLIGHT[:6] if side == LEFT else ("origin", "time_hour")
        return "/".join(str(event[name]) for name in names)

    def key_of(self, side: str, event: Event) -> Hashable:
        return event["origin"]

    def row(self, left: Event, right: Event | None, joined_at: int | None) -> Row:
        return (*map(left.get, FLIGHT), *(right[name] if right else None for name in WEATHER), joined_at)


def iso(at: int) -> str:
    """Format seconds since 1970 as in the demo's events."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _only(event: Event, *names: str) -> Event:
    return {name: event[name] for name in names}


@cache
def _departures() -> tuple[dict[str, Any], ...]:
    return tuple(map(json.loads, departure_events()))


@cache
def _weather() -> tuple[dict[str, Any], ...]:
    return tuple(map(json.loads, weather_events()))
