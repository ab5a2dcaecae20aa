"""The age of the oldest unread record, from the end offsets at several times."""

from glassflow_dagster.control.heartbeat import PartitionLag
from glassflow_dagster.driver.watch.lag_history import MOST_SAMPLES, LagHistory

PARTITION = ("t", 0)


def lag(history: LagHistory, now: float, end: int, reached: int) -> PartitionLag:
    return history.lags(now, {PARTITION: end}, {"t": {0: reached}})["t"][0]


def test_the_oldest_unread_record_was_there_when_the_end_first_exceeded_the_offset() -> None:
    history = LagHistory()
    assert lag(history, 100, end=10, reached=10) == PartitionLag(records=0, seconds=0)
    assert lag(history, 105, end=30, reached=10) == PartitionLag(records=20, seconds=0)
    assert lag(history, 110, end=50, reached=10) == PartitionLag(records=40, seconds=5)
    # Offset 30 was there at 110.
    assert lag(history, 120, end=50, reached=30) == PartitionLag(records=20, seconds=10)
    assert lag(history, 130, end=50, reached=50) == PartitionLag(records=0, seconds=0)


def test_a_silent_topic_has_no_lag_however_old_its_last_record_is() -> None:
    history = LagHistory()
    for now in range(0, 3600, 5):
        assert lag(history, now, end=10, reached=10).seconds == 0
    assert lag(history, 3600, end=11, reached=10) == PartitionLag(records=1, seconds=0)


def test_a_batch_that_read_past_the_sample_has_no_negative_lag() -> None:
    assert lag(LagHistory(), 0, end=10, reached=12) == PartitionLag(records=0, seconds=0)


def test_a_partition_that_was_not_read_yet_has_no_lag() -> None:
    assert LagHistory().lags(0, {("t", 1): 5}, {"t": {0: 1}}) == {}


def test_the_memory_of_a_lag_of_days_is_bounded_and_its_age_stays_exact() -> None:
    history = LagHistory()
    for index in range(4 * MOST_SAMPLES):
        found = lag(history, index * 5, end=index + 1, reached=0)
    assert found.seconds == (4 * MOST_SAMPLES - 1) * 5
    assert len(history.samples[PARTITION]) <= MOST_SAMPLES
