"""What the repetitions came to: kept in results.json, told in docs/faults.md."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.faults.kinds import KINDS, Kind
from tests.faults.repetition import Outcome

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "faults.md"

_HEAD = """\
# Faults

Each repetition runs a pipeline against real processes, lets one fault strike at a moment drawn from its seed, and then
compares all rows, all dead letters and the ledger, batch by batch, with what a plain-Python reference makes of the
topics' contents. A repetition is exact when nothing differs and, where the fault is not the driver's own death, the
driver has gone on by itself. One command repeats one of them: `python -m tests.faults --kind "answer cut" --seed 7`.
`make faults` runs what is missing to {wanted} repetitions of each kind, and writes this page.

What must hold is the same for every kind: no key lost, none doubled, of several events of a key the first one is there,
each dead letter with its stage and its raw value, a ledger whose batches follow each other without a gap, cover every
record, and count what became of the very records of each batch.

| fault | what happens | deduplication | join |
|---|---|---|---|
"""


@dataclass
class Results:
    """Seeds that were run, by workload and kind: True for an exact repetition."""

    seeds: dict[str, dict[str, dict[str, bool]]]

    @classmethod
    def read(cls, file: Path) -> "Results":
        return cls(json.loads(file.read_text()) if file.exists() else {})

    def missing(self, kind: str, workload: str, wanted: int) -> list[int]:
        """The seeds that were not run, or went wrong."""
        exact = self.seeds.get(workload, {}).get(kind, {})
        return [seed for seed in range(wanted) if not exact.get(str(seed))]

    def add(self, outcome: Outcome) -> None:
        self.seeds.setdefault(outcome.workload, {}).setdefault(outcome.kind, {})[str(outcome.seed)] = not outcome.wrong

    def write(self) -> None:
        RESULTS.write_text(json.dumps(self.seeds, indent=1, sort_keys=True) + "\n")
        PAGE.write_text(self.page())

    def page(self) -> str:
        return _HEAD.format(wanted=20) + "".join(map(self._line, KINDS))

    def _line(self, kind: Kind) -> str:
        deduplication, join = (self._count(workload, kind.name) for workload in ("deduplication", "join"))
        return f"| {kind.name} | {kind.does} | {deduplication} | {join} |\n"

    def _count(self, workload: str, kind: str) -> str:
        found: dict[str, Any] = self.seeds.get(workload, {}).get(kind, {})
        if not found:
            return ""
        exact = sum(found.values())
        return f"{exact}" if exact == len(found) else f"{exact} of {len(found)}"
