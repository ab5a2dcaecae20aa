"""What the demo's joins must make of the topics' contents, computed anew by pandas, and compared with the tables.

Nothing here is the product's: not its reading, not its deduplication, not its matching.
"""

import json
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from glassflow_dagster.demo.events import FLIGHT_KEY, WEATHER_KEY

# A record of a topic: partition, offset, value.
Record = tuple[int, int, bytes]

# How much of the end of both sources pipelines/flights_with_weather.yaml leaves undecided.
ALLOWED_LATENESS = pd.Timedelta(days=1)
_WEATHER_COLUMNS = ["temp", "wind_speed", "precip", "visib"]
_FLIGHT_COLUMNS = [*FLIGHT_KEY, "dest", "sched_dep_time", "dep_delay", "time_hour"]


@dataclass(frozen=True)
class Joined:
    """What a join must make.

    rows: the table's columns, a row for each left event; `key` tells them apart, and `right_column` is NULL for those
    without a right event only. decided: whether a row must be in the table, or may still wait. unique: events of both
    topics, less their duplicates.
    """

    rows: pd.DataFrame
    key: list[str]
    right_column: str
    decided: "pd.Series[bool]"
    unique: int


def join_orders(orders: Iterable[Record], user_events: Iterable[Record]) -> Joined:
    """Give each order the latest event of its user: all were read at once, so the last of the topic.

    An order of a guest waits for nothing, one without its user for an hour.
    """
    left = _unique(orders, ["order_id"])
    users = _unique(user_events, ["event_id"])
    right = users.drop_duplicates("user_id", keep="last").rename(columns={"name": "user_name", "email": "user_email"})
    rows = left.merge(right[["user_id", "user_name", "user_email"]], how="left", on="user_id")
    decided = rows["user_name"].notna() | rows["user_id"].isna()
    return Joined(rows, ["order_id"], "user_name", decided, len(left) + len(users))


def join_flights(departures: Iterable[Record], weather: Iterable[Record]) -> Joined:
    """Give each flight the weather of its hour at its airport.

    Decided is what lies the allowed lateness behind the newest event of the slower source.
    """
    left = _unique(departures, FLIGHT_KEY)[_FLIGHT_COLUMNS]
    right = _unique(weather, WEATHER_KEY)[[*WEATHER_KEY, *_WEATHER_COLUMNS]]
    rows = left.merge(right, how="left", on=WEATHER_KEY)
    complete = min(pd.to_datetime(side["time_hour"]).max() for side in (left, right)) - ALLOWED_LATENESS
    decided = pd.to_datetime(rows["time_hour"]) < complete
    # The one of the weather's values that is never missing.
    return Joined(rows, FLIGHT_KEY, "visib", decided, len(left) + len(right))


def differences(joined: Joined, found: pd.DataFrame) -> list[str]:
    """Say how a table's rows differ from those that must be there; nothing where they are the same."""
    names = list(joined.rows.columns)
    must, there = (pd.MultiIndex.from_frame(table[joined.key]) for table in (joined.rows, found))
    is_there = must.isin(there)
    expected = joined.rows[is_there].sort_values(joined.key, ignore_index=True)
    in_order = found.sort_values(joined.key, ignore_index=True)
    wrong = {
        "rows of one key": int(there.duplicated().sum()),
        "rows of no left event": int((~there.isin(must)).sum()),
        "rows missing": int((joined.decided & ~is_there).sum()),
    }
    if not any(wrong.values()):
        wrong = {f"other values in column {name}": _unequal(expected[name], in_order[name]) for name in names}
    return [f"{what}: {count:,}" for what, count in wrong.items() if count]


def kinds(table: pd.DataFrame) -> dict[Hashable, str]:
    """Give types for the columns of a table that know missing values and are the same for all sources."""
    numbers = {"int64": "Int64", "Int64": "Int64", "float64": "Float64", "Float64": "Float64"}
    return {name: numbers.get(str(kind), "string") for name, kind in table.dtypes.items()}


def _unequal(expected: "pd.Series[Any]", found: "pd.Series[Any]") -> int:
    same = (expected == found).fillna(value=False) | (expected.isna() & found.isna())
    return int((~same).sum())


def _unique(records: Iterable[Record], key: list[str]) -> pd.DataFrame:
    """Give a topic's events by partition and offset, of each key the first."""
    events = [json.loads(value) for _, _, value in sorted(records, key=lambda record: record[:2])]
    table = pd.DataFrame(events).drop_duplicates(key, ignore_index=True)
    return table.astype(kinds(table))
