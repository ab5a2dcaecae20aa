"""Run the matrix of faults on several hosts: `python -m tests.cluster.faults`.

Results accumulate where those of `tests.faults` do.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.cluster.fault_kinds import CLUSTER, KINDS
from tests.cluster.fault_world import ClusterWorld, running_cluster
from tests.cluster.hosts import missing
from tests.faults.__main__ import WANTED, say
from tests.faults.kinds import Kind
from tests.faults.repetition import Outcome, repeat_in
from tests.faults.results import RESULTS, Results, record
from tests.faults.version import code_version

# The most repetitions that one pipeline goes through.
_PASS = 7

Repetitions = Sequence[tuple[Kind, int]]


def main() -> int:
    """Run the missing repetitions; return 1 where one was wrong, or where there can be no hosts."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.faults", description=__doc__)
    parser.add_argument("--kind", action="append", help="only these kinds; all without")
    parser.add_argument("--seed", type=int, help="run this one repetition, and record nothing")
    parser.add_argument("--repetitions", type=int, default=WANTED, help="how many each kind is to have")
    parser.add_argument("--minutes", type=float, default=600, help="begin no pass after so long")
    arguments = parser.parse_args()
    kinds = [kind for kind in KINDS if not arguments.kind or kind.name in arguments.kind]
    if not kinds:
        parser.error(f"no such kind; there are: {', '.join(kind.name for kind in KINDS)}")
    if reason := missing():
        print(f"not possible here: {reason}", file=sys.stderr)
        return 1
    if arguments.seed is not None:
        return int(sum(map(say, run_pass([(kind, arguments.seed) for kind in kinds]))) > 0)
    return _fill(kinds, arguments.repetitions, time.monotonic() + 60 * arguments.minutes)


def run_pass(repetitions: Repetitions) -> Iterator[Outcome]:
    """Run repetitions one after the other, on a cluster of their own; stop at the first that goes wrong."""
    with tempfile.TemporaryDirectory(prefix="faults-") as name, running_cluster(Path(name)) as cluster:
        yield from repeat_in(ClusterWorld(cluster, Path(name)), CLUSTER, repetitions)


def _fill(kinds: Sequence[Kind], wanted: int, end: float) -> int:
    """Run the missing repetitions, seed by seed over all kinds, so that an early end leaves some of every kind."""
    results, version, wrong = Results.read(RESULTS), code_version(), 0
    missing_ones = [(seed, kind) for kind in kinds for seed in results.missing(kind.name, CLUSTER, version, wanted)]
    repetitions = [(kind, seed) for seed, kind in sorted(missing_ones, key=lambda each: each[0])]
    while repetitions and time.monotonic() < end:
        done = 0
        for outcome in run_pass(repetitions[:_PASS]):
            done += 1
            wrong += say(outcome)
            record(outcome, version)
        # Those behind one that went wrong get another cluster.
        repetitions = repetitions[done:]
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
