"""Run the matrix of faults with replicated tables: `python -m tests.replicas.faults replicas`, or `quorum`.

Results accumulate where those of `tests.faults` do.
"""

import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.faults.one_column import OneColumn, Repetitions
from tests.faults.repetition import Outcome, repeat_in
from tests.replicas.fault_kinds import KINDS, QUORUM, REPLICAS
from tests.replicas.fault_world import QuorumWorkload, ReplicatedWorkload, ReplicatedWorld, running_replicas

WORKLOADS = {REPLICAS: ReplicatedWorkload, QUORUM: QuorumWorkload}


def run_pass(workload: str, repetitions: Repetitions) -> Iterator[Outcome]:
    """Run repetitions one after the other, on servers of their own; stop at the first that goes wrong."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name, running_replicas(Path(name) / "servers") as servers:
        world = ReplicatedWorld(servers, Path(name), WORKLOADS[workload])
        yield from repeat_in(world, workload, repetitions)


def main() -> int:
    """Run the missing repetitions of the workload that the first argument names; return 1 where one was wrong."""
    workload, *words = sys.argv[1:] or [""]
    if workload not in WORKLOADS:
        print(f"usage: python -m tests.replicas.faults {{{','.join(WORKLOADS)}}} ...", file=sys.stderr)
        return 2
    kinds = [kind for kind in KINDS if workload in kind.workloads]
    column = OneColumn(workload, kinds, partial(run_pass, workload), most=10)
    return column.main(f"tests.replicas.faults {workload}", __doc__, words)


if __name__ == "__main__":
    sys.exit(main())
