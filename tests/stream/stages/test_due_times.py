"""An idle join has nothing to decide but one window after a batch that has read events."""

from glassflow_dagster.stream.stages.due_times import DueTimes

HOUR = 3600.0


def test_nothing_is_due_before_the_end_of_the_window() -> None:
    due_times = DueTimes(HOUR)
    due_times.after_batch(1000.0, has_read=True)
    assert [due_times.is_due(1000.0 + after) for after in (0.0, HOUR - 1, HOUR, 2 * HOUR)] == [False, False, True, True]


def test_what_is_due_has_passed_when_a_batch_has_begun_after_it() -> None:
    due_times = DueTimes(HOUR)
    due_times.after_batch(1000.0, has_read=True)
    due_times.after_batch(3000.0, has_read=True)
    # This batch may have begun before the events of the first one were due.
    due_times.after_batch(1001.0 + HOUR, has_read=False)
    assert due_times.is_due(1001.0 + HOUR)
    due_times.after_batch(1003.0 + HOUR, has_read=False)
    assert not due_times.is_due(1003.0 + HOUR)
    assert due_times.is_due(3000.0 + HOUR)


def test_batches_that_follow_each_other_are_due_as_long_as_they_took() -> None:
    due_times = DueTimes(HOUR, arrivals=[1005.0, 1000.0, 1011.0, 2000.0])
    due_times.after_batch(1004.0 + HOUR, has_read=False)
    due_times.after_batch(1006.0 + HOUR, has_read=False)
    assert due_times.is_due(1006.0 + HOUR)
    due_times.after_batch(1012.0 + HOUR, has_read=False)
    due_times.after_batch(1014.0 + HOUR, has_read=False)
    assert not due_times.is_due(1014.0 + HOUR)
    assert due_times.is_due(2000.0 + HOUR)


def test_without_a_known_batch_something_may_be_due_at_any_time() -> None:
    assert DueTimes(HOUR).is_due(1000.0)
