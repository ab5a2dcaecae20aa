"""Queries and statements whose errors are raised as `GlassflowError`s with a remedy.

A command runs a query once; a running pipeline wraps queries in `retry`. Queries and DDL may be repeated freely;
inserts have their own rules for repetition (`inserts/insert.py`).
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.clickhouse.errors import (
    AccessDenied,
    ClickHouseUnreachable,
    TableProblem,
    explain,
    is_access_denied,
    is_right_missing,
    is_transient,
)

T = TypeVar("T")

_FIRST_PAUSE = 0.1  # seconds; a reset connection usually works again at once
_LONGEST_PAUSE = 10.0  # seconds; a server that merges or restarts needs some, and must not be flooded


def translate_errors(client: Client, query: Callable[[], T]) -> T:
    """Return the result of `query`; an error of the client is raised as its `to_glassflow_error`."""
    try:
        return query()
    except (ClickHouseError, OSError) as error:
        raise to_glassflow_error(client, error) from error


def fetch(client: Client, query: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    """Return the rows of a query; an error is raised as its `to_glassflow_error`."""
    return translate_errors(
        client, lambda: [tuple(row) for row in client.query(query, parameters=parameters).result_rows]
    )


def execute(client: Client, statement: str, parameters: dict[str, Any] | None = None) -> None:
    """Run a statement without a result; an error is raised as its `to_glassflow_error`."""
    try:
        client.command(statement, parameters=parameters)
    except (ClickHouseError, OSError) as error:
        raise to_glassflow_error(client, error, statement) from error


def to_glassflow_error(client: Client, error: BaseException, statement: str = "") -> GlassflowError:
    """Return the error to show for an error of the client.

    `ClickHouseUnreachable` for a transient one, `AccessDenied` for a rejected user or a missing right, else
    `TableProblem`. statement: shown in the message; '' for a query.
    """
    where, reason = f"ClickHouse at {client.uri}", explain(error)
    if is_transient(error):
        return ClickHouseUnreachable(f"{where} did not answer ({reason}); check the server and try again")
    if is_access_denied(error):
        return AccessDenied(f"{where} refuses the user: {reason}; correct sink.connection_params")
    remedy = f"; run this as a user with the right: {statement}" if statement else "; grant the right"
    if is_right_missing(error):
        return AccessDenied(f"{where}: {reason}{remedy}")
    return TableProblem(f"{where}: {reason}" + (f"; the statement was: {statement}" if statement else ""))


def retry(query: Callable[[], T], seconds: float, report: Callable[[str], None]) -> T:
    """Return the result of `query`, repeated while it raises `ClickHouseUnreachable`, for at most `seconds`.

    report: receives each of these errors. Raises what `query` raises; `ClickHouseUnreachable` only when the next
    attempt would begin after that time.
    """
    deadline, pauses = time.monotonic() + seconds, backoff_pauses()
    while True:
        try:
            return query()
        except ClickHouseUnreachable as error:
            pause = next(pauses)
            if time.monotonic() + pause > deadline:
                raise
            report(f"{error}; retrying in {pause:.1f} s")
        time.sleep(pause)


def backoff_pauses() -> Iterator[float]:
    """Yield the seconds to wait before each further attempt: doubling up to `_LONGEST_PAUSE`, without end."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * 2, _LONGEST_PAUSE)
