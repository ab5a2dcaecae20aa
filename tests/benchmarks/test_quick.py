"""The check for regressions: what it compares, and when it fails."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.kept_commit import program_of
from benchmarks.quick import compare, read_commit

COMMIT = "0123456789"


def _figures(**deduplicated: list[float]) -> dict[str, dict[str, list[float]]]:
    """Return the ratios of two products at both commits; `deduplicated` replaces some of the checkout's."""
    ratios = {"ratio_of_events_per_second": [0.8] * 3, "ratio_of_events_per_cpu_second": [0.4] * 3}
    cases = [f"{name}{at} : baseline" for name in ("deduplicated", "stateless") for at in ("", f" at {COMMIT}")]
    return {case: dict(ratios) for case in cases} | {"deduplicated : baseline": {**ratios, **deduplicated}}


def test_a_ratio_that_falls_by_more_than_fifteen_percent_is_named() -> None:
    (line,) = compare(_figures(ratio_of_events_per_cpu_second=[0.9, 0.3, 0.29]), COMMIT)
    assert line.startswith(
        "deduplicated : baseline: ratio_of_events_per_cpu_second is 0.3, and 0.4 at 0123456789: it fell by 25%;"
    )


def test_a_ratio_that_falls_by_less_is_none() -> None:
    assert compare(_figures(ratio_of_events_per_second=[0.69, 0.1, 9.0]), COMMIT) == []


def test_the_commit_is_that_of_the_kept_ratios_and_missing_ones_are_an_error(tmp_path: Path) -> None:
    file = tmp_path / "quick.json"
    with pytest.raises(SystemExit, match=r"quick\.json is missing; measure it"):
        read_commit(file)
    file.write_text(json.dumps({"commit": f"{COMMIT}-changed"}))
    assert read_commit(file) == COMMIT


def test_a_commit_that_the_clone_does_not_have_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFLOW_CACHE", str(tmp_path))
    with pytest.raises(SystemExit, match=f"has no commit {COMMIT}, whose speed is the measure; fetch"):
        program_of(COMMIT)


def test_a_kept_commit_runs_its_own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLASSFLOW_CACHE", str(tmp_path))
    folder = tmp_path / "commits" / COMMIT
    program = folder / ".venv" / "bin" / "glassflow-dagster"
    program.parent.mkdir(parents=True)
    (folder / "complete").touch()
    # As Spark starts its workers: with -m, in whatever folder is the current one.
    program.write_text(f"#!/bin/sh\nexec {sys.executable} -m glassflow_dagster_of_the_folder\n")
    program.chmod(0o755)
    (tmp_path / "glassflow_dagster_of_the_folder.py").write_text("raise SystemExit(0)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = subprocess.run(program_of(COMMIT), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "No module named glassflow_dagster_of_the_folder" in done.stderr) == (1, True)
