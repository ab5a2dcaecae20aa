"""A value that is read before it is needed: used while it is young, read again when it is old or was not got."""

import threading

import pytest

from glassflow_dagster.stream.delivery import read_ahead
from glassflow_dagster.stream.delivery.read_ahead import ReadAhead

SOON = 100  # milliseconds


class Source:
    """Counts its reads; each gives the next number."""

    def __init__(self) -> None:
        self.reads: list[str] = []
        self.fails = False

    def once(self) -> int:
        self.reads.append(threading.current_thread().name)
        if self.fails:
            raise OSError("no answer")
        return len(self.reads)

    def retried(self) -> int:
        self.reads.append("retried")
        return len(self.reads)


def test_a_value_that_is_expected_soon_is_read_in_the_background() -> None:
    source = Source()
    ahead = ReadAhead(source.once, source.retried)
    ahead.expect(SOON)
    assert ahead.result() == 1
    (reader,) = source.reads
    assert reader != threading.main_thread().name


@pytest.mark.parametrize("interval_ms", [0, 60_000])
def test_a_value_that_is_not_expected_soon_is_read_when_it_is_needed(interval_ms: int) -> None:
    source = Source()
    ahead = ReadAhead(source.once, source.retried)
    ahead.expect(interval_ms)
    ahead.result()
    assert source.reads == ["retried"]


def test_a_value_is_used_while_it_is_young(monkeypatch: pytest.MonkeyPatch) -> None:
    source, now = Source(), [0.0]
    for clock in ("monotonic", "time"):
        monkeypatch.setattr(read_ahead.time, clock, lambda: now[0])
    ahead = ReadAhead(source.once, source.retried)
    ahead.expect(SOON)
    used = []
    for now[0] in (0.1, 0.2, 0.3, 0.4, 0.5):
        used.append(ahead.result())
        ahead.expect(SOON)
    # Read at 0, 0.2 and 0.4.
    assert used == [1, 1, 2, 2, 3]


@pytest.mark.parametrize("clock", ["monotonic", "time"])
@pytest.mark.parametrize("moved", [read_ahead.MAX_AGE_SECONDS + 0.01, -3600.0])
def test_an_old_value_is_read_again_also_where_the_clock_was_set(
    clock: str, moved: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, now = Source(), {"monotonic": 0.0, "time": 0.0}
    monkeypatch.setattr(read_ahead.time, "monotonic", lambda: now["monotonic"])
    monkeypatch.setattr(read_ahead.time, "time", lambda: now["time"])
    ahead = ReadAhead(source.once, source.retried)
    ahead.expect(SOON)
    # Only the time of day is ever set back.
    now[clock] = moved if clock == "time" else abs(moved)
    assert ahead.result() == 2


def test_an_error_in_the_background_is_left_to_the_read_that_is_repeated() -> None:
    source = Source()
    source.fails = True
    ahead = ReadAhead(source.once, source.retried)
    ahead.expect(SOON)
    assert ahead.result() == 2
    assert source.reads[-1] == "retried"
