"""Deduplication on the event clock from Kafka to the table: late events, and the check for duplicates."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.support import Pipeline, cli
from tests.servers.stack import Stack

BEGIN = datetime(2024, 10, 28, tzinfo=UTC)
# A partitioned table takes 50 blocks per batch: with blocks of 10 rows a batch has 500 records.
BATCH = 500


def at(seconds: float) -> str:
    return (BEGIN + timedelta(seconds=seconds)).isoformat()


def events() -> list[dict[str, object]]:
    """Return three batches that span more than an hour, with duplicates and late events."""
    draw = random.Random(5)
    first = [{"id": f"a{index}", "at": at(index)} for index in range(BATCH - 1)]
    # If this event moved the watermark, all following events would be late.
    first.append({"id": "far", "at": "2099-01-01T00:00:00Z"})
    # The last of these events is at 3599 s, within an hour of the first; the watermark is half an hour behind it.
    again = [{"id": f"a{index}", "at": at(3500 + index)} for index in range(100)]
    second = [*again, *({"id": f"b{index}", "at": at(3000 + index)} for index in range(BATCH - 100))]
    later = [{"id": f"a{index}", "at": at(4000 + index)} for index in range(200)]  # the deduplication window is over
    stragglers = [{"id": f"late{index % 40}", "at": at(index % 40)} for index in range(80)]
    twice = [{"id": "b7", "at": at(3007)}] * (BATCH - 280)
    third = [*later, *stragglers, *twice]
    draw.shuffle(second)
    draw.shuffle(third)
    return [*first, *second, *third]


@pytest.mark.usefixtures("shared_session")
@pytest.mark.long
def test_late_events_are_counted_kept_or_dead_letters_and_nothing_is_written_twice_in_a_window(
    stack: Stack, tmp_path: Path
) -> None:
    pipelines: dict[str, Pipeline] = {}
    for late in ("drop", "keep", "dead_letter"):
        pipeline = Pipeline(tmp_path, stack.kafka, stack.clickhouse_port, window="1h")
        pipeline.fields = [{"name": "id", "type": "string"}, {"name": "at", "type": "string"}]
        pipeline.columns = {"id": "String", "at": "DateTime64(3)"}
        pipeline.clock = {"clock": "event", "event_time": "at", "allowed_lateness": "30m", "late": late}
        pipeline.sink = {"max_batch_size": 10, "create_table": {"order_by": "tuple()", "partition_by": "toYear(at)"}}
        pipeline.write().create_topic(partitions=1)
        pipeline.send(events(), lambda _: 0)
        pipelines[late] = pipeline

    totals = {late: pipeline.catch_up() for late, pipeline in pipelines.items()}

    # 500 of the first batch, 400 of the second, 200 of the third; 40 late events have a key of their own.
    for late, written, duplicates, dead_letters, dropped in (
        ("drop", 1100, 320, 0, 80),
        ("keep", 1140, 360, 0, 0),
        ("dead_letter", 1100, 320, 80, 0),
    ):
        found = totals[late]
        assert (found["read"], found["written"], found["duplicates"]) == (1500, written, duplicates)
        assert (found["dead_letters"], found["late"]) == (dead_letters, dropped)
        pipeline = pipelines[late]
        assert pipeline.ledger() == {name: found.get(name, 0) for name in pipeline.ledger()}
        assert pipeline.query("SELECT count() FROM {db}.glassflow_ledger") == [(3,)]
        near = (
            "SELECT count() FROM {db}.events AS l JOIN {db}.events AS r ON l.id = r.id "
            "WHERE l.at < r.at AND dateDiff('millisecond', l.at, r.at) < 3600000"
        )
        assert pipeline.query(near) == [(0,)]
        assert pipeline.query("SELECT count(), countIf(startsWith(id, 'late')) FROM {db}.events") == [
            (written, written - 1100)
        ]
    dead_letters = pipelines["dead_letter"].query(
        "SELECT stage, reason, JSONExtractString(value, 'id') FROM {db}.glassflow_dead_letters ORDER BY offset"
    )
    assert {dead_letter[0] for dead_letter in dead_letters} == {"dedup"}
    assert sorted(dead_letter[2] for dead_letter in dead_letters) == sorted(f"late{index % 40}" for index in range(80))
    assert dead_letters[0][1].startswith("event_time 'at': '2024-10-28T00:00:")
    assert dead_letters[0][1].endswith("' is behind the watermark 2024-10-28T00:29:59Z")

    name = pipelines["drop"].name
    verified = cli("verify", name, "--pipelines", str(tmp_path / "pipelines"))
    assert verified.code == 0, verified.out + verified.err
