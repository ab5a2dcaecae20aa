"""Dagster's own commands on the project."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
pytestmark = pytest.mark.servers


def run(home: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = command
    home.mkdir(exist_ok=True)
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    return subprocess.run(
        [str(Path(sys.executable).with_name(program)), *arguments],
        cwd=PROJECT,
        env={**os.environ, "DAGSTER_HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [
        ("dagster", "definitions", "validate"),
        ("dagster", "definitions", "validate", "-w", "workspace.yaml"),
        ("dg", "check", "defs"),
    ],
    ids=" ".join,
)
def test_the_project_is_accepted(tmp_path: Path, command: tuple[str, ...]) -> None:
    found = run(tmp_path / "home", *command)
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_wrong_definition_loads_and_fails_with_its_own_lines(definition: Path, tmp_path: Path) -> None:
    definition.write_text(definition.read_text().replace("time_window: 5m", "time_windowx: 5m"))
    found = run(
        tmp_path / "home", "dagster", "asset", "materialize", "--select", "sms_status", "-m",
        "glassflow_dagster.definitions", GLASSFLOW_PIPELINES=str(definition.parent),
    )  # fmt: skip
    assert found.returncode == 1
    assert f"{definition}: transforms[0].config.time_window: is missing; add it" in found.stdout + found.stderr
