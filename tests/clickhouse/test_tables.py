"""The target against the definition; on the real engine."""

from pathlib import Path
from typing import Any

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.ddl import ensure_bookkeeping
from glassflow_dagster.clickhouse.errors import TableProblem
from glassflow_dagster.clickhouse.queries import execute
from glassflow_dagster.clickhouse.tables import Column, Table, find_table, misfits, prepare_target
from glassflow_dagster.clickhouse.token_window import TOKENS_KEPT, read_window
from glassflow_dagster.config.load import load_pipeline
from glassflow_dagster.config.model import ClickHouseConnection, PipelineConfig
from glassflow_dagster.config.types import parse_column_type

PIPELINES = Path(__file__).parents[2] / "pipelines"
MAPPED = "sms_id String, status Nullable(String), updated_at DateTime('UTC'), recipient LowCardinality(String)"


@pytest.fixture
def config() -> PipelineConfig:
    return load_pipeline(PIPELINES / "sms_status.yaml", {})


def there(config: PipelineConfig, connection: ClickHouseConnection, **sink: Any) -> PipelineConfig:
    """The definition with the test's database."""
    changed = config.sink.model_copy(update={"connection_params": connection, **sink})
    return config.model_copy(update={"sink": changed})


def described(columns: dict[str, tuple[str, str]]) -> Table:
    parsed = {name: Column(parse_column_type(kind), default) for name, (kind, default) in columns.items()}
    return Table("d", "t", "MergeTree", "MergeTree", parsed, rows=0, ttl=False)


def test_every_misfit_is_named_with_its_place_and_remedy(config: PipelineConfig) -> None:
    table = described({
        "sms_idd": ("String", ""),
        "status": ("UInt8", ""),
        "updated_at": ("DateTime", "MATERIALIZED"),
        "recipient": ("Nullable(String)", ""),
    })  # fmt: skip
    assert list(misfits(config, table)) == [
        "sink.mapping[0].column_name: d.t has no column 'sms_id'; did you mean 'sms_idd'?",
        (
            "sink.mapping[1].column_type: is LowCardinality(String), but column 'status' of d.t is UInt8; "
            "change one of them"
        ),
        (
            "sink.mapping[2].column_name: d.t computes column 'updated_at' itself (MATERIALIZED); "
            "remove it from the mapping"
        ),
    ]


@pytest.mark.parametrize(
    ("engine", "plain", "merges"),
    [
        ("MergeTree", True, False),
        ("ReplicatedMergeTree", True, False),
        ("ReplacingMergeTree", False, True),
        ("SharedSummingMergeTree", False, True),
        ("Memory", False, False),
    ],
)
def test_an_engine_says_whether_rows_stay(engine: str, plain: bool, merges: bool) -> None:
    table = Table("d", "t", engine, engine, {}, rows=0, ttl=False)
    assert (table.is_plain, table.merges_rows) == (plain, merges)


@pytest.mark.servers
def test_a_missing_table_is_made_where_the_definition_says_how(
    config: PipelineConfig, connection: ClickHouseConnection, client: Client
) -> None:
    table = prepare_target(client, there(config, connection), create=False)
    assert (table.engine, table.rows, table.sorting_key) == ("ReplacingMergeTree", 0, "sms_id")
    assert read_window(client, connection.database, table.name).blocks == TOKENS_KEPT
    # Once more: it is found as it is.
    assert prepare_target(client, there(config, connection), create=False) == table


@pytest.mark.servers
def test_a_missing_table_is_not_made_unasked(
    config: PipelineConfig, connection: ClickHouseConnection, client: Client
) -> None:
    silent = there(config, connection, create_table=None)
    with pytest.raises(TableProblem, match=r"--create-table.*CREATE TABLE IF NOT EXISTS"):
        prepare_target(client, silent, create=False)
    assert prepare_target(client, silent, create=True).is_plain


@pytest.mark.servers
def test_an_existing_tables_window_is_switched_on_and_behind_its_views_as_well(
    config: PipelineConfig, connection: ClickHouseConnection, client: Client
) -> None:
    database = connection.database
    name = config.sink.table
    execute(client, f"CREATE DATABASE {database}")
    execute(
        client, f"CREATE TABLE {database}.{name} ({MAPPED}, extra Tuple(a String)) ENGINE = MergeTree ORDER BY sms_id"
    )
    execute(client, f"CREATE TABLE {database}.totals (sms_id String) ENGINE = MergeTree ORDER BY sms_id")
    execute(
        client, f"CREATE MATERIALIZED VIEW {database}.v TO {database}.totals AS SELECT sms_id FROM {database}.{name}"
    )
    execute(
        client,
        f"CREATE MATERIALIZED VIEW {database}.w ENGINE = MergeTree ORDER BY sms_id AS SELECT * FROM {database}.totals",
    )
    assert read_window(client, database, name).blocks == 0
    prepare_target(client, there(config, connection), create=False)
    inner = client.query(f"SELECT name FROM system.tables WHERE database = '{database}' AND name LIKE '.inner%'")
    for table in (name, "totals", inner.result_rows[0][0]):
        assert read_window(client, database, table).blocks == TOKENS_KEPT


@pytest.mark.servers
def test_a_table_that_knows_no_tokens_is_refused(
    config: PipelineConfig, connection: ClickHouseConnection, client: Client
) -> None:
    execute(client, f"CREATE DATABASE {connection.database}")
    execute(client, f"CREATE TABLE {connection.database}.{config.sink.table} ({MAPPED}) ENGINE = Memory")
    with pytest.raises(TableProblem, match="does not recognise a repeated insert"):
        prepare_target(client, there(config, connection), create=False)


@pytest.mark.servers
def test_the_books_are_made_once(connection: ClickHouseConnection, client: Client) -> None:
    for _ in range(2):
        ensure_bookkeeping(client, connection.database)
    for book in ("glassflow_ledger", "glassflow_dead_letters"):
        found = find_table(client, connection.database, book)
        assert found is not None
        assert "inserted_at" in found.columns
