"""Both checks on real Kafka and ClickHouse."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from glassflow_dagster.checks.counts import compare_counts
from glassflow_dagster.checks.duplicates import find_residual_duplicates
from glassflow_dagster.checks.verify import verify_pipeline
from glassflow_dagster.definition.model.checks import Checks
from glassflow_dagster.stores.clickhouse.errors import ClickHouseUnreachable, TableProblem
from glassflow_dagster.stores.kafka.errors import KafkaUnreachable
from tests.support import definition as v3

pytestmark = pytest.mark.servers

NewPipeline = Callable[..., Any]
ARRIVAL = {"name": "ingested_at", "type": "DateTime", "default": "now()"}
PLAIN_WITH_ARRIVAL = {"order_by": "id", "columns": [ARRIVAL]}
REPLACING = {"engine": "ReplacingMergeTree", **PLAIN_WITH_ARRIVAL}


def test_a_sound_pipeline_passes_both_checks(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline()
    pipeline.batch("a", "b", "c", duplicates=2)
    pipeline.batch("d")
    found = verify_pipeline(pipeline.config, print)
    assert found.passed
    assert found.counts.exact
    assert found.counts.figures["kafka_records"] == 6
    assert found.counts.figures["kafka_proof"] == "as many records as offsets"
    assert found.counts.figures["unique_keys"] == found.counts.figures["rows"] == 4
    assert found.duplicates.severity == "error"
    assert json.loads(json.dumps(found.as_dict()))["passed"] is True
    assert [line.split(":")[0].split()[-1] for line in found.lines() if line.startswith("ok")] == [
        "counts_agree",
        "no_residual_duplicates",
    ]


def test_records_behind_the_committed_offsets_are_not_expected(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline()
    pipeline.batch("a")
    pipeline.send("b", "c")
    assert verify_pipeline(pipeline.config, print).passed


def test_a_pipeline_without_a_batch_has_nothing_to_compare_until_records_wait(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline()
    found = compare_counts(pipeline.config, print)
    assert (found.passed, found.exact, found.is_decided) == (True, False, True)
    pipeline.send("a", "b", "c")
    waiting = verify_pipeline(pipeline.config, print)
    assert (waiting.passed, waiting.counts.passed, waiting.counts.is_decided) == (False, False, False)
    assert "no batch has been written yet, and 3 records wait" in waiting.counts.description
    assert waiting.lines()[0].startswith("UNKNOWN counts_agree: Not compared:")
    source = pipeline.config.source.model_copy(update={"start": "latest"})
    assert compare_counts(pipeline.config.model_copy(update={"sources": (source,)}), print).passed


@pytest.mark.parametrize("create_table", [{"order_by": "id"}, REPLACING])
def test_a_row_inserted_twice_by_hand_turns_both_checks_red(
    new_pipeline: NewPipeline, create_table: dict[str, str]
) -> None:
    pipeline = new_pipeline(create_table)
    pipeline.execute("SYSTEM STOP MERGES {table}")
    pipeline.batch("a", "b")
    pipeline.execute("INSERT INTO {table} SELECT * FROM {table} WHERE id = 'a'")
    found = verify_pipeline(pipeline.config, print)
    assert not found.passed
    assert not found.counts.passed
    assert "1 row more" in found.counts.description
    assert found.counts.figures["unique_keys"] == 2
    assert (found.duplicates.passed, found.duplicates.severity) == (False, "error")
    assert found.duplicates.figures["duplicate_rows"] == 1
    assert found.duplicates.figures["examples"] == "('a')"
    if create_table == REPLACING:
        assert found.duplicates.figures["duplicate_rows_final"] == 0


def test_a_row_that_is_gone_turns_the_counts_red(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline()
    pipeline.batch("a", "b")
    pipeline.execute("ALTER TABLE {table} DELETE WHERE id = 'a' SETTINGS mutations_sync = 1")
    found = compare_counts(pipeline.config, print)
    assert not found.passed
    assert "1 row fewer" in found.description


def test_a_key_that_comes_again_after_its_window_is_no_duplicate(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline()
    pipeline.batch("a", "b", ago=1000)
    pipeline.batch("a", ago=300)
    assert verify_pipeline(pipeline.config, print).passed
    pipeline.batch("a", ago=0)
    found = find_residual_duplicates(pipeline.config, print)
    assert not found.passed
    assert (found.figures["duplicate_rows"], found.figures["duplicate_keys"]) == (1, 1)


def test_an_arrival_column_that_runs_behind_is_set_right_by_the_ledger(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline(PLAIN_WITH_ARRIVAL, extra=None)
    # Begun before a crash and written long after it, just before the next batch: its window was over.
    pipeline.batch("a", ago=1000)
    pipeline.execute("ALTER TABLE {table} UPDATE ingested_at = now() - 2 WHERE 1 SETTINGS mutations_sync = 1")
    ledger = f"{pipeline.config.pipeline_id}.glassflow_ledger"
    pipeline.execute(f"ALTER TABLE {ledger} UPDATE inserted_at = now64(3) - 1 WHERE 1 SETTINGS mutations_sync = 1")
    pipeline.batch("a")
    found = verify_pipeline(pipeline.config, print)
    assert found.passed
    assert found.duplicates.figures["rows"] == 2
    assert found.duplicates.figures["unique_keys"] == 1


@pytest.mark.parametrize(
    ("kind", "unit", "column", "times"),
    [
        ("string", {}, "DateTime64(3)", ["2026-01-01 00:00:00", "2026-01-01 00:10:00", "2026-01-01 00:19:59.999"]),
        ("int", {"event_time_unit": "us"}, "Int64", [0, 600_000_000, 1_199_999_999]),
    ],
)
def test_on_the_event_clock_rows_of_a_key_are_compared_by_the_time_of_their_events(
    new_pipeline: NewPipeline, kind: str, unit: dict[str, str], column: str, times: list[object]
) -> None:
    pipeline = new_pipeline(
        extra=v3.mapping("at", column, "happened"),
        dedup=v3.dedup("events", "id", time_window="10m", clock="event", event_time="at", **unit),
        fields=v3.fields(id="string", at=kind),
    )
    pipeline.execute(f"INSERT INTO {{table}} VALUES ('a', {times[0]!r}), ('a', {times[1]!r}), ('b', {times[2]!r})")
    lawful = find_residual_duplicates(pipeline.config, print)
    assert (lawful.passed, lawful.severity, lawful.figures["event_time_column"]) == (True, "error", "happened")

    pipeline.execute(f"INSERT INTO {{table}} VALUES ('a', {times[2]!r})")
    doubled = find_residual_duplicates(pipeline.config, print)
    assert (doubled.passed, doubled.severity, doubled.figures["duplicate_rows"]) == (False, "error", 1)

    (dedup,) = pipeline.config.transforms
    keeping = dedup.model_copy(update={"config": dedup.config.model_copy(update={"late": "keep"})})
    found = find_residual_duplicates(pipeline.config.model_copy(update={"transforms": (keeping,)}), print)
    assert (found.passed, found.severity) == (False, "warn")
    assert "late: keep" in found.description


def test_without_a_column_of_the_event_time_the_event_clock_is_not_checked(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline(
        dedup=v3.dedup("events", "id", time_window="10m", clock="event", event_time="at"),
        fields=v3.fields(id="string", at="string"),
    )
    found = find_residual_duplicates(pipeline.config, print)
    assert (found.passed, found.severity) == (False, "warn")
    assert found.description.startswith("Not checked: no column holds the event time 'at'; map it to")
    # On this clock a batch may have two rows of a key, which the counts ignore.
    pipeline.batch("a", "a")
    assert compare_counts(pipeline.config, print).passed


def test_without_an_arrival_column_repeated_keys_are_a_warning(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline(extra=None)
    pipeline.batch("a", ago=1000)
    assert find_residual_duplicates(pipeline.config, print).passed
    pipeline.batch("a")
    found = verify_pipeline(pipeline.config, print)
    assert (found.duplicates.passed, found.duplicates.severity) == (False, "warn")
    assert found.duplicates.figures["rows_beyond_keys"] == 1
    assert found.passed


def test_records_are_counted_one_by_one_where_offsets_have_holes(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline()
    # One of the three offsets had no record: Kafka tells which.
    pipeline.batch("a", "b", duplicates=1, read=2)
    found = compare_counts(pipeline.config, print)
    assert not found.passed
    assert found.figures["kafka_proof"] == "counted one by one"
    assert found.figures["kafka_records"] == 3


def test_other_writers_may_add_rows(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline()
    pipeline.batch("a")
    pipeline.execute("INSERT INTO {table} VALUES ('z', now())")
    shared = pipeline.config.model_copy(update={"checks": Checks(other_writers=True)})
    found = compare_counts(shared, print)
    assert (found.passed, found.exact) == (True, False)
    assert "others write to the table too" in found.description


def test_of_a_shared_table_the_checks_say_what_they_cannot_know(new_pipeline: NewPipeline) -> None:
    first, second = new_pipeline(), new_pipeline()
    sink = first.config.sink.model_copy(update={"shared_table": True})
    first.config = first.config.model_copy(update={"sink": sink})
    second.config, second.client = second.config.model_copy(update={"sink": sink}), first.client
    first.batch("a", "b")
    second.batch("a", "c")
    for pipeline in (first, second):
        found = verify_pipeline(pipeline.config, print)
        assert found.passed
        assert (found.counts.passed, found.counts.exact) == (True, False)
        assert "Not exact: other pipelines write to the table too (sink.shared_table)" in found.counts.description
        assert (found.duplicates.passed, found.duplicates.severity) == (False, "warn")
        assert "has 1 duplicate row within 10m" in found.duplicates.description
        assert "Whose rows they are is not known: other pipelines write" in found.duplicates.description
    # Without the key the same rows are faults.
    alone = first.config.model_copy(update={"sink": sink.model_copy(update={"shared_table": False})})
    found = verify_pipeline(alone, print)
    assert (found.counts.passed, found.duplicates.severity) == (False, "error")
    # A row that both need is still missed.
    first.execute("DELETE FROM {table} WHERE id != 'b'")
    missed = compare_counts(first.config, print)
    assert not missed.passed
    assert "holds 1 row fewer than it should" in missed.description


def test_servers_that_are_down_and_tables_that_are_gone_are_said_in_one_line(new_pipeline: NewPipeline) -> None:
    pipeline = new_pipeline()
    pipeline.batch("a")
    config = pipeline.config
    connection = config.sink.connection_params.model_copy(update={"http_port": 1})
    with pytest.raises(ClickHouseUnreachable):
        verify_pipeline(
            config.model_copy(update={"sink": config.sink.model_copy(update={"connection_params": connection})}), print
        )
    dead = config.source.connection_params.model_copy(update={"brokers": ("127.0.0.1:1",)})
    source = config.source.model_copy(update={"connection_params": dead})
    with pytest.raises(KafkaUnreachable):
        compare_counts(config.model_copy(update={"sources": (source,)}), print)
    pipeline.execute("DROP TABLE {table}")
    with pytest.raises(TableProblem, match="does not exist"):
        verify_pipeline(config, print)
