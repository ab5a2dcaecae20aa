"""Preparation of the target table, on a real ClickHouse."""

from collections.abc import Callable

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.sink import Mapping
from glassflow_dagster.definition.model.types import parse_column_type
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.bookkeeping.windows import Windows
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.queries import execute
from glassflow_dagster.stores.clickhouse.table import Table, find_table
from glassflow_dagster.stores.clickhouse.tables.differences import differences
from glassflow_dagster.stores.clickhouse.tables.prepare import add_missing_columns, prepare_target, secure_target
from glassflow_dagster.stores.clickhouse.tables.token_window import TOKENS_KEPT, read_window
from tests.stores.clickhouse.definitions import sms_status

MAPPED = "sms_id String, status Nullable(String), updated_at DateTime('UTC'), recipient LowCardinality(String)"


def prepared(
    client: Client, config: PipelineConfig, *, create: bool = False, warn: Callable[[str], None] = print
) -> Table:
    """Prepare and secure a target table as a driver does."""
    table = prepare_target(client, config, create=create)
    ensure_bookkeeping(client, config.sink.connection_params.database)
    notes = Windows(client, config.sink.connection_params.database)
    return secure_target(client, config, table, notes, warn)


@pytest.fixture
def config(connection: ClickHouseConnection) -> PipelineConfig:
    """Return the definition with the test's database."""
    return sms_status(connection_params=connection)


@pytest.mark.servers
def test_a_missing_table_is_made_where_the_definition_says_how(
    config: PipelineConfig, connection: ClickHouseConnection, client: Client
) -> None:
    table = prepare_target(client, config, create=False)
    assert (table.engine, table.rows, table.sorting_key) == ("ReplacingMergeTree", 0, "sms_id")
    assert read_window(client, connection.database, table.name).blocks == TOKENS_KEPT
    # Once more: the existing table is found.
    assert prepare_target(client, config, create=False) == table


@pytest.mark.servers
@pytest.mark.parametrize("create", [True, False])
def test_a_name_with_dots_that_another_table_has_is_explained(
    connection: ClickHouseConnection, client: Client, create: bool
) -> None:
    own = connection.database
    execute(client, f"CREATE DATABASE {own}")
    execute(client, f"CREATE TABLE {own}.`shop_{own}.orders.v1` (sms_id String) ENGINE = MergeTree ORDER BY sms_id")
    mapping = [{"name": "sms_id", "column_name": "sms_id", "column_type": "String"}]
    name = f"shop_{own}.orders.v1"

    def config(table: str) -> PipelineConfig:
        return sms_status(connection_params=connection, create_table=None, mapping=mapping, table=table)

    with pytest.raises(TableProblem) as error:
        prepare_target(client, config(name), create=create)
    assert str(error.value) == (
        f"sink.table: {name} (table orders.v1 of database shop_{own}) does not exist, but {own} has a table `{name}`; "
        f"write {own}.{name}, or `{name}` with the backquotes"
    )
    # Nothing was created, and each advice leads to the table.
    assert not has_database(client, f"shop_{own}")
    for advised in (f"{own}.{name}", f"`{name}`"):
        assert prepare_target(client, config(advised), create=create).name == name


@pytest.mark.servers
def test_of_a_missing_table_with_dots_it_is_said_how_its_name_is_read(
    connection: ClickHouseConnection, client: Client
) -> None:
    silent = sms_status(connection_params=connection, create_table=None, table=f"{connection.database}.orders.v1")
    with pytest.raises(
        TableProblem, match=rf"orders\.v1 \(table orders.v1 of database {connection.database}\) does not"
    ):
        prepare_target(client, silent, create=False)


def has_database(client: Client, name: str) -> bool:
    return bool(client.query("SELECT 1 FROM system.databases WHERE name = {n:String}", {"n": name}).result_rows)


@pytest.mark.servers
def test_a_missing_table_is_not_made_unasked(connection: ClickHouseConnection, client: Client) -> None:
    silent = sms_status(connection_params=connection, create_table=None)
    with pytest.raises(TableProblem, match=r"run with --create-table.*table FILE --create"):
        prepare_target(client, silent, create=False)
    assert prepare_target(client, silent, create=True).is_plain


@pytest.mark.servers
def test_a_table_is_not_made_of_types_that_only_an_existing_one_completes(
    config: PipelineConfig, connection: ClickHouseConnection, client: Client
) -> None:
    first, *others = config.sink.mapping
    bare = first.model_copy(update={"column_type": "Enum8"})
    bad = sms_status(connection_params=connection, mapping=(bare, *others))
    with pytest.raises(TableProblem, match=r"^sink.mapping\[0\].column_type: Enum8 needs its values"):
        prepare_target(client, bad, create=True)


@pytest.mark.servers
def test_types_are_compared_as_the_server_writes_them(connection: ClickHouseConnection, client: Client) -> None:
    declared = {
        "a": ("Decimal64(2)", "Decimal64(2)"),
        "b": ("Tuple(x Int8, `y z` String)", "Tuple(x Nullable(Int8), `y z` LowCardinality(String))"),
        "c": ("Array(Map(String, DateTime64(3)))", "Array(Map(LowCardinality(String), DateTime64(3, 'UTC')))"),
        "d": ("JSON", "JSON(max_dynamic_paths = 8, p.q UInt8, SKIP r)"),
        "e": ("Tuple(Enum8, FixedString)", "Tuple(Enum8('it\\'s' = 1), FixedString(4))"),
        "f": ("Map(IPv6, UInt256)", "Map(IPv6, UInt256)"),
    }
    columns = ", ".join(f"{name} {actual}" for name, (_, actual) in declared.items())
    execute(client, f"CREATE DATABASE {connection.database}")
    execute(client, f"CREATE TABLE {connection.database}.t ({columns}) ENGINE = MergeTree ORDER BY tuple()")
    mapping = tuple(Mapping(name=name, column_name=name, column_type=of) for name, (of, _) in declared.items())
    table = find_table(client, connection.database, "t")
    assert table is not None
    found = differences(sms_status(connection_params=connection, table="t", mapping=mapping), table)
    assert [str(difference) for difference in found if difference.stops] == []
    # The text of a type parses to the same type.
    assert all(parse_column_type(str(column.type)) == column.type for column in table.columns.values())


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
    prepared(client, config)
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
        prepare_target(client, config, create=False)


@pytest.mark.servers
def test_a_table_made_by_a_definition_differs_from_it_in_nothing(
    connection: ClickHouseConnection, client: Client
) -> None:
    created = [
        {},
        {"engine": "MergeTree()", "order_by": "(status, sms_id)", "partition_by": None, "columns": ()},
        {
            "engine": "ReplacingMergeTree ( `seen` )",
            "order_by": "tuple( `sms_id`, toDate( updated_at ) )",
            "partition_by": "(status, toYYYYMM(updated_at))",
            "ttl": "updated_at + INTERVAL 1 DAY",
            "columns": [{"name": "seen", "type": "DateTime64(3,'UTC')", "default": "now64(3)"}],
        },
    ]
    for number, how in enumerate(created):
        config = sms_status(
            fields={"recipient": {"required": False}, "status": {"required": False}},
            connection_params=connection,
            table=f"t{number}",
            create_table=how,
        )
        table = prepare_target(client, config, create=False)
        assert [str(found) for found in differences(config, table) if "status" not in str(found)] == []
        assert str(table.columns["recipient"].type) == "Nullable(String)"
        # A column of the sorting or partition key cannot be Nullable.
        rests = "status" in str(how)
        assert str(table.columns["status"].type) == (
            "LowCardinality(String)" if rests else "LowCardinality(Nullable(String))"
        )


@pytest.mark.servers
def test_missing_columns_are_added_and_nothing_else_is_changed(
    config: PipelineConfig, connection: ClickHouseConnection, client: Client
) -> None:
    name = f"{connection.database}.{config.sink.table}"
    execute(client, f"CREATE DATABASE {connection.database}")
    execute(
        client, f"CREATE TABLE {name} (sms_id String, status UInt8, mine String) ENGINE = MergeTree ORDER BY sms_id"
    )
    execute(client, f"INSERT INTO {name} VALUES ('a', 1, 'x')")
    table = find_table(client, connection.database, config.sink.table)
    assert table is not None
    said: list[str] = []
    left = add_missing_columns(client, config, table, said.append)
    quoted = f"`{connection.database}`.`{config.sink.table}`"
    assert said == [
        f"ALTER TABLE {quoted} ADD COLUMN IF NOT EXISTS `updated_at` DateTime",
        f"ALTER TABLE {quoted} ADD COLUMN IF NOT EXISTS `recipient` String",
        f"ALTER TABLE {quoted} ADD COLUMN IF NOT EXISTS `ingested_at` DateTime DEFAULT now()",
    ]
    assert [found.path for found in left if found.stops] == ["sink.mapping[1].column_type"]
    rows = client.query(f"SELECT sms_id, status, mine, recipient FROM {name}").result_rows
    assert rows == [("a", 1, "x", "")]
    # Once more: there is nothing to add.
    altered = find_table(client, connection.database, config.sink.table)
    assert altered is not None
    said.clear()
    assert add_missing_columns(client, config, altered, said.append) == left
    assert said == []


@pytest.mark.servers
def test_a_table_of_another_engine_gets_no_columns(
    config: PipelineConfig, connection: ClickHouseConnection, client: Client
) -> None:
    execute(client, f"CREATE DATABASE {connection.database}")
    execute(client, f"CREATE TABLE {connection.database}.{config.sink.table} (sms_id String) ENGINE = Memory")
    table = find_table(client, connection.database, config.sink.table)
    assert table is not None
    left = add_missing_columns(client, config, table, pytest.fail)
    assert left[0].path == "sink.table"
    assert "does not recognise a repeated insert" in left[0].text


@pytest.mark.servers
@pytest.mark.parametrize("engine", ["Memory", "Log", "Null"])
def test_a_table_that_knows_no_tokens_is_taken_with_a_warning_where_rows_may_be_doubled(
    connection: ClickHouseConnection, client: Client, engine: str
) -> None:
    config = sms_status(connection_params=connection, delivery="at_least_once", create_table={"engine": engine})
    name = f"{connection.database}.{config.sink.table}"
    said: list[str] = []
    table = prepared(client, config, warn=said.append)
    assert table.engine == engine
    reason = f"{name} is a {engine} table, which does not recognise a repeated insert"
    allowed = "a batch that is repeated after a failure may duplicate rows, as sink.delivery: at_least_once allows"
    assert said == [f"{allowed} ({reason})"]
    assert [found.path for found in differences(config, table) if found.stops] == []


@pytest.mark.servers
def test_where_rows_may_be_doubled_a_window_is_switched_on_all_the_same_and_views_are_named(
    connection: ClickHouseConnection, client: Client
) -> None:
    config = sms_status(connection_params=connection, delivery="at_least_once")
    database, name = connection.database, config.sink.table
    execute(client, f"CREATE DATABASE {database}")
    execute(client, f"CREATE TABLE {database}.{name} ({MAPPED}) ENGINE = MergeTree ORDER BY sms_id")
    execute(client, f"CREATE TABLE {database}.copy (sms_id String) ENGINE = Log")
    execute(client, f"CREATE MATERIALIZED VIEW {database}.v TO {database}.copy AS SELECT sms_id FROM {database}.{name}")
    said: list[str] = []
    prepared(client, config, warn=said.append)
    assert read_window(client, database, name).blocks == TOKENS_KEPT
    assert len(said) == 2
    assert f"{database}.{name} now remembers its last 10,000 inserts" in said[0]
    assert f"{database}.copy is a Log table" in said[1]


@pytest.mark.servers
def test_a_view_is_refused_also_where_rows_may_be_doubled(connection: ClickHouseConnection, client: Client) -> None:
    config = sms_status(connection_params=connection, delivery="at_least_once")
    execute(client, f"CREATE DATABASE {connection.database}")
    execute(client, f"CREATE TABLE {connection.database}.t ({MAPPED}) ENGINE = MergeTree ORDER BY sms_id")
    execute(
        client,
        f"CREATE VIEW {connection.database}.{config.sink.table} AS SELECT * FROM {connection.database}.t",
    )
    with pytest.raises(TableProblem, match="name the table behind it instead"):
        prepare_target(client, config, create=False)
