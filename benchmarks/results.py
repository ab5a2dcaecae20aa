"""The format of result files, benchmarks/results/NAME.json; `benchmarks.report` writes docs/evidence from them.

    {"benchmark": ..., "command": ..., "finished": ..., "commit": ..., "machine": {...}, "versions": {...},
     "parameters": {...}, "load": [1-minute load before each run],
     "cases": {CASE: {"figures": {FIGURE: {"median": ..., "low": ..., "high": ..., "runs": [...]}},
                      "remarks": {NAME: TEXT}}}}

A figure's name carries its unit (`events_per_second`, `peak_memory_mib`). low and high are the least and the greatest
of all runs: five runs are too few for percentiles.
"""

import argparse
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from benchmarks.console import say

RESULTS = Path(__file__).parent / "results"
RUNS = 5
# Ends the name of a commit from which the measured code differs.
CHANGED = "-changed"
# Packages that determine the speed, besides the project's own code.
PACKAGES = ("pyspark", "pyarrow", "clickhouse-connect", "confluent-kafka", "chdb", "dagster")

Figures = Mapping[str, float]
T = TypeVar("T")


def parser(benchmark: str) -> argparse.ArgumentParser:
    """Return a parser with the arguments of every benchmark: `runs` and `results`."""
    created = argparse.ArgumentParser(prog=f"python -m benchmarks.{benchmark}")
    created.add_argument("--runs", type=int, default=RUNS)
    created.add_argument(
        "--results", type=Path, default=RESULTS, help="folder to write to; the page is made of the default"
    )
    return created


def turns(cases: Sequence[T], runs: int) -> Iterator[tuple[int, T]]:
    """Yield all cases once per turn, in reverse every other turn, so that a gradual slowdown affects all cases."""
    for turn in range(runs):
        yield from ((turn, case) for case in (cases if turn % 2 == 0 else cases[::-1]))


@dataclass
class Runs:
    """The figures of all runs of a benchmark so far."""

    figures: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    remarks: dict[str, dict[str, str]] = field(default_factory=dict)
    load: list[float] = field(default_factory=list)

    def measure(self, case: str, run: Callable[[], Figures]) -> None:
        """Run a case once; keep its figures and the machine's load before the run."""
        self.measure_parts([case], lambda: [run()])

    def measure_parts(self, cases: Sequence[str], run: Callable[[], Sequence[Figures]]) -> None:
        """Do one run that yields the figures of several cases."""
        self.load.append(round(os.getloadavg()[0], 1))
        for case, found in zip(cases, run(), strict=True):
            for name, value in found.items():
                self.figures.setdefault(case, {}).setdefault(name, []).append(value)
            say(f"{case}: {', '.join(f'{name} {value:,.6g}' for name, value in found.items())}")

    def attempt(self, case: str, run: Callable[[], Figures]) -> None:
        """Run a case once; on failure, record the error as a remark of the case and continue."""
        try:
            self.measure(case, run)
        except SystemExit as problem:
            say(f"{case}: {problem}")
            self.figures.setdefault(case, {})
            first, *_ = str(problem).splitlines()
            self.remark(case, failed="; ".join(filter(None, [self.remarks.get(case, {}).get("failed"), first])))

    def compare(self, case: str, changed: str, base: str) -> None:
        """Add a case of ratios: each run of `changed` divided by the run of `base` with the same number.

        There is no ratio of a figure that is 0 in a run of `base`, such as the number of lost rows.
        """
        self.figures[case] = {
            f"ratio_of_{name}": [c / b for c, b in zip(values, self.figures[base][name], strict=True)]
            for name, values in self.figures[changed].items()
            if all(self.figures[base][name])
        }

    def remark(self, case: str, **texts: str) -> None:
        """Add texts to a case."""
        self.remarks.setdefault(case, {}).update(texts)

    def write(self, folder: Path, benchmark: str, parameters: Mapping[str, object]) -> None:
        """Write the result file."""
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{benchmark}.json"
        content = {
            "benchmark": benchmark,
            "command": shlex.join(["python", "-m", _module(), *sys.argv[1:]]),
            "finished": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "commit": commit(),
            "machine": machine(),
            "versions": {name: version(name) for name in PACKAGES},
            "parameters": dict(parameters),
            "load": self.load,
            "cases": {
                case: {
                    "figures": {name: spread(values) for name, values in figures.items()},
                    "remarks": self.remarks.get(case, {}),
                }
                for case, figures in self.figures.items()
            },
        }
        file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        say(f"{file} written; `python -m benchmarks.report` puts what lies in {RESULTS.name} into docs/evidence")


def spread(values: list[float]) -> dict[str, object]:
    """Return median, least and greatest of a figure's runs, and all runs, to six significant digits."""
    rounded = [_significant(value) for value in values]
    return {
        "median": _significant(statistics.median(values)),
        "low": min(rounded),
        "high": max(rounded),
        "runs": rounded,
    }


def percentile(values: Mapping[float, int], share: float) -> float:
    """Return the least value that at least this share of all values does not exceed; values: value -> count."""
    wanted, seen = share * sum(values.values()), 0
    for value in sorted(values):
        seen += values[value]
        if seen >= wanted:
            return value
    raise ValueError("no percentile of nothing")


def machine() -> dict[str, object]:
    """Describe the machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "cores": os.cpu_count(),
        "processor": _processor(),
        "memory_gib": round(memory, 1),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
    }


def commit() -> str:
    """Return the commit that is measured, with a suffix when the code differs from it."""
    head = git("rev-parse", "--short=10", "HEAD") or "unknown"
    return head + (CHANGED if git("status", "--porcelain", "--", "*.py", "*.scala", "pyproject.toml") else "")


def _module() -> str:
    """Return the module name that `python -m` was called with."""
    spec = sys.modules["__main__"].__spec__
    return spec.name.removesuffix(".__main__") if spec else sys.argv[0]


def git(*arguments: str) -> str:
    """Return what git prints; '' where it fails."""
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=False).stdout.strip()


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _significant(value: float) -> float:
    return float(f"{value:.6g}")
