"""When a batch starts and how many records it has, derived from `max_batch_size` and `max_delay_time`."""

from pathlib import Path

import pytest

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.sink import Route
from glassflow_dagster.stream.stages.source import MAX_BATCH_RECORDS, BatchLimits, batch_limits, task_records

CONFIG = load_pipeline(Path("pipelines/sms_status.yaml"), {})


@pytest.mark.parametrize(
    ("rows", "partitioned", "limits"),
    [
        (10_000, False, BatchLimits(start_records=10_000, start_after_ms=1000, max_records=MAX_BATCH_RECORDS)),
        # A batch has fewer blocks than half of the 10,000 tokens that a table remembers.
        (1, False, BatchLimits(start_records=1, start_after_ms=1000, max_records=5000)),
        # A batch never exceeds a driver's memory, however large a block may be.
        (10_000_000, False, BatchLimits(MAX_BATCH_RECORDS, 1000, MAX_BATCH_RECORDS)),
        # A block for a hundred partitions takes a hundred tokens.
        (1000, True, BatchLimits(start_records=1000, start_after_ms=1000, max_records=50_000)),
    ],
)
def test_limits(rows: int, partitioned: bool, limits: BatchLimits) -> None:
    sink = CONFIG.sink.model_copy(update={"max_batch_size": rows})
    assert batch_limits(CONFIG.model_copy(update={"sink": sink}), partitioned=partitioned) == limits


def test_several_tables_share_the_tokens_that_a_view_s_target_remembers() -> None:
    routes = (Route(table="a", filter="true"), Route(table="b", filter="true"), Route(table="c", filter="true"))
    sink = CONFIG.sink.model_copy(update={"max_batch_size": 1, "routes": routes})
    assert batch_limits(CONFIG.model_copy(update={"sink": sink}), partitioned=False).max_records == 1250


@pytest.mark.parametrize(("record_bytes", "polled"), [(0, 500), (190, 500), (900_000, 18), (100_000_000, 1)])
def test_of_large_records_fewer_are_polled_at_once(record_bytes: int, polled: int) -> None:
    assert batch_limits(CONFIG, record_bytes, partitioned=False).polled_records == polled


@pytest.mark.parametrize(("cores", "records"), [(1, 300_000), (3, 100_000), (1000, 5_000)])
def test_with_a_state_all_cores_read_a_large_batch(cores: int, records: int) -> None:
    assert CONFIG.has_state
    assert task_records(CONFIG, 200_000, cores) == records


def test_without_a_state_one_task_reads_a_partition() -> None:
    stateless = CONFIG.model_copy(update={"transforms": ()})
    assert not stateless.has_state
    assert task_records(stateless, 200_000, 8) is None
