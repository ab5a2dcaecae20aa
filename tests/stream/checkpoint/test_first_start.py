"""Whether a pipeline may start from the beginning, on a real ClickHouse."""

from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.stores.bookkeeping.fencing import Epoch, begin_epoch
from glassflow_dagster.stores.bookkeeping.ledger import LEDGER
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.queries import execute
from glassflow_dagster.stores.clickhouse.table import Table, count_by_table, find_table
from glassflow_dagster.stream.checkpoint.checkpoint import CheckpointError
from glassflow_dagster.stream.checkpoint.first_start import require_alone, require_empty, require_nothing_written
from tests.stores.clickhouse.definitions import sms_status

pytestmark = pytest.mark.servers


class StartedPipeline:
    """A pipeline that is started in several state folders, and its table."""

    def __init__(self, stack: Any) -> None:
        port = urlsplit(stack.clickhouse).port
        connection = ClickHouseConnection(
            host="127.0.0.1", port=port, database=f"test_{uuid4().hex}", username="default"
        )  # fmt: skip
        self.client: Client = connect(connection)
        self.database = connection.database
        self.config = sms_status(connection_params=connection, table="t", create_table=None)
        ensure_bookkeeping(self.client, self.database)
        self.make("MergeTree ORDER BY id")

    def make(self, engine: str) -> None:
        execute(self.client, f"DROP TABLE IF EXISTS {self.database}.t")
        execute(self.client, f"CREATE TABLE {self.database}.t (id Int64) ENGINE = {engine}")

    @property
    def table(self) -> Table:
        found = find_table(self.client, self.database, "t")
        assert found is not None
        return found

    def begin(self, folder: str, checkpoint: str | None = None) -> Epoch:
        """Begin an epoch, as a start in this folder does."""
        rows = count_by_table(self.client, [self.table])
        pipeline, checkpoint = self.config.pipeline_id, checkpoint or str(uuid4())
        return begin_epoch(self.client, self.database, pipeline, checkpoint, folder, rows)

    def write(self) -> None:
        """Insert a row."""
        execute(self.client, f"INSERT INTO {self.database}.t SETTINGS async_insert = 0 VALUES (1)")

    def close_batch(self, epoch: Epoch) -> None:
        """Write a ledger row for the epoch's checkpoint."""
        execute(
            self.client,
            f"INSERT INTO {self.database}.{LEDGER.name} (pipeline_id, checkpoint_id, batch_time) "
            f"VALUES ('{self.config.pipeline_id}', '{epoch.checkpoint_id}', now64())",
        )

    def may_start(self, epoch: Epoch) -> bool:
        """Return whether a first start with this epoch is allowed."""
        try:
            require_alone(self.client, self.config, [self.table], epoch)
        except CheckpointError:
            return False
        return True


@pytest.fixture
def started(stack: Any) -> StartedPipeline:
    return StartedPipeline(stack)


def test_a_pipeline_that_has_a_batch_in_the_ledger_has_written_whatever_its_table_holds(
    started: StartedPipeline,
) -> None:
    require_nothing_written(started.client, started.config)
    started.close_batch(started.begin("/first"))
    for engine in ("Null", "MergeTree ORDER BY id"):
        started.make(engine)
        with pytest.raises(CheckpointError, match=r"has written to .*--rebuild-state.*--start-over"):
            require_nothing_written(started.client, started.config)


def test_of_two_first_starts_the_later_one_goes_on_where_the_earlier_one_has_written_nothing(
    started: StartedPipeline,
) -> None:
    started.write()  # another writer's row, from before
    assert started.may_start(started.begin("/first"))
    assert started.may_start(started.begin("/second"))
    started.write()
    assert not started.may_start(started.begin("/third"))


def test_row_counts_of_other_tables_prove_nothing(started: StartedPipeline) -> None:
    """Since that start, a route was added: as many rows in all, but not in the same tables."""
    assert started.may_start(started.begin("/first"))
    second = started.begin("/second")
    execute(started.client, f"CREATE TABLE {started.database}.u (id Int64) ENGINE = MergeTree ORDER BY id")
    further = find_table(started.client, started.database, "u")
    assert further is not None
    with pytest.raises(CheckpointError, match=rf"{started.database}.t or {started.database}.u may have .* these tabl"):
        require_alone(started.client, started.config, [started.table, further], second)


@pytest.mark.parametrize("engine", ["Null", "ReplacingMergeTree ORDER BY id", "MergeTree ORDER BY id"])
def test_where_rows_leave_no_trace_a_second_first_start_is_refused(started: StartedPipeline, engine: str) -> None:
    started.make(engine)
    view = f"CREATE MATERIALIZED VIEW {started.database}.v ENGINE = MergeTree ORDER BY id AS SELECT * FROM"
    execute(started.client, f"{view} {started.database}.t")
    assert started.may_start(started.begin("/first"))
    assert not started.may_start(started.begin("/second"))


def test_a_checkpoint_that_waited_while_another_one_wrote_does_not_begin(started: StartedPipeline) -> None:
    first = started.begin("/first")
    assert started.may_start(first)
    started.close_batch(started.begin("/second"))
    assert not started.may_start(started.begin("/first", first.checkpoint_id))


def test_starting_over_needs_empty_tables_also_behind_views(started: StartedPipeline) -> None:
    execute(started.client, f"CREATE TABLE {started.database}.sums (id Int64) ENGINE = MergeTree ORDER BY id")
    target = f"{started.database}.v TO {started.database}.sums"
    execute(started.client, f"CREATE MATERIALIZED VIEW {target} AS SELECT id FROM {started.database}.t")
    require_empty(started.client, started.config, [started.table])
    started.write()
    for left in (("t", "sums"), ("sums",)):
        statements = "; ".join(f"TRUNCATE TABLE `{started.database}`.`{name}`" for name in left)
        with pytest.raises(CheckpointError, match="must be empty for --start-over") as raised:
            require_empty(started.client, started.config, [started.table])
        assert str(raised.value).endswith(statements)
        shared = sms_status(table="t", create_table=None, shared_table=True)
        with pytest.raises(CheckpointError, match="since other pipelines have rows there, too") as raised:
            require_empty(started.client, shared, [started.table])
        assert "TRUNCATE" not in str(raised.value)
        execute(started.client, f"TRUNCATE TABLE {started.database}.{left[0]}")
    require_empty(started.client, started.config, [started.table])
