"""The connection to ClickHouse."""

from typing import Any

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.definition import default_clickhouse
from glassflow_dagster.server.api.api_error import ApiError
from glassflow_dagster.server.api.connections import parsed
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.questions import YES, AnswerRefused, Answers, Question, given, refused, required
from glassflow_dagster.server.wizard.steps.step import Step
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.names import list_databases


def _ask(draft: Draft) -> list[Question]:
    known = draft.clickhouse or default_clickhouse()
    connection = parsed(ClickHouseConnection, {"database": "default", "username": "default", **known})
    return [
        Question("host", "Host", value=connection.host),
        Question("http_port", "HTTP port", value=str(connection.http), help="8123 by default, 8443 with TLS"),
        Question("username", "User", value=connection.username),
        Question(
            "password", "Password", "password",
            help="empty: the one that was given before" if (draft.clickhouse or {}).get("password") else "may be empty",
        ),
        Question("secure", "TLS", "check", YES if connection.secure else "", help="encrypt the connection"),
    ]  # fmt: skip


def _answer(draft: Draft, answers: Answers) -> str:
    port = required(answers, "http_port", "8123 by default")
    secure = bool(given(answers, "secure"))
    connection: dict[str, Any] = {
        "host": required(answers, "host", "write a name or an address"),
        # GlassFlow connects to the native port, which is not asked for here.
        "port": "9440" if secure else "9000", "http_port": port, "database": "default",
        "username": given(answers, "username") or "default", "password": answers.get("password", ""), "secure": secure,
    }  # fmt: skip
    known = draft.clickhouse or {}
    if not connection["password"] and known.get("password"):
        if any(known.get(name) != connection[name] for name in ("host", "http_port", "secure", "username")):
            raise refused("password", "was given for another server or user; give it again")
        connection["password"] = known["password"]
    try:
        with connect(parsed(ClickHouseConnection, connection)) as client:
            draft_databases, version = tuple(list_databases(client)), client.server_version
    except ApiError as error:
        raise AnswerRefused(error.problems) from None
    except GlassflowError as error:
        raise refused("host", str(error)) from None
    if draft.clickhouse is not None and draft.clickhouse != connection:
        draft.target, draft.mapping = None, ()
        draft.forget("table", "columns")
    draft.clickhouse, draft.databases = connection, draft_databases
    draft.answered("clickhouse")
    return f"Connected: ClickHouse {version}."


STEP = Step("clickhouse", "ClickHouse", "Where the rows go.", _ask, _answer)
