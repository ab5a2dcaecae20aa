"""Run faults on several hosts, and print what each came to: one repetition of each kind.

`python -m tests.cluster.faults --kind "store: 503" --seed 7` runs one; `--list` shows what there is. The hosts are
network namespaces, which needs root.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.cluster.fault_kinds import CLUSTER, KINDS
from tests.cluster.fault_world import ClusterWorld, running_cluster
from tests.cluster.hosts import missing
from tests.faults.repetition import Outcome, repeat_in
from tests.faults.runner import Matrix, Repetitions

MATRIX = Matrix(KINDS, [CLUSTER], most=7)


def run_pass(workload: str, repetitions: Repetitions) -> Iterator[Outcome]:
    """Run repetitions one after the other, on a cluster of their own; stop at the first that goes wrong."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name, running_cluster(Path(name)) as cluster:
        yield from repeat_in(ClusterWorld(cluster, Path(name)), workload, repetitions)


def main(words: Sequence[str]) -> int:
    """Run what the words of the command line choose; return 1 if anything was wrong, or there can be no hosts."""
    arguments = MATRIX.parse("tests.cluster.faults", __doc__, words)
    if reason := missing():
        print(f"not possible here: {reason}", file=sys.stderr)
        return 1
    return MATRIX.run(run_pass, arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
