"""A draw of the faults with replicated tables; `make faults-replicas` runs all of them."""

import random
from pathlib import Path

import pytest

from tests.replicas.conftest import with_replicas
from tests.replicas.fault_kinds import KINDS
from tests.replicas.fault_world import ReplicatedWorkload, ReplicatedWorld, running_replicas
from tests.replicas.faults import WORKLOADS, run_pass
from tests.support.variants import fault_seed

SEED = fault_seed()

pytestmark = pytest.mark.long


@pytest.mark.servers
@with_replicas
def test_a_draw_of_faults_changes_no_row_on_any_replica() -> None:
    draw = random.Random(SEED)
    workload = draw.choice([*WORKLOADS])
    usual = [kind for kind in KINDS if workload in kind.workloads]
    kinds = [draw.choice([kind for kind in usual if kind.dies == dies]) for dies in (False, True)]
    outcomes = list(run_pass(workload, [(kind, SEED) for kind in kinds]))
    assert [(o.kind, o.hits > 0, o.wrong) for o in outcomes] == [(kind.name, True, ()) for kind in kinds]


@pytest.mark.servers
@with_replicas
def test_a_row_that_the_replicas_lack_is_seen_on_each(tmp_path: Path) -> None:
    with running_replicas(tmp_path / "servers") as servers:
        world = ReplicatedWorld(servers, tmp_path, ReplicatedWorkload)
        try:
            world.warm_up()
            assert world.differences() == []
            assert f"inserts into {world.name}.events wait for one replica only" in world.log.read_text()
            world.client.command(f"ALTER TABLE {world.name}.events DELETE WHERE true", settings={"mutations_sync": 2})
            assert [line.split(" as ")[0] for line in world.differences()] == [
                "replica1: row missing: 1,", "replica2: row missing: 1,"
            ]  # fmt: skip
        finally:
            world.end()
