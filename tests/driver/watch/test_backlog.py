"""The warning that a pipeline cannot keep up, and its advice."""

import itertools
from collections.abc import Iterable

from glassflow_dagster.driver.watch.backlog import Backlog


def warnings_of(waiting: Iterable[int | None], every: float = 1.0) -> list[str]:
    """Return the warning at each sample of the waiting records; `every`: seconds between samples."""
    backlog = Backlog(cores=2, block_rows=50_000)
    return [backlog.add_sample(number * every, count, partitions=8) for number, count in enumerate(waiting)]


def test_a_backlog_that_only_grows_is_told_after_five_minutes() -> None:
    warnings = warnings_of(range(0, 40_000, 100))
    assert not any(warnings[:300])
    assert warnings[300] == (
        "cannot keep up: 6,000 records waited five minutes ago, 30,000 do now; raise the cores it runs on (2)"
    )


def test_the_warning_ends_when_the_backlog_shrinks() -> None:
    warnings = warnings_of([*range(0, 40_000, 100), *range(40_000, 0, -1_000)])
    assert warnings[399]
    assert not warnings[-1]


def test_a_shrinking_or_oscillating_backlog_is_no_warning() -> None:
    assert not any(warnings_of(range(1_000_000, 0, -1_000)))
    assert not any(warnings_of([0] * 1_000))
    assert not any(warnings_of(itertools.islice(itertools.cycle([0, 50_000, 200_000]), 1_000)))


def test_an_unknown_backlog_is_no_warning() -> None:
    assert not any(warnings_of([None] * 400))


def test_a_slow_heartbeat_is_judged_over_the_same_time() -> None:
    warnings = warnings_of(range(0, 100_000, 10_000), every=60)
    assert [bool(text) for text in warnings] == [number >= 5 for number in range(10)]


def test_all_that_can_be_raised_is_named() -> None:
    backlog = Backlog(cores=4, block_rows=1_000)
    backlog.add_sample(0, 0, partitions=2)
    assert backlog.add_sample(400, 9_000, partitions=2).endswith(
        "raise sink.max_batch_size (1,000 rows; recommended: 10,000 to 50,000), or the partitions of its topics (2, "
        "where 4 could be read at once), or the cores it runs on (4)"
    )
