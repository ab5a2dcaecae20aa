"""The durations of a batch's phases."""

from glassflow_dagster.driver.query.running_query import BatchDuration
from glassflow_dagster.driver.watch.batch_phases import BatchPhases


def test_a_phase_has_spark_s_name_in_snake_case_and_the_whole_is_the_total() -> None:
    phases = BatchPhases()
    phases.observe(BatchDuration(3, 1.5, {"triggerExecution": 1.5, "addBatch": 1.2, "walCommit": 0.02}))
    assert {name: histogram.total for name, histogram in phases.histograms.items()} == {
        "total": 1.5, "add_batch": 1.2, "wal_commit": 0.02,
    }  # fmt: skip


def test_a_batch_that_is_reported_again_counts_once() -> None:
    phases = BatchPhases()
    for batch in (3, 3, 4):
        phases.observe(BatchDuration(batch, 1.0, {"triggerExecution": 1.0}))
    assert phases.histograms["total"].count == 2
