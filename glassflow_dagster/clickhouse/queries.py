"""Statements and questions whose errors are meant for people.

Reading and DDL are asked once: whoever waits for a server waits in `wait_for_clickhouse`, and inserts have their own
rules for repetition.
"""

from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from glassflow_dagster.clickhouse.errors import (
    AccessDenied,
    ClickHouseUnreachable,
    TableProblem,
    error_code,
    explain,
    is_access_denied,
    is_right_missing,
)
from glassflow_dagster.errors import GlassflowError


def fetch(client: Client, query: str, parameters: dict[str, Any] | None = None) -> list[tuple[Any, ...]]:
    """Ask a question and give its rows; raises what `failure` makes of an error."""
    try:
        return [tuple(row) for row in client.query(query, parameters=parameters).result_rows]
    except (ClickHouseError, OSError) as error:
        raise failure(client, error) from error


def execute(client: Client, statement: str) -> None:
    """Run a statement that gives no rows; raises what `failure` makes of an error."""
    try:
        client.command(statement)
    except (ClickHouseError, OSError) as error:
        raise failure(client, error, statement) from error


def failure(client: Client, error: BaseException, statement: str = "") -> GlassflowError:
    """Turn an error into the one to show: the server, the user's rights, or what was asked."""
    where, what = f"ClickHouse at {client.uri}", explain(error)
    if error_code(error) is None:
        return ClickHouseUnreachable(f"{where} gave no answer ({what}); look after the server and try again")
    if is_access_denied(error):
        return AccessDenied(f"{where} refuses the user: {what}; correct sink.connection_params")
    remedy = f"; have this run by a user with the right: {statement}" if statement else "; grant the right"
    if is_right_missing(error):
        return AccessDenied(f"{where}: {what}{remedy}")
    return TableProblem(f"{where}: {what}" + (f"; the statement was: {statement}" if statement else ""))
