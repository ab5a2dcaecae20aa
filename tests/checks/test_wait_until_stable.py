from collections.abc import Iterator

from glassflow_dagster.checks.wait_until_stable import LONGEST_SECONDS, STILL_SECONDS, wait_until_stable


class Clock:
    """A clock that only `pause` advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def test_the_first_look_that_fits_is_taken() -> None:
    looks, clock = iter([5, 6, 7, 8]), Clock()
    assert wait_until_stable(lambda: next(looks), lambda found: found == 7, clock, clock.pause) == 7
    assert next(looks) == 8


def test_figures_that_stand_still_are_believed() -> None:
    clock = Clock()
    assert wait_until_stable(lambda: 5, lambda _: False, clock, clock.pause) == 5
    assert STILL_SECONDS <= clock.now < STILL_SECONDS + 1


def test_figures_that_never_stand_still_are_believed_in_the_end() -> None:
    def count() -> Iterator[int]:
        yield from range(10_000)

    looks, clock = count(), Clock()
    wait_until_stable(lambda: next(looks), lambda _: False, clock, clock.pause)
    assert LONGEST_SECONDS <= clock.now < LONGEST_SECONDS + 1
