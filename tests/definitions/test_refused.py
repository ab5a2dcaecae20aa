"""Invalid definitions, each with many errors; the `.txt` file beside it holds the beginning of each error."""

import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from glassflow_dagster.cli import main
from tests.definitions.cases import FOLDER

REFUSED = sorted(file for file in (FOLDER / "refused").iterdir() if file.suffix != ".txt")
# Only `validate` needs values for the variables: a converted definition keeps them.
VARIABLES = FOLDER / "refused" / "variables.yaml"
COMMANDS = [
    pytest.param(command, file, id=f"{command}-{file.stem}")
    for command in ("validate", "convert")
    for file in REFUSED
    if (command, file) != ("convert", VARIABLES)
]


@pytest.mark.parametrize(("command", "file"), COMMANDS)
def test_every_error_of_a_definition_is_reported_with_its_path(command: str, file: Path) -> None:
    done = CliRunner().invoke(main, [command, str(file)])
    assert done.exit_code == 1
    lines = done.output.removeprefix("error: ").splitlines()
    assert all(line.startswith(f"{file}: ") for line in lines), lines
    problems = [line.removeprefix(f"{file}: ") for line in lines]
    expected = file.with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    unfound = [line for line in expected if not any(matches(problem, line) for problem in problems)]
    unexpected = [problem for problem in problems if not any(matches(problem, line) for line in expected)]
    assert (unfound, unexpected) == ([], [])
    assert len(problems) == len(expected) > 0


def test_a_conversion_needs_no_values_for_variables() -> None:
    done = CliRunner().invoke(main, ["convert", str(VARIABLES)])
    assert done.exit_code == 0
    assert yaml.safe_load(done.stdout) == yaml.safe_load(VARIABLES.read_text(encoding="utf-8"))


def matches(problem: str, expected: str) -> bool:
    """Return whether an error line has the expected parts; `...` in the expected text matches anything."""
    return re.match(".*".join(re.escape(part) for part in expected.split(" ... ")), problem) is not None
