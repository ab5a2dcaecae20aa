"""Detection of a running driver that makes no progress, with injected times and without Spark or Kafka."""

from types import SimpleNamespace
from typing import Any

import pytest

from glassflow_dagster.driver.watch.progress_watch import ProgressWatch

STALL_SECONDS = 61.0  # seconds
# Plus ten times the slowest batch, which counts as ten seconds while no batch was slower.
FIRST_BOUND = STALL_SECONDS + 100


class Driver:
    """A progress watch over a fake query: its last batch, and whether records wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.waiting = False
        self.questions = 0
        monkeypatch.setattr("time.monotonic", lambda: self.now)
        self.written: Any = SimpleNamespace(last=None)
        self.watch = ProgressWatch(lambda: self.written, self._records_wait, STALL_SECONDS, 4711, print)

    def close(self, batch_id: int) -> None:
        self.written = SimpleNamespace(last=SimpleNamespace(batch_id=batch_id))

    def advance(self, seconds: float) -> str:
        """Advance the clock second by second; return the last result."""
        result = ""
        for _ in range(int(seconds)):
            self.now += 1
            result = self.watch.stall_reason(self.now)
        return result

    def _records_wait(self) -> bool:
        self.questions += 1
        return self.waiting


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def test_a_query_with_nothing_to_do_is_no_stalled_one(driver: Driver) -> None:
    assert driver.advance(10 * FIRST_BOUND) == ""
    assert driver.questions <= 21, "the brokers are asked seldom"


def test_records_that_wait_longer_than_the_pace_allows_are_a_stall_until_a_batch_is_closed(driver: Driver) -> None:
    driver.waiting = True
    assert driver.advance(FIRST_BOUND - 2) == ""
    assert "no batch was closed for" in driver.advance(3)
    driver.close(0)
    assert driver.advance(FIRST_BOUND - 2) == ""


def test_records_that_have_just_come_are_given_their_time(driver: Driver) -> None:
    driver.advance(3 * FIRST_BOUND)
    driver.waiting = True
    assert driver.advance(FIRST_BOUND / 2 - 2) == ""


def test_slow_batches_make_the_bound_larger(driver: Driver) -> None:
    assert driver.watch.bound == FIRST_BOUND
    for batch_id, seconds in enumerate((40.0, 20.0)):
        driver.watch.took(batch_id, seconds)
    assert driver.watch.bound == FIRST_BOUND + 300
    for batch_id in range(2, 12):
        driver.watch.took(batch_id, 1.0)
    assert driver.watch.bound == FIRST_BOUND, "what was slow long ago does not count"


def test_a_jvm_that_does_not_answer_is_a_stall_whether_records_wait_or_not(driver: Driver) -> None:
    with driver.watch.asking():
        assert driver.advance(29) == ""
        assert driver.advance(2).startswith("Spark's JVM (pid 4711) has not answered for 31 s")
    assert driver.advance(1) == ""
