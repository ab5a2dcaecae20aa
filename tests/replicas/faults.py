"""Run faults with replicated tables, and print what each came to: one repetition of each kind on each workload.

`python -m tests.replicas.faults --workload quorum --kind "replica killed" --seed 7` runs one; `--list` shows what
there is.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.faults.repetition import Outcome, repeat_in
from tests.faults.runner import Matrix, Repetitions
from tests.replicas.fault_kinds import KINDS, QUORUM, REPLICAS
from tests.replicas.fault_world import QuorumWorkload, ReplicatedWorkload, ReplicatedWorld, running_replicas

WORKLOADS = {REPLICAS: ReplicatedWorkload, QUORUM: QuorumWorkload}
MATRIX = Matrix(KINDS, [*WORKLOADS])


def run_pass(workload: str, repetitions: Repetitions) -> Iterator[Outcome]:
    """Run repetitions one after the other, on servers of their own; stop at the first that goes wrong."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name, running_replicas(Path(name) / "servers") as servers:
        world = ReplicatedWorld(servers, Path(name), WORKLOADS[workload])
        yield from repeat_in(world, workload, repetitions)


def main(words: Sequence[str]) -> int:
    """Run what the words of the command line choose; return 1 if anything was wrong."""
    return MATRIX.run(run_pass, MATRIX.parse("tests.replicas.faults", __doc__, words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
