"""A table that is there, on a real server: its columns are proposed for the fields, and what does not fit is marked."""

import uuid
from collections.abc import Iterator

import clickhouse_connect
import pytest

from glassflow_dagster.definition.load import load_written
from glassflow_dagster.definition.shared_tables import Writer
from glassflow_dagster.inference.definition import address_of, definition_of
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.questions import YES, AnswerRefused
from glassflow_dagster.server.wizard.steps import clickhouse, columns, table
from tests.server.wizard.drafts import draft
from tests.servers.stack import Stack

pytestmark = pytest.mark.servers
DDL = """
CREATE TABLE {}.orders (
    orderId String, User_ID LowCardinality(String), price Decimal(10, 2), amount Array(String), note String,
    loaded DateTime DEFAULT now(), day Date MATERIALIZED toDate(loaded), users AggregateFunction(uniq, String),
    any Dynamic(max_types=3)
) ENGINE MergeTree ORDER BY orderId
"""


@pytest.fixture
def database(stack: Stack) -> Iterator[str]:
    name = f"wizard{uuid.uuid4().hex[:8]}"
    client = clickhouse_connect.get_client(host="127.0.0.1", port=stack.clickhouse_port)
    client.command(f"CREATE DATABASE {name}")
    client.command(DDL.format(name))
    client.command(f"CREATE TABLE {name}.`shop.orders` (order_id String) ENGINE MergeTree ORDER BY order_id")
    yield name
    client.command(f"DROP DATABASE {name}")
    client.close()


@pytest.fixture
def made(stack: Stack, database: str) -> Draft:
    """Return a draft whose table is chosen, but not its columns."""
    found = draft()
    said = clickhouse.STEP.answer(found, {"host": "127.0.0.1", "http_port": str(stack.clickhouse_port)})
    assert said.startswith("Connected: ClickHouse")
    assert database in found.databases
    assert [each.value for each in table.tables_of(found, database)] == ["orders", "shop.orders"]
    # A column that the server computes is not to be filled, nor one that no field can fill.
    assert table.STEP.answer(found, {"database": database, "table": "orders"}).endswith("has 6 columns to fill.")
    return found


def answers(made: Draft, **changes: str) -> dict[str, str]:
    found = {}
    for index, row in enumerate(columns.rows(made)):
        found |= {f"column.{index}": row.mapped.column, f"type.{index}": row.mapped.type}
        found |= {f"use.{index}": YES} if row.mapped.used else {}
    return {**found, **changes}


def test_columns_are_proposed_by_name_and_what_does_not_fit_is_marked(made: Draft) -> None:
    proposed = {each.mapped.field: (each.mapped.column, each.mapped.type) for each in columns.rows(made)}
    assert proposed["order_id"] == ("orderId", "String")
    assert proposed["user_id"] == ("User_ID", "LowCardinality(String)")
    assert proposed["price"] == ("price", "Decimal(10, 2)")
    with pytest.raises(AnswerRefused) as refused:
        columns.STEP.answer(made, answers(made))
    # An integer is no array; the mark is at its row.
    wrong = next(index for index, each in enumerate(columns.rows(made)) if each.mapped.field == "amount")
    assert {each.path for each in refused.value.problems} == {f"type.{wrong}"}


def test_the_definition_fills_the_table_that_is_there(made: Draft, database: str) -> None:
    wrong = next(index for index, each in enumerate(columns.rows(made)) if each.mapped.field == "amount")
    said = columns.STEP.answer(made, answers(made, **{f"use.{wrong}": ""}))
    assert said == "Columns that are filled: 3. With their type's default: amount, note."
    config = load_written(definition_of(made))
    assert config.sink.create_table is None
    assert (config.sink.connection_params.database, config.sink.table) == (database, "orders")


def test_a_table_of_another_pipeline_is_refused_unless_that_says_that_it_is_shared(made: Draft, database: str) -> None:
    address = address_of(made, database, "orders")
    answer = {"database": database, "table": "orders"}
    made.writers = [Writer("orders-clean", None, shares=False, tables={address: "sink.table"})]
    assert next(each.remark for each in table.tables_of(made, database)) == "MergeTree, written by orders-clean"
    with pytest.raises(AnswerRefused) as refused:
        table.STEP.answer(made, answer)
    [problem] = refused.value.problems
    assert problem.path == "table"
    assert problem.text.startswith(f"{database}.orders is also written by pipeline 'orders-clean'; name another table")
    made.writers = [Writer("orders-clean", None, shares=True, tables={address: "sink.table"})]
    assert table.STEP.answer(made, answer).endswith("Other pipelines write to it, too (sink.shared_table).")
    assert definition_of(made)["sink"]["shared_table"] is True


def test_the_name_of_a_table_may_have_dots(made: Draft, database: str) -> None:
    table.STEP.answer(made, {"database": database, "table": "shop.orders"})
    config = load_written(definition_of(made))
    assert config.sink.full_table == (database, "shop.orders")


def test_a_column_that_the_table_does_not_have_is_marked(made: Draft) -> None:
    with pytest.raises(AnswerRefused, match="the table has no column 'day'"):
        columns.STEP.answer(made, answers(made, **{"column.0": "day"}))
