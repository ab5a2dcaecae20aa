"""A few seeds of two drivers on two hosts; `python -m tests.cluster.two_drivers` runs a hundred."""

import pytest

from tests.cluster.hosts import missing
from tests.cluster.two_drivers import run_seeds, running_world

# One of each kind that needs no further program.
SEEDS = range(5)


@pytest.mark.long
@pytest.mark.servers
def test_exactly_one_of_two_drivers_goes_on_and_no_row_is_lost_or_doubled() -> None:
    if reason := missing():
        pytest.skip(reason)
    with running_world() as world:
        wrong = [result for result in run_seeds(world, SEEDS) if result.problems]
    assert wrong == []
