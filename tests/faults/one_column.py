"""The command of a column of the matrix whose servers differ from those of the others."""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tests.faults.__main__ import WANTED, say
from tests.faults.kinds import Kind
from tests.faults.repetition import Outcome
from tests.faults.results import RESULTS, Results, record
from tests.faults.version import code_version

Repetitions = Sequence[tuple[Kind, int]]


@dataclass(frozen=True)
class OneColumn:
    """A column of the matrix: its name, its kinds, and how repetitions run one after the other on new servers.

    run_pass: stops at the first repetition that goes wrong. most: the most repetitions that one pipeline goes through.
    """

    name: str
    kinds: Sequence[Kind]
    run_pass: Callable[[Repetitions], Iterator[Outcome]]
    most: int

    def main(self, program: str, description: str | None, words: Sequence[str]) -> int:
        """Run the missing repetitions; return 1 where one was wrong. words: of the command line, after the program."""
        parser = argparse.ArgumentParser(prog=f"python -m {program}", description=description)
        parser.add_argument("--kind", action="append", help="only these kinds; all without")
        parser.add_argument("--seed", type=int, help="run this one repetition, and record nothing")
        parser.add_argument("--repetitions", type=int, default=WANTED, help="how many each kind is to have")
        parser.add_argument("--minutes", type=float, default=600, help="begin no pass after so long")
        arguments = parser.parse_args(words)
        kinds = [kind for kind in self.kinds if not arguments.kind or kind.name in arguments.kind]
        if not kinds:
            parser.error(f"no such kind; there are: {', '.join(kind.name for kind in self.kinds)}")
        if arguments.seed is not None:
            return int(sum(map(say, self.run_pass([(kind, arguments.seed) for kind in kinds]))) > 0)
        return self._fill(kinds, arguments.repetitions, time.monotonic() + 60 * arguments.minutes)

    def _fill(self, kinds: Sequence[Kind], wanted: int, end: float) -> int:
        """Run the missing repetitions, seed by seed over all kinds, so that an early end leaves some of every kind."""
        results, version, wrong = Results.read(RESULTS), code_version(), 0
        missing = [(seed, kind) for kind in kinds for seed in results.missing(kind.name, self.name, version, wanted)]
        repetitions = [(kind, seed) for seed, kind in sorted(missing, key=lambda each: each[0])]
        while repetitions and time.monotonic() < end:
            done = 0
            for outcome in self.run_pass(repetitions[: self.most]):
                done += 1
                wrong += say(outcome)
                record(outcome, version)
            # Those behind one that went wrong get other servers.
            repetitions = repetitions[done:]
        return int(wrong > 0)
