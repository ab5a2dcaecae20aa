"""The command `table`, on a real ClickHouse."""

from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner, Result

from glassflow_dagster.cli import main
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.queries import execute, fetch
from tests.servers.stack import Stack

SHIPPED = Path(__file__).parents[2] / "pipelines" / "sms_status.yaml"


@pytest.fixture
def definition(tmp_path: Path) -> Path:
    """Return the shipped sms_status pipeline with the test's own database and an optional `recipient`."""
    text = SHIPPED.read_text().replace("database: analytics", f"database: test_{uuid4().hex}")
    file = tmp_path / "sms_status.yaml"
    file.write_text(text.replace("recipient, type: string", "recipient, type: string, required: false"))
    return file


def table(definition: Path, *options: str, stack: Stack | None = None) -> Result:
    return CliRunner().invoke(main, ["table", str(definition), *options], env=stack.environment if stack else {})


def test_the_statement_is_printed_without_a_server(definition: Path) -> None:
    done = table(definition, "--print")
    assert (done.exit_code, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("CREATE TABLE IF NOT EXISTS")
    assert "    `recipient` Nullable(String)," in lines
    assert lines[-1] == "SETTINGS non_replicated_deduplication_window = 10000;"


@pytest.mark.parametrize(
    "options", [(), ("--print", "--create"), ("--print", "--alter"), ("--create", "--alter"), ("--alter",)], ids=str
)
def test_one_thing_is_asked_for(definition: Path, options: tuple[str, ...]) -> None:
    assert table(definition, *options).exit_code == 2


@pytest.mark.servers
def test_a_table_is_created_compared_and_given_what_it_lacks(definition: Path, stack: Stack) -> None:
    config = load_pipeline(definition, stack.environment)
    client, name = connect(config.sink.connection_params), ".".join(config.sink.full_table)

    missing = table(definition, "--diff", stack=stack)
    assert missing.exit_code == 1
    assert missing.stdout == (
        f"{definition}: sink.table: {name} does not exist; create it: glassflow-dagster table {definition} --create\n"
    )
    made = table(definition, "--create", stack=stack)
    assert (made.exit_code, made.stdout) == (0, f"{name}: created\n")
    again = table(definition, "--create", stack=stack)
    assert (again.exit_code, again.stdout) == (0, f"{name}: is there already\n")
    same = table(definition, "--diff", stack=stack)
    assert (same.exit_code, same.stdout) == (0, "")
    assert f"{name} accepts the rows of {definition}" in same.stderr

    execute(client, f"ALTER TABLE {name} DROP COLUMN recipient, ADD COLUMN mine String")
    note = (
        f"{definition}: note: sink.mapping: nothing fills column 'mine' (String) of {name}, which has no default: "
        "every row gets the type's empty value; map a field to it, or ignore this note"
    )
    differs = table(definition, "--diff", stack=stack)
    assert differs.exit_code == 1
    missing_column = (
        f"{definition}: sink.mapping[3].column_name: {name} has no column 'recipient'; add it with glassflow-dagster "
        "table FILE --diff --alter"
    )
    assert differs.stdout.splitlines() == [missing_column, note]
    altered = table(definition, "--diff", "--alter", stack=stack)
    assert altered.exit_code == 0
    quoted = ".".join(f"`{part}`" for part in config.sink.full_table)
    assert altered.stdout.splitlines() == [
        f"ALTER TABLE {quoted} ADD COLUMN IF NOT EXISTS `recipient` Nullable(String);",
        note,
    ]
    columns = dict(
        fetch(client, f"SELECT name, type FROM system.columns WHERE database = '{config.sink.full_table[0]}'")
    )
    assert columns["recipient"] == "Nullable(String)"
    assert "mine" in columns
