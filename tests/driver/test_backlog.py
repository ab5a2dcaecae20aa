"""When a pipeline is said not to keep up, and what is advised."""

import itertools
from collections.abc import Iterable

from glassflow_dagster.driver.backlog import Backlog


def told(waiting: Iterable[int | None], every: float = 1.0) -> list[str]:
    """What is said of numbers that are so many seconds apart."""
    backlog = Backlog(cores=2, block_rows=50_000)
    return [backlog.add_sample(number * every, count, partitions=8) for number, count in enumerate(waiting)]


def test_a_backlog_that_only_grows_is_told_after_five_minutes() -> None:
    said = told(range(0, 40_000, 100))
    assert not any(said[:300])
    assert said[300] == (
        "cannot keep up: 6,000 records waited five minutes ago, 30,000 do now; raise the cores it runs on (2)"
    )


def test_it_is_not_told_any_more_when_less_waits() -> None:
    said = told([*range(0, 40_000, 100), *range(40_000, 0, -1_000)])
    assert said[399]
    assert not said[-1]


def test_catching_up_and_waves_are_well() -> None:
    assert not any(told(range(1_000_000, 0, -1_000)))
    assert not any(told([0] * 1_000))
    assert not any(told(itertools.islice(itertools.cycle([0, 50_000, 200_000]), 1_000)))


def test_what_is_not_known_says_nothing() -> None:
    assert not any(told([None] * 400))


def test_a_slow_heartbeat_is_judged_over_the_same_time() -> None:
    said = told(range(0, 100_000, 10_000), every=60)
    assert [bool(text) for text in said] == [number >= 5 for number in range(10)]


def test_all_that_can_be_raised_is_named() -> None:
    backlog = Backlog(cores=4, block_rows=1_000)
    backlog.add_sample(0, 0, partitions=2)
    assert backlog.add_sample(400, 9_000, partitions=2).endswith(
        "raise sink.max_batch_size (1,000 rows; recommended: 10,000 to 50,000), or the partitions of its topics (2, "
        "where 4 could be read at once), or the cores it runs on (4)"
    )
