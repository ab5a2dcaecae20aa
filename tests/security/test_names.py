"""Names with special characters work in every ClickHouse statement and Spark column."""

import json
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from glassflow_dagster.checks.counts import compare_counts
from glassflow_dagster.checks.duplicates import find_residual_duplicates
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.definition.model.sink import Mapping
from glassflow_dagster.definition.model.table_names import write_table_name
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.run import run_pipeline
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.identifiers import full_name
from glassflow_dagster.stores.clickhouse.queries import fetch
from glassflow_dagster.stores.clickhouse.table import require_table
from glassflow_dagster.stores.clickhouse.tables.differences import differences
from glassflow_dagster.stores.clickhouse.tables.prepare import create_target
from glassflow_dagster.stores.dead_letters.purge import purge
from glassflow_dagster.stores.dead_letters.store import DeadLetterStore, as_json
from tests.e2e.support import Pipeline
from tests.servers.stack import Stack
from tests.stores.clickhouse.definitions import sms_status

# Quotes and escapes of both systems, statement separators, comments, placeholders, and other unusual names.
NAMES = [
    "`quoted`",
    '"doubly"',
    "a`b",
    "it's back\\slash",
    "end\\",
    "`; DROP TABLE canary.canary; -- /*",
    "new\nline\ttab",
    "{pipeline:String} %s %(name)d",
    "a.b $$",
    " ünï\u2018cöde\u2019 😀 ",
    "SELECT",
]


# Short enough for a file name after escaping.
TABLE = '`it\'s\\ "ü".\n-- {x:String} %s`'


@pytest.fixture
def pipeline(stack: Stack, shared_session: None, tmp_path: Path) -> Pipeline:  # noqa: ARG001 - the run needs it
    return Pipeline(tmp_path, stack.kafka, stack.clickhouse_port)


@pytest.fixture
def connection(stack: Stack) -> ClickHouseConnection:
    return ClickHouseConnection(host="127.0.0.1", port=stack.clickhouse_port, database="default", username="default")


def test_names_stay_names_through_a_whole_pipeline(pipeline: Pipeline) -> None:
    client = pipeline.client()
    client.command("CREATE DATABASE IF NOT EXISTS canary")
    client.command("CREATE OR REPLACE TABLE canary.canary ENGINE = MergeTree ORDER BY x AS SELECT 1 AS x")
    pipeline.fields = [{"name": name, "type": "string"} for name in NAMES]
    pipeline.columns = dict.fromkeys(NAMES, "String")
    pipeline.keys = NAMES
    pipeline.write().create_topic()
    definition = yaml.safe_load(pipeline.file.read_text())
    definition["sink"]["connection_params"]["database"] = database = f"{pipeline.name} {TABLE}"
    definition["sink"]["table"] = write_table_name(TABLE)
    definition["sink"]["create_table"] = {"columns": [{"name": f"{TABLE} at", "type": "DateTime", "default": "now()"}]}
    definition["checks"] = {"arrival_column": f"{TABLE} at"}
    pipeline.file.write_text(yaml.safe_dump(definition))
    event = {name: f"value of {name}" for name in NAMES}
    other = {**event, "SELECT": "another"}
    pipeline.send([event, other, event, {**event, "end\\": None}])

    config = load_pipeline(pipeline.file, {})
    totals = run_pipeline(config, RunOptions(pipeline.state, until_caught_up=True, timeout_seconds=60), print)

    assert (totals.read, totals.written, totals.duplicates, totals.dead_letters) == (4, 2, 1, 1)
    server = connect(config.sink.connection_params)
    found = require_table(server, database, TABLE)
    assert [*found.columns] == [*NAMES, f"{TABLE} at"]
    rows = client.query(f"SELECT * FROM {full_name(database, TABLE)} ORDER BY `SELECT`").result_rows
    assert [row[: len(NAMES)] for row in rows] == [tuple(other.values()), tuple(event.values())]
    assert list(differences(config, found)) == []
    assert compare_counts(config, print).passed
    assert find_residual_duplicates(config, print).passed
    box = DeadLetterStore.open(config)
    [dead_letter] = box.read("reason LIKE '%null%'")
    assert json.loads(str(as_json(dead_letter)["value"]))["end\\"] is None
    assert purge(box, "stage = 'decode'") == 1
    assert client.query("SELECT x FROM canary.canary").result_rows == [(1,)]


@pytest.mark.parametrize("clause", ["engine", "order_by", "partition_by", "ttl"])
def test_a_clause_of_sql_is_part_of_one_statement(clause: str, connection: ClickHouseConnection) -> None:
    """The text of create_table becomes part of one statement and cannot start a second one."""
    client = connect(connection)
    given = {
        "engine": "MergeTree",
        "order_by": "sms_id",
        "partition_by": "sms_id",
        "ttl": "updated_at + toIntervalDay(9)",
    }
    how = {**given, clause: f"{given[clause]}; CREATE DATABASE second"}
    with pytest.raises(TableProblem, match="Multi-statements are not allowed"):
        create_target(client, sms_status(create_table=how, connection_params=connection))
    assert fetch(client, "SELECT name FROM system.databases WHERE name = 'second'") == []


@pytest.mark.parametrize("kind", ["String); DROP TABLE t --", "Int8 DEFAULT 1", "Enum8('a' = 1, 'b') --", "String # x"])
def test_a_columns_type_is_a_type(kind: str) -> None:
    with pytest.raises(ValidationError, match="is not a ClickHouse type"):
        Mapping(name="a", column_name="a", column_type=kind)
