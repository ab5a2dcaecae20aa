"""The demo's own computation of its joins, on cases small enough to check by hand."""

import json
from typing import Any

import pandas as pd
import pytest

from glassflow_dagster.local.demo.recount import Joined, Record, differences, join_flights, join_orders


def records(*events: tuple[int, dict[str, Any]]) -> list[Record]:
    """Return events as records: each in its partition, with offsets counting up over all of them."""
    return [(partition, offset, json.dumps(event).encode()) for offset, (partition, event) in enumerate(events)]


def order(number: str, user: str | None, amount: int = 1) -> dict[str, Any]:
    return {"order_id": number, "user_id": user, "amount": amount, "price": 9.5, "created_at": "2025-07-01T08:00:00Z"}


def user(event: str, number: str, email: str) -> dict[str, Any]:
    return {"event_id": event, "user_id": number, "name": number.upper(), "email": email, "created_at": "-"}


def flight(number: int, hour: str) -> dict[str, Any]:
    key = {"year": 2013, "month": 1, "day": 1, "carrier": "UA", "flight": number, "origin": "EWR"}
    return {**key, "dest": "IAH", "sched_dep_time": 515, "dep_delay": None, "time_hour": hour, "tailnum": "-"}


def measured(origin: str, hour: str, temp: float | None) -> dict[str, Any]:
    return {"origin": origin, "time_hour": hour, "temp": temp, "wind_speed": 3.0, "precip": 0.0, "visib": 10.0}


ORDERS = join_orders(
    records((0, order("1", "ann")), (0, order("2", None)), (1, order("3", "zoe")), (1, order("1", "ann", 7))),
    records((1, user("a", "ann", "old")), (0, user("b", "ann", "older")), (1, user("c", "ann", "new")),
            (1, user("a", "ann", "old"))),
)  # fmt: skip


def test_an_order_has_the_last_event_of_its_user_by_partition_and_offset() -> None:
    found = ORDERS.rows.set_index("order_id")
    assert found["user_email"].fillna("-").to_dict() == {"1": "new", "2": "-", "3": "-"}
    assert found["amount"].to_dict() == {"1": 1, "2": 1, "3": 1}
    assert ORDERS.unique == 6


def test_an_order_of_a_guest_is_decided_and_one_of_an_unknown_user_is_not() -> None:
    assert dict(zip(ORDERS.rows["order_id"], ORDERS.decided, strict=True)) == {"1": True, "2": True, "3": False}


def test_a_flight_has_the_weather_of_its_hour_and_airport_and_the_last_day_is_not_decided() -> None:
    joined = join_flights(
        records(
            (0, flight(1, "2013-01-01T05:00:00Z")),
            (0, flight(2, "2013-01-01T06:00:00Z")),
            (0, flight(3, "2013-01-01T07:00:00Z")),
            (0, flight(1, "2013-01-01T05:00:00Z")),
            (0, flight(4, "2013-01-03T07:00:00Z")),
        ),
        records(
            (0, measured("EWR", "2013-01-01T05:00:00Z", 39.0)),
            (0, measured("JFK", "2013-01-01T06:00:00Z", 40.0)),
            (0, measured("EWR", "2013-01-01T07:00:00Z", None)),
            (0, measured("EWR", "2013-01-02T07:00:00Z", 41.0)),
        ),
    )
    found = joined.rows.set_index("flight")
    assert found["temp"].fillna(-1).to_dict() == {1: 39.0, 2: -1, 3: -1, 4: -1}
    assert found["visib"].fillna(-1).to_dict() == {1: 10.0, 2: -1, 3: 10.0, 4: -1}
    assert dict(zip(joined.rows["flight"], joined.decided, strict=True)) == {1: True, 2: True, 3: False, 4: False}
    assert joined.unique == 8


def in_table(joined: Joined, *numbers: str) -> pd.DataFrame:
    return joined.rows[joined.rows["order_id"].isin(numbers)].sample(frac=1, random_state=1)


@pytest.mark.parametrize("numbers", [("1", "2"), ("1", "2", "3")], ids=["while it waits", "when it is over"])
def test_an_undecided_row_may_be_there_or_not(numbers: tuple[str, ...]) -> None:
    assert differences(ORDERS, in_table(ORDERS, *numbers)) == []


def changed(table: pd.DataFrame, **values: str) -> pd.DataFrame:
    first = table.sort_values("order_id").head(1).assign(**values)
    return pd.concat([first.astype(table.dtypes), table.sort_values("order_id").iloc[1:]])


def test_every_difference_is_told() -> None:
    whole = in_table(ORDERS, "1", "2", "3")
    assert differences(ORDERS, in_table(ORDERS, "1", "3")) == ["rows missing: 1"]
    assert differences(ORDERS, pd.concat([whole, whole.head(2)])) == ["rows of one key: 2"]
    assert differences(ORDERS, changed(whole, user_email="old")) == ["other values in column user_email: 1"]
    unknown = changed(whole, order_id="9")
    assert differences(ORDERS, unknown) == ["rows of no left event: 1", "rows missing: 1"]
    nothing = whole.assign(user_email=pd.array([None] * 3, dtype="string"))
    assert differences(ORDERS, nothing) == ["other values in column user_email: 1"]
