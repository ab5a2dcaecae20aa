"""Statements and questions whose errors are meant for people.

A command asks once. What a running pipeline asks is put to `retry`: questions and DDL may be repeated freely, and
inserts have their own rules for repetition.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from glassflow_dagster.clickhouse.errors import (
    AccessDenied,
    ClickHouseUnreachable,
    TableProblem,
    explain,
    is_access_denied,
    is_passing,
    is_right_missing,
)
from glassflow_dagster.errors import GlassflowError

T = TypeVar("T")

_FIRST_PAUSE = 0.1  # seconds; a reset connection is usually there again at once
_LONGEST_PAUSE = 10.0  # seconds; a server that merges or restarts needs some, and must not be hammered


def asked(client: Client, ask: Callable[[], T]) -> T:
    """Put a question to the client; raises what `failure` makes of an error."""
    try:
        return ask()
    except (ClickHouseError, OSError) as error:
        raise failure(client, error) from error


def fetch(client: Client, query: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    """Ask a question and give its rows; raises what `failure` makes of an error."""
    return asked(client, lambda: [tuple(row) for row in client.query(query, parameters=parameters).result_rows])


def execute(client: Client, statement: str, parameters: dict[str, Any] | None = None) -> None:
    """Run a statement that gives no rows; raises what `failure` makes of an error."""
    try:
        client.command(statement, parameters=parameters)
    except (ClickHouseError, OSError) as error:
        raise failure(client, error, statement) from error


def failure(client: Client, error: BaseException, statement: str = "") -> GlassflowError:
    """Turn an error into the one to show: the server, the user's rights, or what was asked."""
    where, what = f"ClickHouse at {client.uri}", explain(error)
    if is_passing(error):
        return ClickHouseUnreachable(f"{where} gave no answer ({what}); look after the server and try again")
    if is_access_denied(error):
        return AccessDenied(f"{where} refuses the user: {what}; correct sink.connection_params")
    remedy = f"; have this run by a user with the right: {statement}" if statement else "; grant the right"
    if is_right_missing(error):
        return AccessDenied(f"{where}: {what}{remedy}")
    return TableProblem(f"{where}: {what}" + (f"; the statement was: {statement}" if statement else ""))


def retry(ask: Callable[[], T], seconds: float, report: Callable[[str], None]) -> T:
    """Ask until the server answers; raises what `ask` raises, `ClickHouseUnreachable` only after so many seconds."""
    deadline, waits = time.monotonic() + seconds, pauses()
    while True:
        try:
            return ask()
        except ClickHouseUnreachable as error:
            pause = next(waits)
            if time.monotonic() + pause > deadline:
                raise
            report(f"{error}; again in {pause:.1f} s")
        time.sleep(pause)


def pauses() -> Iterator[float]:
    """Give the seconds to wait before each further attempt, ever longer and without an end."""
    pause = _FIRST_PAUSE
    while True:
        yield pause
        pause = min(pause * 2, _LONGEST_PAUSE)
