"""The demo's events: the same on every call, and as its pipelines and its README describe them."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.local.demo.events import (
    FLIGHT_KEY,
    WEATHER_KEY,
    departure_events,
    departures,
    weather,
    weather_events,
    with_resent,
    with_resent_count,
)
from glassflow_dagster.local.demo.orders import (
    order_event_count,
    order_events,
    orders,
    user_event_count,
    user_event_events,
    user_events,
)
from glassflow_dagster.local.demo.recount import ALLOWED_LATENESS

PIPELINES = Path(__file__).parents[3] / "pipelines"
JOINS = {
    "orders_with_users": {"orders": order_events, "user_events": user_event_events},
    "flights_with_weather": {"departures": departure_events, "weather": weather_events},
}
Events = Callable[[], Iterator[bytes]]


def decoded(events: Events) -> list[dict[str, Any]]:
    return [json.loads(event) for event in events()]


@pytest.mark.parametrize(
    ("events", "key", "unique", "count"),
    [
        (order_events, ["order_id"], 10_000, order_event_count()),
        (user_event_events, ["event_id"], 2_400, user_event_count()),
        (departure_events, FLIGHT_KEY, 27_004, with_resent_count(27_004)),
        (weather_events, WEATHER_KEY, 2_226, with_resent_count(2_226)),
    ],
)
def test_a_tenth_of_the_events_comes_twice_and_all_are_the_same_on_every_call(
    events: Events, key: list[str], unique: int, count: int
) -> None:
    times = Counter(tuple(event[name] for name in key) for event in decoded(events))
    assert Counter(times.values()) == {1: unique - unique // 10, 2: unique // 10}
    assert times.total() == count
    assert list(events()) == list(events())


def test_an_event_that_comes_twice_comes_soon_again() -> None:
    sent = list(with_resent([str(number).encode() for number in range(1000)], 1, 5))
    places: dict[bytes, list[int]] = {}
    for place, event in enumerate(sent):
        places.setdefault(event, []).append(place)
    # Other duplicated events may be in between.
    assert max(both[-1] - both[0] for both in places.values()) <= 10


def test_orders_have_up_to_15_items_and_some_have_no_user_or_one_whom_nobody_knows() -> None:
    known = {event["user_id"] for event in user_events()}
    by_user = Counter(
        "guest" if order["user_id"] is None else "known" if order["user_id"] in known else "unknown"
        for order in orders()
    )
    assert {order["amount"] for order in orders()} == set(range(1, 16))
    assert by_user == {"known": 9485, "guest": 220, "unknown": 295}


def test_some_users_have_a_second_event_with_another_address() -> None:
    addresses: dict[str, set[str]] = {}
    for event in user_events():
        addresses.setdefault(event["user_id"], set()).add(event["email"])
    assert Counter(len(found) for found in addresses.values()) == {1: 1600, 2: 400}


def test_a_month_of_flights_is_in_order_but_for_less_than_the_lateness_that_is_allowed() -> None:
    hours = pd.to_datetime(departures()["time_hour"])
    assert (hours.cummax() - hours).max() == pd.Timedelta(hours=18)
    join = load_pipeline(PIPELINES / "flights_with_weather.yaml").join
    assert join is not None
    assert join.lateness == ALLOWED_LATENESS == pd.Timedelta(days=1)


def test_the_weather_is_hourly_and_its_visibility_is_always_known() -> None:
    hours = pd.to_datetime(weather()["time_hour"])
    assert hours.is_monotonic_increasing
    assert (hours == hours.dt.floor("h")).all()
    assert weather()["visib"].notna().all()


@pytest.mark.parametrize("pipeline", JOINS)
def test_every_event_has_what_the_pipeline_asks_for(pipeline: str) -> None:
    sources = load_pipeline(PIPELINES / f"{pipeline}.yaml").inputs
    assert {source.topic for source in sources} == JOINS[pipeline].keys()
    for source in sources:
        required = [field.name for field in source.schema_fields if field.required]
        declared = {field.name for field in source.schema_fields}
        assert required
        events = decoded(JOINS[pipeline][source.topic])
        assert events
        for event in events:
            assert declared <= event.keys()
            assert all(event[name] is not None for name in required)
