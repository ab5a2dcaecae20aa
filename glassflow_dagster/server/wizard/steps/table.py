"""Database and table: a new one, or one that is there."""

import re
from collections.abc import Callable
from typing import Any

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.types import parse_column_type, unsupported_reason
from glassflow_dagster.definition.shared_tables import Writer, others_of, sharing_problems
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.definition import address_of, proposed_table
from glassflow_dagster.inference.draft import ServerColumn, Target
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.questions import AnswerRefused, Answers, Option, Question, refused, required
from glassflow_dagster.server.wizard.steps.step import Step
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.names import list_columns, list_tables

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The bookkeeping tables.
_OWN = "glassflow_"
# Columns of these kinds are computed by the server.
_COMPUTED = {"MATERIALIZED", "ALIAS", "EPHEMERAL"}


def _ask(draft: Draft) -> list[Question]:
    database = draft.target.database if draft.target else "analytics"
    table = draft.target.table if draft.target else proposed_table(draft, database)
    return [
        Question(
            "database", "Database", "suggest", database, tuple(map(Option, draft.databases)),
            "one that is there, or the name of a new one",
        ),
        Question(
            "table", "Table", "suggest", table, tables_of(draft, database),
            "one that is there, or the name of a new one",
        ),
    ]  # fmt: skip


def tables_of(draft: Draft, database: str) -> tuple[Option, ...]:
    """Return the tables of a database, with their engines; without the product's own. Empty without an answer.

    The remark names the pipelines that write to a table already.
    """
    if database not in draft.databases:
        return ()
    try:
        found = _asked(draft, lambda client: list_tables(client, database))
    except GlassflowError:
        # They are suggestions: the answer is checked.
        return ()
    return tuple(
        Option(each["name"], remark=", ".join([each["engine"], *_written_by(draft, database, each["name"])]))
        for each in found
        if not each["name"].startswith(_OWN)
    )


def _written_by(draft: Draft, database: str, table: str) -> list[str]:
    """Return a remark on each pipeline that writes to a table."""
    others = others_of(address_of(draft, database, table), "", draft.writers)
    return [f"written by {other.pipeline_id}" for other in others]


def _answer(draft: Draft, answers: Answers) -> str:
    database = required(answers, "database", "choose one, or name a new one")
    table = required(answers, "table", "choose one, or name a new one")
    try:
        found = _asked(draft, lambda client: list_columns(client, database, table))
    except GlassflowError as error:
        raise refused("table", str(error)) from None
    for name, text in (("database", database), ("table", table)):
        if not found and not _NAME.fullmatch(text):
            raise refused(name, "a new one has letters, digits and '_' only, and no digit first; choose another name")
    columns = tuple(
        ServerColumn(each["name"], each["type"], bool(each["default_kind"]))
        for each in found
        if each["default_kind"] not in _COMPUTED and _can_be_filled(each["type"])
    )
    shared = _is_shared(draft, database, table)
    target = Target(database, table, columns if found else None, shared)
    if target != draft.target:
        draft.mapping, draft.order_by = (), ""
        draft.forget("columns")
    draft.target = target
    draft.answered("table")
    if found:
        also = " Other pipelines write to it, too (sink.shared_table)." if shared else ""
        return f"{database}.{table} has {len(columns)} column{'s' if len(columns) != 1 else ''} to fill.{also}"
    return f"{database}.{table} is new; it is created when the pipeline starts."


def _is_shared(draft: Draft, database: str, table: str) -> bool:
    """Return whether other pipelines write to a table; raises `AnswerRefused` unless they say that they share it."""
    address = address_of(draft, database, table)
    others = others_of(address, "", draft.writers)
    asked = Writer("", None, all(other.shares for other in others), {address: "table"})
    if found := sharing_problems(asked, draft.writers):
        raise AnswerRefused(found)
    return bool(others)


def _can_be_filled(kind: str) -> bool:
    """Return whether a field can fill a column of this type."""
    try:
        return unsupported_reason(parse_column_type(kind)) is None
    except ValueError:
        return False


def _asked(draft: Draft, ask: Callable[[Client], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    with connect(draft.clickhouse_connection) as client:
        return ask(client)


STEP = Step("table", "Table", "The table that gets the rows.", _ask, _answer)
