"""Run the matrix of faults: `python -m tests.faults`. Results accumulate in results.json and docs/faults.md.

Several processes may run beside each other, each with workloads (`--workload`) or kinds (`--kind`) of its own.
"""

import argparse
import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from tests.faults.kinds import KINDS, Kind
from tests.faults.repetition import WORKLOADS, Outcome, run_pass
from tests.faults.results import RESULTS, Results, record
from tests.faults.servers import Servers
from tests.faults.version import code_version

WANTED = 20
_PASS = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kind", action="append", help="only these kinds; all without")
    parser.add_argument("--workload", choices=[*WORKLOADS], action="append", help="only these; all without")
    parser.add_argument("--seed", type=int, help="run this one repetition, and record nothing")
    parser.add_argument("--repetitions", type=int, default=WANTED, help="how many each kind is to have")
    parser.add_argument("--pass", type=int, default=_PASS, dest="size", help="how many one pipeline goes through")
    parser.add_argument("--minutes", type=float, default=600, help="begin no pass after so long")
    parser.add_argument("--version", action="store_true", help="print the version of the code that a driver runs")
    arguments = parser.parse_args()
    if arguments.version:
        print(code_version())
        return 0
    kinds = [kind for kind in KINDS if not arguments.kind or kind.name in arguments.kind]
    if not kinds:
        parser.error(f"no such kind; there are: {', '.join(kind.name for kind in KINDS)}")
    workloads = arguments.workload or [*WORKLOADS]
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        servers = Servers(Path(folder) / "servers")
        try:
            if arguments.seed is not None:
                return _once(servers, Path(folder), kinds, workloads, arguments.seed)
            return _fill(servers, Path(folder), kinds, workloads, arguments)
        finally:
            servers.close()


def _once(servers: Servers, folder: Path, kinds: Sequence[Kind], workloads: Sequence[str], seed: int) -> int:
    """Run one seed of the chosen kinds and workloads; return 1 if anything was wrong."""
    wrong = 0
    for kind in kinds:
        for workload in workloads:
            if workload in kind.workloads:
                wrong += sum(map(say, run_pass(servers, folder, workload, [(kind, seed)])))
    return int(wrong > 0)


def _fill(
    servers: Servers, folder: Path, kinds: Sequence[Kind], workloads: Sequence[str], arguments: argparse.Namespace
) -> int:
    """Run the missing repetitions seed by seed over all kinds, so that an early end leaves some of every kind."""
    results, version, wrong = Results.read(RESULTS), code_version(), 0
    end = time.monotonic() + 60 * arguments.minutes
    missing_of = partial(results.missing, version=version, wanted=arguments.repetitions)
    for repetitions, workload in _passes(missing_of, kinds, workloads, arguments.size):
        if time.monotonic() > end:
            break
        for outcome in run_pass(servers, folder, workload, repetitions):
            wrong += say(outcome)
            record(outcome, version)
    return int(wrong > 0)


def _passes(
    missing_of: Callable[[str, str], list[int]], kinds: Sequence[Kind], workloads: Sequence[str], size: int
) -> Iterator[tuple[list[tuple[Kind, int]], str]]:
    """Yield the repetitions of one pass, and its workload; kinds that exclude each other are in different passes."""
    for workload, apart in itertools.product(workloads, sorted({kind.apart for kind in kinds})):
        missing = [
            (seed, kind)
            for kind in kinds
            if workload in kind.workloads and kind.apart == apart
            for seed in missing_of(kind.name, workload)
        ]
        # Sorted by seed alone: the join's clock must not go back within a pipeline.
        repetitions = [(kind, seed) for seed, kind in sorted(missing, key=lambda task: task[0])]
        together = 1 if any(kind.ends for kind, _ in repetitions) else size
        for begin in range(0, len(repetitions), together):
            yield repetitions[begin : begin + together], workload


def say(outcome: Outcome) -> bool:
    """Print the outcome of a repetition; return whether it was wrong."""
    text = f"{outcome.workload}, {outcome.kind}, seed {outcome.seed}: {outcome.hits} hits"
    print(time.strftime("%H:%M:%S"), text, "WRONG" if outcome.wrong else "exact", flush=True)
    for line in outcome.wrong:
        print("    ", line, flush=True)
    return bool(outcome.wrong)


if __name__ == "__main__":
    sys.exit(main())
