"""The demo's pipelines: their topics with the events that are sent, and what their tables must have afterwards."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from glassflow_dagster.local.demo.events import (
    DEPARTURES_TOPIC,
    FLIGHT_KEY,
    FLIGHTS_TOPIC,
    SMS_EVENTS,
    SMS_TOPIC,
    WEATHER_TOPIC,
    departure_events,
    departures,
    flight_event_count,
    flight_events,
    flights,
    weather,
    weather_events,
    with_resent_count,
)
from glassflow_dagster.local.demo.orders import (
    ORDERS_TOPIC,
    USERS_TOPIC,
    order_event_count,
    order_events,
    user_event_count,
    user_event_events,
)
from glassflow_dagster.local.demo.recount import Joined, Record, join_flights, join_orders


@dataclass(frozen=True)
class Topic:
    """A topic of the demo; `sent` is the number of events that `events` yields."""

    name: str
    sent: int
    events: Callable[[], Iterable[bytes]]


@dataclass(frozen=True)
class Demo:
    """A pipeline with one topic; `unique` is the number of rows that its table must have."""

    pipeline: str
    topic: Topic
    table: str
    key: str
    unique: int


@dataclass(frozen=True)
class JoinDemo:
    """A pipeline that joins two topics; `join` computes the expected rows with pandas."""

    pipeline: str
    left: Topic
    right: Topic
    table: str
    join: Callable[[Iterable[Record], Iterable[Record]], Joined]


def demos() -> list[Demo]:
    """Return the pipelines with one topic."""
    return [
        Demo(
            pipeline="sms_status",
            topic=Topic(SMS_TOPIC, len(SMS_EVENTS), lambda: (json.dumps(event).encode() for event in SMS_EVENTS)),
            table="analytics.sms_statuses_latest",
            key="sms_id",
            unique=len({event["sms_id"] for event in SMS_EVENTS}),
        ),
        Demo(
            pipeline="flights",
            topic=Topic(FLIGHTS_TOPIC, flight_event_count(), flight_events),
            table="analytics.flights",
            key=", ".join(FLIGHT_KEY),
            unique=len(flights().drop_duplicates(FLIGHT_KEY)),
        ),
    ]


def join_demos() -> list[JoinDemo]:
    """Return the pipelines that join two topics."""
    return [
        JoinDemo(
            pipeline="orders_with_users",
            left=Topic(ORDERS_TOPIC, order_event_count(), order_events),
            right=Topic(USERS_TOPIC, user_event_count(), user_event_events),
            table="analytics.orders_with_users",
            join=join_orders,
        ),
        JoinDemo(
            pipeline="flights_with_weather",
            left=Topic(DEPARTURES_TOPIC, with_resent_count(len(departures())), departure_events),
            right=Topic(WEATHER_TOPIC, with_resent_count(len(weather())), weather_events),
            table="analytics.flights_with_weather",
            join=join_flights,
        ),
    ]
