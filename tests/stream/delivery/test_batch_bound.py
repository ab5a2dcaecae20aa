"""The number of records in a micro-batch, derived from the record sizes of previous batches."""

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.stream.delivery.batch_bound import BATCH_BYTES, BatchBound, RecordSample, records_within
from glassflow_dagster.stream.spark.session import java
from tests.support.export_requests import span, traces


@pytest.mark.parametrize(
    ("limit", "records", "size", "fitting"),
    [
        (1000, 10, 100, 100),
        (1000, 3, 1000, 3),
        # One record is always read, however large it is.
        (1000, 1, 5000, 1),
        # Records without a value.
        (1000, 7, 0, 7000),
    ],
)
def test_records_within_a_limit(limit: int, records: int, size: int, fitting: int) -> None:
    assert records_within(limit, records, size) == fitting


def test_a_query_is_bounded_by_what_it_saw_last(spark: SparkSession) -> None:
    bounds = java(spark).glassflow.BatchBound
    bound = BatchBound(spark, "bounded")
    bound.update(2, 2_000_000)
    assert bounds.of("bounded") == BATCH_BYTES // 1_000_000
    # A batch without known record sizes changes nothing.
    bound.update(0, 0)
    assert bounds.of("bounded") == BATCH_BYTES // 1_000_000
    assert bounds.of("another") == 2**63 - 1


def test_records_of_many_events_are_bounded_by_these(spark: SparkSession) -> None:
    """Their rows make the blocks of a batch, of whose tokens a table keeps so many."""
    bounds = java(spark).glassflow.BatchBound
    bound = BatchBound(spark, "events")
    assert bound.records_of(1000) == 1000
    bound.update(10, 10_000, 1000)
    assert (bound.records_of(1000), bound.records_of(1)) == (10, 1)
    bound.limit_events(5000)
    assert bounds.of("events") == 50
    bound.update(10, BATCH_BYTES, 1000)
    assert bounds.of("events") == 10
    bound.update(1, 100, 6000)
    assert bounds.of("events") == 1


def test_the_events_of_a_sample_are_counted(spark: SparkSession) -> None:
    """A request that cannot be read, or that has no events, counts as one."""
    source = Source(
        type="otlp.traces", source_id="s", topic="t", format="otlp_proto",
        connection_params={"brokers": ["127.0.0.1:1"]}, schema_fields=[{"name": "name", "type": "string"}],
    )  # fmt: skip
    requests = (traces([span(1, number) for number in range(98)]).SerializeToString(), b"", b"broken")
    bounds = java(spark).glassflow.BatchBound
    bound = BatchBound(spark, "sampled")
    bound.limit_events(1000)
    bound.update_by(RecordSample(3, sum(map(len, requests)), requests=requests), source)
    assert bounds.of("sampled") == 30
    # The size of the events as JSON.
    assert bound.record_bytes > 98 * 100 // 3


def test_the_first_batch_is_small_until_its_records_are_known(spark: SparkSession) -> None:
    bounds = java(spark).glassflow.BatchBound
    bound = BatchBound(spark, "begins")
    bound.begin_with(7)
    assert bounds.of("begins") == 7
    # Also after a batch without known record sizes.
    bound.update(0, 0)
    assert bounds.of("begins") == 2**63 - 1
    # A record of more bytes than a batch may have.
    bound.update(1, 2 * BATCH_BYTES)
    bound.begin_with(7)
    assert bounds.of("begins") == 1
