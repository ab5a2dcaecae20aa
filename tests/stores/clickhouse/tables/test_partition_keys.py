"""Partition keys for which a repeated block is recognised, on a real ClickHouse."""

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.bookkeeping.windows import Windows
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.queries import execute
from glassflow_dagster.stores.clickhouse.table import find_table
from glassflow_dagster.stores.clickhouse.tables.partition_keys import PartitionKeys, select_list
from glassflow_dagster.stores.clickhouse.tables.prepare import secure_target
from glassflow_dagster.stores.clickhouse.tables.views import find_written_tables
from tests.stores.clickhouse.definitions import sms_status

FILLED = {"id", "ts", "we ird"}
COLUMNS = "id Int64, ts DateTime, `we ird` String, ingested_at DateTime DEFAULT now(), day Date DEFAULT toDate(ts)"


@pytest.fixture
def database(client: Client, connection: ClickHouseConnection) -> str:
    execute(client, f"CREATE DATABASE {connection.database}")
    return connection.database


def keys(client: Client, database: str, key: str, columns: str = COLUMNS) -> PartitionKeys:
    execute(client, f"CREATE TABLE {database}.t ({columns}) ENGINE = MergeTree PARTITION BY {key} ORDER BY id")
    return PartitionKeys(client, find_written_tables(client, database, "t"), FILLED)


pytestmark = pytest.mark.servers


@pytest.mark.parametrize("key", ["tuple()", "toYYYYMM(ts)", "(day, `we ird`)", "intHash32(id) % 8", "toMonday(day)"])
def test_a_key_of_what_the_pipeline_fills_is_taken(client: Client, database: str, key: str) -> None:
    found = keys(client, database, key)
    assert (found.faults(), found.clocks) == ([], set())


@pytest.mark.parametrize("default", ["now()", "now64(3)", "now64(3, 'UTC')", "toDateTime(now())"])
def test_a_clock_of_the_servers_is_to_be_filled_with_the_batchs_time(
    client: Client, database: str, default: str
) -> None:
    columns = f"id Int64, seen DateTime64(3) DEFAULT {default}, day Date DEFAULT toDate(seen)"
    found = keys(client, database, "toYYYYMM(day)", columns)
    assert (found.faults(), found.clocks) == ([], {"seen"})


@pytest.mark.parametrize(
    ("column", "function"),
    [
        ("x Date DEFAULT today()", "today"),
        ("x Date MATERIALIZED toDate(now())", "now"),
        ("x UInt64 DEFAULT rand64() % 4", "rand64"),
        ("x String DEFAULT hostName()", "hostName"),
        ("x UInt8 DEFAULT y % 2, y UInt32 MATERIALIZED rand()", "rand"),
    ],
)
def test_a_value_that_the_server_computes_again_is_rejected(
    client: Client, database: str, column: str, function: str
) -> None:
    (fault,) = keys(client, database, "x", f"id Int64, {column}").faults()
    assert f"{function}() returns another value each time" in str(fault)
    assert "map a field or _batch_time" in str(fault)


@pytest.mark.parametrize(
    ("select", "reason"),
    [
        ("SELECT id, toDate(ts) AS x FROM {t}", None),
        ("SELECT id, day AS x FROM {t} WHERE id IN (1, 2)", None),
        ("WITH toDate(ts) AS d SELECT id, d AS x FROM {t}", None),
        ("SELECT id, toDate(ts) AS d, toMonday(d) AS x, now() AS elsewhere FROM {t}", None),
        ("SELECT id, today() AS x FROM {t}", "today() returns another value each time in view"),
        ("SELECT id, toDate(now()) AS d, toMonday(d) AS x FROM {t}", "now() returns another value each time in view"),
        ("SELECT id, toDate(o.d) AS x FROM {t} JOIN {o} AS o USING id", "comes from a joined table"),
        ("SELECT id FROM {t}", "now() returns another value each time, with which the server fills column `x`"),
        ("SELECT id, toDate(ts) AS x FROM {t} UNION ALL SELECT id, today() AS x FROM {t}", "today() returns another"),
    ],
)
def test_a_views_table_is_partitioned_by_what_the_pipeline_fills(
    client: Client, database: str, select: str, reason: str | None
) -> None:
    found = keys(client, database, "tuple()")
    execute(client, f"CREATE TABLE {database}.o (id Int64, d Date) ENGINE = MergeTree ORDER BY id")
    default = "DEFAULT toDate(now())" if "column `x`" in str(reason) else ""
    columns = f"id Int64, x Date {default}, d Date, elsewhere DateTime"
    execute(client, f"CREATE TABLE {database}.s ({columns}) ENGINE = MergeTree PARTITION BY x ORDER BY id")
    query = select.format(t=f"{database}.t", o=f"{database}.o")
    execute(client, f"CREATE MATERIALIZED VIEW {database}.v TO {database}.s AS {query}")
    found = PartitionKeys(client, find_written_tables(client, database, "t"), FILLED)
    faults = [str(fault) for fault in found.faults()]
    assert bool(faults) == bool(reason)
    assert not reason or reason in faults[0]


def test_a_clock_behind_a_view_of_a_view_is_found(client: Client, database: str) -> None:
    keys(client, database, "tuple()")
    view = f"CREATE MATERIALIZED VIEW {database}.{{}} ENGINE = MergeTree {{}} ORDER BY id AS SELECT * FROM {{}}"
    execute(client, view.format("v", "", f"{database}.t"))
    written = find_written_tables(client, database, "t")
    inner = f"{database}.`{written.views[0].target[1]}`"
    execute(client, view.format("w", "PARTITION BY toYYYYMM(ingested_at)", inner))
    found = PartitionKeys(client, find_written_tables(client, database, "t"), FILLED)
    assert (found.faults(), found.clocks) == ([], {"ingested_at"})


def test_the_target_is_refused_or_its_clock_filled(
    client: Client, connection: ClickHouseConnection, database: str
) -> None:
    config = sms_status(connection_params=connection, table="t")
    notes = Windows(client, database)
    ensure_bookkeeping(client, database)
    mapped = "sms_id String, status Nullable(String), updated_at DateTime, recipient LowCardinality(String)"
    for extra, key in (("", "toYYYYMM(seen)"), (", day Date MATERIALIZED today()", "day")):
        execute(client, f"DROP TABLE IF EXISTS {database}.t")
        columns = f"{mapped}, seen DateTime DEFAULT now(){extra}"
        execute(client, f"CREATE TABLE {database}.t ({columns}) ENGINE = MergeTree PARTITION BY {key} ORDER BY sms_id")
        table = find_table(client, database, "t")
        assert table is not None
        if not extra:
            assert secure_target(client, config, table, notes).clock_columns == ("seen",)
            continue
        with pytest.raises(TableProblem, match=r"^sink.table: .*today\(\) returns another value each time"):
            secure_target(client, config, table, notes)
        lenient = config.model_copy(update={"sink": config.sink.model_copy(update={"delivery": "at_least_once"})})
        said: list[str] = []
        assert secure_target(client, lenient, table, notes, said.append).clock_columns == ()
        assert any("today() returns another value each time" in text for text in said)


def test_a_list_of_columns_is_read_as_the_server_writes_it() -> None:
    assert select_list("WITH 1 AS z SELECT a, toDate(x, 'a, b') AS `my d`, t.c, count() AS n FROM x") == {
        "a": "a", "my d": "toDate(x, 'a, b')", "c": "t.c", "n": "count()",
    }  # fmt: skip
    assert select_list("SELECT DISTINCT *, [1, 2] AS b FROM (SELECT 1 FROM y)") == {"*": "*", "b": "[1, 2]"}
    assert select_list("SELECT a FROM x UNION ALL SELECT b FROM y") is None
