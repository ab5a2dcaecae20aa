"""The metadata of a materialization, computed from the results of a health check."""

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from glassflow_dagster.control.heartbeat import DriverState, Heartbeat
from glassflow_dagster.control.status import StreamState, StreamStatus
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.health import Health
from glassflow_dagster.orchestration.metadata import (
    committed_offsets,
    data_version,
    joined_metadata,
    stream_metadata,
    table_metadata,
    topics_metadata,
)
from glassflow_dagster.stores.bookkeeping.ledger import RowsByTable
from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes
from glassflow_dagster.stores.bookkeeping.totals import LedgerTotals, ReadRange
from glassflow_dagster.stores.clickhouse.table import Table
from glassflow_dagster.stores.kafka.topics import Offsets
from tests.orchestration.joins import JOIN_FIGURES

CONFIG = load_pipeline(Path(__file__).parents[2] / "pipelines" / "sms_status.yaml")
TOPIC = CONFIG.source.topic
DOWN = GlassflowError("ClickHouse at 127.0.0.1:1 cannot be reached; start it")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
LEDGER = LedgerTotals(
    batches=4,
    first_batch_time=NOW,
    last_batch_time=NOW,
    rows_before=0,
    outcomes=Outcomes(read=100, written=80, duplicates=15, filtered=2, late=1, dead_letters=2),
    dead_letters_stored=2,
    by_table=RowsByTable({"": 80}, {"": 0}),
    ranges=(
        ReadRange("a", TOPIC, 0, first=0, until=30, covered=30),
        ReadRange("b", TOPIC, 0, first=30, until=50, covered=20),
        ReadRange("b", TOPIC, 1, first=0, until=60, covered=60),
    ),
)
FOUND = {0: Offsets(10, 55), 1: Offsets(0, 61)}
NAME = "analytics.sms_statuses_latest"
TABLE = Table("analytics", "sms_statuses_latest", "MergeTree", "MergeTree ORDER BY sms_id", {}, rows=80, ttl=False)


def health(offsets: dict[str, dict[int, int]], **found: object) -> Health:
    heartbeat = Heartbeat(
        pipeline_id=CONFIG.pipeline_id,
        state=DriverState.RUNNING,
        pid=7,
        process_started="1",
        updated_at=time.time(),
        fingerprint="f",
        batch_id=3,
        batch_time=NOW.timestamp(),
        offsets=offsets,
        processed_rows_per_second=1234.5,
        lag=6,
        state_bytes=4096,
    )
    status = StreamStatus(CONFIG.pipeline_id, StreamState.RUNNING, "", heartbeat, Path("state/sms_status"), wanted=True)
    answers = {"topics": {TOPIC: FOUND}, "tables": (TABLE,), "ledger": LEDGER} | found
    return Health(status=status, **answers)  # type: ignore[arg-type]


def test_the_topic_shows_its_offsets_and_what_waits() -> None:
    assert topics_metadata(health({TOPIC: {0: 50, 1: 60}}), [TOPIC]) == {
        "partitions": 2,
        "low_offsets": {"0": 10, "1": 0},
        "high_offsets": {"0": 55, "1": 61},
        "committed_offsets": {"0": 50, "1": 60},
        "lag": 6,
    }


def test_a_partition_that_was_never_read_waits_from_its_lowest_offset() -> None:
    assert topics_metadata(health({TOPIC: {1: 61}}), [TOPIC])["lag"] == 45


def test_without_known_offsets_there_is_no_lag() -> None:
    assert "lag" not in topics_metadata(health({}, ledger=DOWN), [TOPIC])


def test_the_stream_shows_its_pace_and_what_it_let_pass() -> None:
    figures = stream_metadata(health({}), "launched")
    assert figures["action"] == "launched"
    assert figures["processed_rows_per_second"] == 1234.5
    assert [figures[name] for name in ("read", "duplicates", "filtered", "late", "dead_letters")] == [100, 15, 2, 1, 2]
    assert figures["spark_log"].path == "state/sms_status/driver.log"


def test_the_table_shows_its_rows_and_what_was_written() -> None:
    figures = table_metadata(health({}), NAME, 0)
    assert figures == {
        "dagster/row_count": 80,
        "engine": "MergeTree",
        "written": 80,
        "dead_letters": 2,
        "batches": 4,
    }


def test_a_table_that_is_not_there_yet_is_a_problem_in_words() -> None:
    assert "does not exist yet" in table_metadata(health({}, tables=(None,)), NAME, 0)["problem"]


def test_committed_offsets_are_the_drivers_then_the_ledgers_then_unknown() -> None:
    assert committed_offsets(health({TOPIC: {0: 52, 1: 60}}), TOPIC) == {0: 52, 1: 60}
    assert committed_offsets(health({}), TOPIC) == {0: 50, 1: 60}
    assert committed_offsets(health({}, ledger=DOWN), TOPIC) is None


def test_a_data_version_is_readable_while_it_is_short() -> None:
    assert version({TOPIC: {}}) == f"{TOPIC}@"
    assert version({TOPIC: {1: 6, 0: 5}}) == f"{TOPIC}@0:5,1:6"
    many = version({TOPIC: dict.fromkeys(range(500), 5)})
    assert len(many) == 64
    assert many != version({TOPIC: dict.fromkeys(range(500), 6)})


def test_the_data_version_of_a_join_reaches_over_both_topics_and_is_unknown_where_one_is() -> None:
    both = {"bids": FOUND, "lots": DOWN}
    assert version({"lots": {0: 7}, "bids": {0: 5}}, topics=both) == "bids@0:5 lots@0:7"
    assert data_version(health({"bids": {0: 5}}, topics=both, ledger=DOWN)) is None


def test_the_topics_of_a_join_have_figures_of_their_own() -> None:
    found = health({"bids": {0: 50, 1: 60}}, topics={"bids": FOUND, "lots": DOWN})
    assert topics_metadata(found, ["bids"])["lag"] == 6
    assert topics_metadata(found, ["lots"]) == {"problem": str(DOWN)}


def test_the_joined_stream_shows_what_became_of_the_events_and_how_large_its_state_is() -> None:
    outcomes = Outcomes(
        read=100, taken=90, accepted=40, matched=30, unmatched=12, waiting=8, late=1, null_keys=5, joined=30
    )
    found = health({}, ledger=replace(LEDGER, outcomes=outcomes))
    figures = joined_metadata(found, "launched")
    assert (figures["action"], figures["read"]) == ("launched", 100)
    assert {name: figures[name] for name in JOIN_FIGURES} == {
        "matched": 30, "unmatched": 12, "waiting": 8, "late": 1, "accepted": 40, "null_keys": 5, "joined": 30,
        "state_bytes": 4096,
    }  # fmt: skip


def test_of_a_join_whose_ledger_is_out_of_reach_the_heartbeat_is_left() -> None:
    figures = joined_metadata(health({}, ledger=DOWN), "launched")
    assert (figures["problem"], figures["state_bytes"]) == (str(DOWN), 4096)
    assert "matched" not in figures


def version(offsets: dict[str, dict[int, int]], **found: object) -> str:
    named = data_version(health(offsets, **found))
    assert named is not None
    return named.value
