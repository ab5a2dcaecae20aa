"""A draw of the faults on several hosts; `make faults-cluster` runs all of them."""

import random

import pytest

from tests.cluster.fault_kinds import CLUSTER, KINDS
from tests.cluster.faults import run_pass
from tests.cluster.hosts import missing
from tests.support.variants import fault_seed

SEED = fault_seed()


@pytest.mark.long
@pytest.mark.servers
def test_a_draw_of_faults_on_several_hosts_changes_no_row() -> None:
    if reason := missing():
        pytest.skip(reason)
    # A driver that starts again takes half a minute longer.
    kind = random.Random(SEED).choice([kind for kind in KINDS if not kind.dies])
    [outcome] = run_pass(CLUSTER, [(kind, SEED)])
    assert (outcome.kind, outcome.hits > 0, outcome.wrong) == (kind.name, True, ())
