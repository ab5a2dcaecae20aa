"""Two seeds of two drivers on two hosts; `python -m tests.cluster.two_drivers` runs each kind."""

import pytest

from tests.cluster.hosts import missing
from tests.cluster.two_drivers import run_seeds, running_world
from tests.support.variants import one_of

# Each number is a kind of fault that needs no further program; a seed takes half a minute.
SEEDS = [range(first, first + 2) for first in range(4)]


@pytest.mark.long
@pytest.mark.servers
@pytest.mark.parametrize("seeds", one_of(SEEDS), ids=str)
def test_exactly_one_of_two_drivers_goes_on_and_no_row_is_lost_or_doubled(seeds: range) -> None:
    if reason := missing():
        pytest.skip(reason)
    with running_world() as world:
        wrong = [result for result in run_seeds(world, seeds) if result.problems]
    assert wrong == []
