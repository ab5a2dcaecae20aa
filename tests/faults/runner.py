"""Run repetitions of faults from a command line, and print the outcome of each.

A table of kinds, the words of the command line and a pass (repetitions one after the other on one pipeline) are all
that the commands of `tests.faults`, `tests.cluster.faults` and `tests.replicas.faults` need.
"""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.faults.kinds import Kind
from tests.faults.repetition import Outcome

Repetitions = Sequence[tuple[Kind, int]]
# Runs repetitions on one pipeline of a workload; stops at the first that goes wrong.
RunPass = Callable[[str, Repetitions], Iterator[Outcome]]


@dataclass(frozen=True)
class Matrix:
    """The kinds of faults that can be chosen, and the workloads that they strike.

    most: the most repetitions that one pipeline goes through.
    """

    kinds: Sequence[Kind]
    workloads: Sequence[str]
    most: int = 10

    def parse(self, program: str, description: str | None, words: Sequence[str]) -> argparse.Namespace:
        """Return `kinds`, `workloads` and `seed`; print the kinds and leave for `--list`."""
        parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
        parser.add_argument("--kind", action="append", help="only these kinds; all without")
        parser.add_argument("--workload", choices=self.workloads, action="append", help="only these; all without")
        parser.add_argument("--seed", type=int, default=0, help="draws the moment of each fault (default: 0)")
        parser.add_argument("--list", action="store_true", help="print the kinds with their workloads")
        arguments = parser.parse_args(words)
        if arguments.list:
            for kind in self.kinds:
                print(f"{kind.name}: {kind.does} ({', '.join(self._workloads_of(kind))})")
            parser.exit()
        names = [kind.name for kind in self.kinds]
        if unknown := [name for name in arguments.kind or [] if name not in names]:
            parser.error(f"no such kind: {', '.join(unknown)}; there are: {', '.join(names)}")
        arguments.kinds = [kind for kind in self.kinds if not arguments.kind or kind.name in arguments.kind]
        arguments.workloads = arguments.workload or [*self.workloads]
        return arguments

    def run(self, run_pass: RunPass, arguments: argparse.Namespace) -> int:
        """Run one repetition of each chosen kind on each chosen workload; return 1 if anything was wrong."""
        done = wrong = 0
        for workload, repetitions in self.passes(arguments.kinds, arguments.workloads, arguments.seed):
            rest = repetitions
            while rest:
                outcomes = [_say(outcome) for outcome in run_pass(workload, rest)]
                done, wrong = done + len(outcomes), wrong + sum(bool(outcome.wrong) for outcome in outcomes)
                # Those behind one that went wrong get another pipeline.
                rest = rest[len(outcomes) :]
        print(f"{done} repetitions, {wrong} wrong")
        return int(wrong > 0 or not done)

    def passes(
        self, kinds: Sequence[Kind], workloads: Sequence[str], seed: int
    ) -> Iterator[tuple[str, list[tuple[Kind, int]]]]:
        """Yield a workload and the repetitions of one pass; kinds that exclude each other are in different passes."""
        for workload in workloads:
            struck = [kind for kind in kinds if workload in self._workloads_of(kind)]
            for apart in sorted({kind.apart for kind in struck}):
                together = [(kind, seed) for kind in struck if kind.apart == apart]
                size = 1 if any(kind.ends for kind, _ in together) else self.most
                for begin in range(0, len(together), size):
                    yield workload, together[begin : begin + size]

    def _workloads_of(self, kind: Kind) -> list[str]:
        """Return the workloads of the matrix that a kind strikes; where there is only one, no kind names it."""
        named = [workload for workload in self.workloads if workload in kind.workloads]
        return named or [*self.workloads][: int(len(self.workloads) == 1)]


def _say(outcome: Outcome) -> Outcome:
    """Print an outcome, and return it."""
    text = f"{outcome.workload}, {outcome.kind}, seed {outcome.seed}: {outcome.hits} hits"
    print(time.strftime("%H:%M:%S"), text, "WRONG" if outcome.wrong else "exact", flush=True)
    for line in outcome.wrong:
        print("    ", line, flush=True)
    return outcome
