"""The number of keys in a deduplication window."""

from glassflow_dagster.driver.watch.key_count import KeyCount

MINUTE = 60_000
NOW = 1000 * MINUTE


def test_keys_leave_with_their_window() -> None:
    keys = KeyCount(window_ms=10 * MINUTE)
    assert keys.count(100, NOW, NOW) == 100
    assert keys.count(150, NOW + MINUTE, NOW + MINUTE) == 150
    assert keys.count(150, NOW + MINUTE, NOW + 11 * MINUTE) == 50
    assert keys.count(150, NOW + MINUTE, NOW + 12 * MINUTE) == 0


def test_rows_of_earlier_runs_count() -> None:
    keys = KeyCount(window_ms=10 * MINUTE, by_minute={NOW // MINUTE - 20: 7, NOW // MINUTE - 5: 30})
    assert keys.count(0, None, NOW) == 30
    assert keys.count(12, NOW, NOW) == 42


def test_a_batch_that_is_seen_twice_counts_once() -> None:
    keys = KeyCount(window_ms=10 * MINUTE)
    assert [keys.count(100, NOW, NOW) for _ in range(3)] == [100, 100, 100]
