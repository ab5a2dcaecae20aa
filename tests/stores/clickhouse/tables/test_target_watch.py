"""Materialized views that are created while a pipeline runs, on a real ClickHouse."""

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.bookkeeping.windows import Windows
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.queries import execute
from glassflow_dagster.stores.clickhouse.tables.prepare import prepare_target, secure_target
from glassflow_dagster.stores.clickhouse.tables.target_watch import TargetWatch
from glassflow_dagster.stores.clickhouse.tables.token_window import TOKENS_KEPT, read_window
from glassflow_dagster.stream.checkpoint.checkpoint import BatchPlan, CheckpointError
from glassflow_dagster.stream.checkpoint.consistency import require_known_tables
from tests.stores.clickhouse.definitions import sms_status

pytestmark = pytest.mark.servers

TARGET = "sms_statuses_latest"
WINDOW = "SETTINGS non_replicated_deduplication_window = 10000"


class WatchedTarget:
    """A pipeline's target table, and the materialized views that tests create on it."""

    def __init__(self, client: Client, connection: ClickHouseConnection) -> None:
        self.client, self.database = client, connection.database
        self.config: PipelineConfig = sms_status(connection_params=connection)
        self.messages: list[str] = []
        table = prepare_target(client, self.config, create=True)
        ensure_bookkeeping(client, self.database)
        token_windows = Windows(client, self.database)
        table = secure_target(client, self.config, table, token_windows, self.messages.append)
        self.watch = TargetWatch(client, self.config, table, token_windows, self.messages.append)

    def make_view(self, name: str, columns: str, settings: str = "", behind: str = "sms_statuses_latest") -> None:
        """Create a table and a materialized view that writes to it from the target or another table."""
        execute(self.client, f"CREATE TABLE {self.database}.{name} ({columns}) ENGINE = MergeTree {settings}")
        execute(
            self.client,
            f"CREATE MATERIALIZED VIEW {self.database}.{name}_view TO {self.database}.{name} AS SELECT sms_id "
            f"FROM {self.database}.{behind}",
        )

    def plan(self) -> BatchPlan:
        """Return the plan of a batch that begins now."""
        return BatchPlan(
            batch_id=7, batch_time_ms=1, offsets={}, definition="", types={}, table="", dead_letters_expire_at=0,
            rows=1, bytes=1, written=tuple(self.watch.read().identities), identities=dict(self.watch.read().identities),
        )  # fmt: skip

    def written(self) -> set[str]:
        """Return the tables that a batch which begins now writes to, without their database."""
        return {name.removeprefix(f"{self.database}.") for name in self.watch.read().identities}

    def replace(self, name: str, ddl: str) -> None:
        """Let another table take the place of one, which is called `former` then."""
        execute(self.client, f"CREATE TABLE {self.database}.former {ddl}")
        execute(self.client, f"EXCHANGE TABLES {self.database}.{name} AND {self.database}.former")

    def blocks_kept(self, name: str) -> int:
        return read_window(self.client, self.database, name).blocks


@pytest.fixture
def watched(client: Client, connection: ClickHouseConnection) -> WatchedTarget:
    return WatchedTarget(client, connection)


def test_a_view_that_comes_is_made_safe_before_the_next_batch_and_one_behind_it_too(watched: WatchedTarget) -> None:
    assert watched.written() == {TARGET}
    watched.make_view("seen", "sms_id String", "ORDER BY sms_id")
    assert "seen" in watched.written()
    watched.make_view("again", "sms_id String", "ORDER BY sms_id", behind="seen")
    assert "again" in watched.written()
    for name in ("seen", "again"):
        assert watched.blocks_kept(name) == TOKENS_KEPT


def test_a_view_whose_table_would_get_a_repeated_batch_twice_stops_before_the_next_one(watched: WatchedTarget) -> None:
    watched.watch.read()
    watched.make_view("seen", "sms_id String, at DateTime DEFAULT now()", f"PARTITION BY at ORDER BY sms_id {WINDOW}")
    with pytest.raises(TableProblem, match=r"seen does not recognise a block .* column `at`"):
        watched.watch.read()


def test_a_table_that_is_dropped_is_said(watched: WatchedTarget) -> None:
    watched.watch.read()
    execute(watched.client, f"DROP TABLE {watched.database}.sms_statuses_latest")
    with pytest.raises(TableProblem, match=r"sms_statuses_latest no longer exists; recreate it"):
        watched.watch.read()


def test_a_view_of_a_route_s_table_stops_the_start_also_where_the_route_is_gone(watched: WatchedTarget) -> None:
    execute(
        watched.client, f"CREATE TABLE {watched.database}.routed (sms_id String) ENGINE = MergeTree ORDER BY sms_id"
    )
    plan = watched.plan()
    plan = plan.model_copy(update={"written": (*(plan.written or ()), f"{watched.database}.routed")})
    watched.make_view("seen", "sms_id String", "ORDER BY sms_id", behind="routed")
    with pytest.raises(CheckpointError, match=r"seen_view was created while batch 7 was in flight"):
        require_known_tables(watched.client, watched.config, plan)


@pytest.mark.parametrize(("settings", "stops"), [("", True), (WINDOW, False)])
def test_a_view_that_came_within_an_open_batch_stops_the_start_unless_its_table_remembers(
    watched: WatchedTarget, settings: str, stops: bool
) -> None:
    plan = watched.plan()
    watched.make_view("seen", "sms_id String", f"ORDER BY sms_id {settings}")
    if stops:
        with pytest.raises(CheckpointError, match=r"seen_view was created while batch 7 was in flight.*Drop the view"):
            require_known_tables(watched.client, watched.config, plan)
        execute(watched.client, f"DROP TABLE {watched.database}.seen_view")
    require_known_tables(watched.client, watched.config, plan)


def test_a_window_that_is_switched_off_is_switched_on_again(watched: WatchedTarget) -> None:
    watched.watch.read()
    execute(
        watched.client,
        f"ALTER TABLE {watched.database}.{TARGET} RESET SETTING non_replicated_deduplication_window",
    )
    watched.watch.read()
    assert watched.blocks_kept(TARGET) == TOKENS_KEPT
    assert any("was changed, replaced or created" in message for message in watched.messages)


@pytest.mark.parametrize("replaced", [TARGET, "seen"])
def test_a_table_that_takes_the_place_of_another_is_made_safe_before_the_next_batch(
    watched: WatchedTarget, replaced: str
) -> None:
    watched.make_view("seen", "sms_id String", "ORDER BY sms_id")
    before = watched.watch.read().identities
    engine = "ReplacingMergeTree" if replaced == TARGET else "MergeTree"
    watched.replace(replaced, f"AS {watched.database}.{replaced} ENGINE = {engine} ORDER BY sms_id")
    assert watched.blocks_kept(replaced) == 0
    after = watched.watch.read().identities
    changed = {name for name in before if before[name].uuid != after[name].uuid}
    assert (watched.blocks_kept(replaced), changed) == (TOKENS_KEPT, {f"{watched.database}.{replaced}"})


@pytest.mark.parametrize(
    ("ddl", "problem"),
    [
        (
            "(sms_id String) ENGINE = MergeTree ORDER BY sms_id",
            r"another table has taken the place .*\n.*has no column",
        ),
        ("AS {} ENGINE = MergeTree ORDER BY sms_id", r"its engine was ReplacingMergeTree and is MergeTree"),
    ],
)
def test_a_table_that_does_not_fit_in_the_place_of_the_target_stops_the_pipeline(
    watched: WatchedTarget, ddl: str, problem: str
) -> None:
    watched.watch.read()
    watched.replace(TARGET, ddl.format(f"{watched.database}.{TARGET}"))
    with pytest.raises(TableProblem, match=problem):
        watched.watch.read()


@pytest.mark.parametrize("change", ["replaced", "window off"])
def test_a_view_s_table_that_lost_the_tokens_of_an_open_batch_stops_the_start(
    watched: WatchedTarget, change: str
) -> None:
    watched.watch.read()
    watched.make_view("seen", "sms_id String", "ORDER BY sms_id")
    plan = watched.plan()
    require_known_tables(watched.client, watched.config, plan)
    if change == "replaced":
        watched.replace("seen", f"AS {watched.database}.seen ENGINE = MergeTree ORDER BY sms_id {WINDOW}")
    else:
        table = f"{watched.database}.seen"
        execute(watched.client, f"ALTER TABLE {table} RESET SETTING non_replicated_deduplication_window")
    with pytest.raises(CheckpointError, match=r"seen, which view .*seen_view writes to, was replaced or lost its"):
        require_known_tables(watched.client, watched.config, plan)
