"""Deduplication windows of tables that the pipeline did not create: when they are switched on and restored."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.sink import Route
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.bookkeeping.windows import Windows
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.queries import execute
from glassflow_dagster.stores.clickhouse.table import count_rows, find_table
from glassflow_dagster.stores.clickhouse.tables.prepare import secure_target
from glassflow_dagster.stores.clickhouse.tables.token_window import TOKENS_KEPT, read_window
from glassflow_dagster.stores.clickhouse.tables.window_changes import release_windows
from tests.local.conftest import Server
from tests.stores.clickhouse.definitions import sms_status

pytestmark = pytest.mark.servers

MAPPED = "sms_id String, status Nullable(String), updated_at DateTime, recipient LowCardinality(String)"


class Tables:
    """A table `t` that somebody else created, and pipelines that write to it."""

    def __init__(self, client: Client, connection: ClickHouseConnection, settings: str = "") -> None:
        self.client, self.connection, self.database = client, connection, connection.database
        ensure_bookkeeping(client, self.database)
        self.token_windows = Windows(client, self.database)
        self.make("t", settings)
        self.messages: list[str] = []

    def make(self, name: str, settings: str = "") -> None:
        engine = f"MergeTree ORDER BY sms_id {settings}"
        execute(self.client, f"CREATE TABLE {self.database}.{name} ({MAPPED}) ENGINE = {engine}")

    def view(self, name: str, source: str, target: str) -> None:
        query = f"SELECT * FROM {self.database}.{source}"
        execute(self.client, f"CREATE MATERIALIZED VIEW {self.database}.{name} TO {self.database}.{target} AS {query}")

    def pipeline(self, pipeline_id: str = "first", *, other_writers: bool = False, **sink: object) -> PipelineConfig:
        config = sms_status(connection_params=self.connection, table="t", create_table=None, **sink)
        checks = config.checks.model_copy(update={"other_writers": other_writers})
        return config.model_copy(update={"pipeline_id": pipeline_id, "checks": checks})

    def secure(self, config: PipelineConfig) -> None:
        table = find_table(self.client, self.database, "t")
        assert table is not None
        secure_target(self.client, config, table, self.token_windows, self.messages.append)

    def release(self, config: PipelineConfig) -> list[str]:
        """Restore the windows that a pipeline switched on; return the messages."""
        reported: list[str] = []
        release_windows(self.client, config, self.token_windows, reported.append)
        return reported

    def blocks(self, table: str = "t") -> int:
        return read_window(self.client, self.database, table).blocks

    def equal_inserts(self, table: str = "t") -> int:
        """Insert the same block five times without tokens, as another writer does; return the number of new rows."""
        before = count_rows(self.client, self.database, table)
        values = "('a', NULL, '2024-01-01', 'b')"
        for _ in range(5):
            execute(self.client, f"INSERT INTO {self.database}.{table} SETTINGS async_insert = 0 VALUES {values}")
        return count_rows(self.client, self.database, table) - before


@pytest.fixture
def tables(client: Client, connection: ClickHouseConnection) -> Tables:
    return Tables(client, connection)


def test_where_nobody_else_is_known_the_window_is_switched_on_told_and_put_back(tables: Tables) -> None:
    config = tables.pipeline()
    tables.secure(config)
    assert tables.blocks() == TOKENS_KEPT
    assert len(tables.messages) == 1
    assert "ClickHouse drops an insert whose block equals one of them, from any writer" in tables.messages[0]
    assert tables.equal_inserts() == 1
    # Reported once, when the window is switched on.
    tables.secure(config)
    assert len(tables.messages) == 1

    table = f"`{tables.database}`.`t`"
    assert tables.release(config) == [f"ALTER TABLE {table} RESET SETTING non_replicated_deduplication_window;"]
    assert (tables.blocks(), tables.equal_inserts()) == (0, 5)
    assert tables.release(config) == ["nothing to restore: this pipeline has enabled no table's deduplication window"]


def test_a_window_that_was_there_is_put_back_as_it_was(client: Client, connection: ClickHouseConnection) -> None:
    tables = Tables(client, connection, "SETTINGS non_replicated_deduplication_window = 7")
    config = tables.pipeline()
    tables.secure(config)
    assert tables.blocks() == TOKENS_KEPT
    assert tables.release(config)[0].endswith("MODIFY SETTING non_replicated_deduplication_window = 7;")
    assert tables.blocks() == 7


def test_a_window_that_another_pipeline_rests_on_stays_until_that_one_releases_it(tables: Tables) -> None:
    first, second = tables.pipeline("first"), tables.pipeline("second")
    tables.secure(first)
    tables.secure(second)
    assert tables.release(first) == [f"{tables.database}.t: unchanged, since second needs it"]
    assert tables.blocks() == TOKENS_KEPT
    assert tables.release(second)[0].startswith("ALTER TABLE")
    assert tables.blocks() == 0


def test_where_others_are_known_to_write_the_start_is_refused_with_the_statement(tables: Tables) -> None:
    with pytest.raises(TableProblem, match="others write to it") as raised:
        tables.secure(tables.pipeline(other_writers=True))
    assert f"run ALTER TABLE `{tables.database}`.`t` MODIFY SETTING" in str(raised.value)
    assert "sink.deduplication_window: set" in str(raised.value)
    assert (tables.blocks(), tables.equal_inserts()) == (0, 5)
    tables.secure(tables.pipeline(other_writers=True, deduplication_window="set"))
    assert tables.blocks() == TOKENS_KEPT


def test_a_table_behind_another_tables_view_is_not_touched(tables: Tables) -> None:
    tables.make("other")
    tables.view("v", "other", "t")
    with pytest.raises(TableProblem, match=rf"view {tables.database}\.v, which reads another table, writes to it"):
        tables.secure(tables.pipeline())
    assert tables.equal_inserts("other") == 5
    assert count_rows(tables.client, tables.database, "t") == 5


def test_a_views_table_that_another_table_feeds_is_not_touched(tables: Tables) -> None:
    for name in ("other", "sums"):
        tables.make(name)
    tables.view("mine", "t", "sums")
    tables.view("theirs", "other", "sums")
    with pytest.raises(TableProblem, match=r"\.sums keeps no insert tokens, .*\.theirs, which reads another table"):
        tables.secure(tables.pipeline())
    assert tables.blocks("sums") == 0


def test_a_pipeline_that_may_never_do_it_asks_for_it(tables: Tables) -> None:
    with pytest.raises(TableProblem, match=r"sink\.deduplication_window: require"):
        tables.secure(tables.pipeline(deduplication_window="require"))
    assert tables.blocks() == 0
    execute(
        tables.client,
        f"ALTER TABLE {tables.database}.t MODIFY SETTING non_replicated_deduplication_window = {TOKENS_KEPT}",
    )
    tables.secure(tables.pipeline(deduplication_window="require"))
    assert tables.messages == []


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[tuple[Client, ClickHouseConnection]]:
    """Yield a client that sees all databases, and the connection of a user who sees one."""
    server = Server(tmp_path, free_port())
    server.add_user(
        "writer",
        grants=["GRANT SELECT, INSERT, ALTER, CREATE ON mine.*", "GRANT TABLE ENGINE ON MergeTree"],
    )
    server.start()
    connection = ClickHouseConnection(
        host="127.0.0.1", port=9000, http_port=server.port, database="mine", username="writer"
    )  # fmt: skip
    yield server.client(), connection
    server.end()


def test_a_view_that_cannot_be_seen_is_told_of(writer: tuple[Client, ClickHouseConnection]) -> None:
    everyone, connection = writer
    everyone.command("CREATE DATABASE mine")
    everyone.command("CREATE DATABASE theirs")
    tables = Tables(connect(connection), connection)
    everyone.command(
        "CREATE MATERIALIZED VIEW theirs.v ENGINE = MergeTree ORDER BY sms_id AS SELECT sms_id FROM mine.t"
    )
    tables.secure(tables.pipeline())
    assert any(text.startswith("view theirs.v reads mine.t") and "GRANT" in text.upper() for text in tables.messages)


def test_a_view_of_another_table_of_the_sink_is_no_other_writer(tables: Tables) -> None:
    for name in ("u", "both"):
        tables.make(name)
    tables.view("from_t", "t", "both")
    tables.view("from_u", "u", "both")
    with pytest.raises(TableProblem, match="from_u, which reads another table, writes to it, too"):
        tables.secure(tables.pipeline())
    own, _ = tables.pipeline(routes=(Route(table="u", filter="true"),)).by_table
    tables.secure(own)
    assert tables.blocks("both") == TOKENS_KEPT
