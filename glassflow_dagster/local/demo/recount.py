"""Computes the expected rows of the demo's joins with pandas and compares them with the tables.

No code of the product is used for this, neither for reading nor for deduplication or matching.
"""

import json
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from glassflow_dagster.local.demo.events import FLIGHT_KEY, WEATHER_KEY

# A record of a topic: partition, offset, value.
Record = tuple[int, int, bytes]

# The allowed lateness in pipelines/flights_with_weather.yaml: events newer than the watermark are still waiting.
ALLOWED_LATENESS = pd.Timedelta(days=1)
_WEATHER_COLUMNS = ["temp", "wind_speed", "precip", "visib"]
_FLIGHT_COLUMNS = [*FLIGHT_KEY, "dest", "sched_dep_time", "dep_delay", "time_hour"]


@dataclass(frozen=True)
class Joined:
    """The expected rows of a join.

    rows: the table's columns, one row per left event; `key` identifies a row, and `right_column` is NULL exactly in
        rows without a right event.
    decided: per row, True when it must be in the table, False when the join may still wait for its right event.
    unique: the number of events of both topics without duplicates.
    """

    rows: pd.DataFrame
    key: list[str]
    right_column: str
    decided: "pd.Series[bool]"
    unique: int


def join_orders(orders: Iterable[Record], user_events: Iterable[Record]) -> Joined:
    """Join each order with the latest event of its user, which is the user's last event in the topic.

    An order of a guest is decided at once; an order of an unknown user waits for an hour.
    """
    left = _unique(orders, ["order_id"])
    users = _unique(user_events, ["event_id"])
    right = users.drop_duplicates("user_id", keep="last").rename(columns={"name": "user_name", "email": "user_email"})
    rows = left.merge(right[["user_id", "user_name", "user_email"]], how="left", on="user_id")
    decided = rows["user_name"].notna() | rows["user_id"].isna()
    return Joined(rows, ["order_id"], "user_name", decided, len(left) + len(users))


def join_flights(departures: Iterable[Record], weather: Iterable[Record]) -> Joined:
    """Join each flight with the weather of its hour at its airport.

    Decided are the flights before the watermark: the newest time of the slower source less the allowed lateness.
    """
    left = _unique(departures, FLIGHT_KEY)[_FLIGHT_COLUMNS]
    right = _unique(weather, WEATHER_KEY)[[*WEATHER_KEY, *_WEATHER_COLUMNS]]
    rows = left.merge(right, how="left", on=WEATHER_KEY)
    watermark = min(pd.to_datetime(side["time_hour"]).max() for side in (left, right)) - ALLOWED_LATENESS
    decided = pd.to_datetime(rows["time_hour"]) < watermark
    # visib is the only weather column without missing values.
    return Joined(rows, FLIGHT_KEY, "visib", decided, len(left) + len(right))


def differences(joined: Joined, actual: pd.DataFrame) -> list[str]:
    """Compare a table's rows with the expected ones; return one line per kind of difference, empty when equal."""
    names = list(joined.rows.columns)
    expected_keys, actual_keys = (pd.MultiIndex.from_frame(table[joined.key]) for table in (joined.rows, actual))
    is_in_table = expected_keys.isin(actual_keys)
    expected_rows = joined.rows[is_in_table].sort_values(joined.key, ignore_index=True)
    actual_rows = actual.sort_values(joined.key, ignore_index=True)
    counts = {
        "rows of one key": int(actual_keys.duplicated().sum()),
        "rows of no left event": int((~actual_keys.isin(expected_keys)).sum()),
        "rows missing": int((joined.decided & ~is_in_table).sum()),
    }
    # Values can be compared row by row only when the keys agree.
    if not any(counts.values()):
        counts = {f"other values in column {name}": _unequal(expected_rows[name], actual_rows[name]) for name in names}
    return [f"{kind}: {count:,}" for kind, count in counts.items() if count]


def kinds(table: pd.DataFrame) -> dict[Hashable, str]:
    """Return pandas types for a table's columns that allow missing values: Int64, Float64 or string."""
    numbers = {"int64": "Int64", "Int64": "Int64", "float64": "Float64", "Float64": "Float64"}
    return {name: numbers.get(str(kind), "string") for name, kind in table.dtypes.items()}


def _unequal(expected: "pd.Series[Any]", actual: "pd.Series[Any]") -> int:
    """Count the values that differ; two missing values are equal."""
    # A comparison with a missing value is missing, too: not equal, unless both values are missing.
    is_equal = (expected == actual).fillna(value=False) | (expected.isna() & actual.isna())
    return int((~is_equal).sum())


def _unique(records: Iterable[Record], key: list[str]) -> pd.DataFrame:
    """Return a topic's events in the order of partition and offset, only the first one of each key."""
    events = [json.loads(value) for _, _, value in sorted(records, key=lambda record: record[:2])]
    table = pd.DataFrame(events).drop_duplicates(key, ignore_index=True)
    return table.astype(kinds(table))
