"""Run the matrix of faults on several hosts: `python -m tests.cluster.faults`.

Results accumulate where those of `tests.faults` do.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.fault_kinds import CLUSTER, KINDS
from tests.cluster.fault_world import ClusterWorld, running_cluster
from tests.cluster.hosts import missing
from tests.faults.one_column import OneColumn, Repetitions
from tests.faults.repetition import Outcome, repeat_in


def run_pass(repetitions: Repetitions) -> Iterator[Outcome]:
    """Run repetitions one after the other, on a cluster of their own; stop at the first that goes wrong."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name, running_cluster(Path(name)) as cluster:
        yield from repeat_in(ClusterWorld(cluster, Path(name)), CLUSTER, repetitions)


def main() -> int:
    """Run the missing repetitions; return 1 where one was wrong, or where there can be no hosts."""
    if reason := missing():
        print(f"not possible here: {reason}", file=sys.stderr)
        return 1
    return OneColumn(CLUSTER, KINDS, run_pass, most=7).main("tests.cluster.faults", __doc__, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
