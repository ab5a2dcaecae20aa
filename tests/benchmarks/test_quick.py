"""The check for regressions: what it compares, and when it fails."""

import json
from pathlib import Path

import pytest

from benchmarks.quick import compare, read_ratios

RATIOS = {"ratio_of_events_per_second": 0.8, "ratio_of_events_per_cpu_second": 0.4}


def test_a_ratio_that_falls_by_more_than_fifteen_percent_is_named() -> None:
    kept = {"stateless": RATIOS, "deduplicated": RATIOS}
    found = {
        "stateless": {"ratio_of_events_per_second": 0.69, "ratio_of_events_per_cpu_second": 0.3},
        "deduplicated": {"ratio_of_events_per_second": 9.0, "ratio_of_events_per_cpu_second": 0.4},
    }
    (line,) = compare(kept, found)
    assert line.startswith("stateless: ratio_of_events_per_cpu_second is 0.3, 25% below the kept 0.4;")


def test_only_ratios_are_compared_and_missing_ones_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "quick.json"
    with pytest.raises(SystemExit, match=r"quick\.json is missing; measure it"):
        read_ratios(file)
    figures = {name: {"median": value, "runs": [value]} for name, value in RATIOS.items()}
    more = {"ratio_of_seconds_to_first_row": {"median": 9.0}}
    cases = {
        "baseline consumer": {"figures": {"events_per_second": {"median": 1.0}}},
        "stateless : baseline": {"figures": {**figures, **more}},
    }
    file.write_text(json.dumps({"cases": cases}))
    assert read_ratios(file) == {"stateless : baseline": RATIOS}
