"""Invalid definitions, each with many errors; the `.txt` file beside it holds the beginning of each error."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from glassflow_dagster.cli import main
from tests.definitions.cases import FOLDER

REFUSED = sorted(file for file in (FOLDER / "refused").iterdir() if file.suffix != ".txt")


@pytest.mark.parametrize("command", ["validate", "convert"])
@pytest.mark.parametrize("file", REFUSED, ids=lambda file: file.stem)
def test_every_problem_of_a_definition_is_told_at_its_place(command: str, file: Path) -> None:
    if command == "convert" and file.stem == "variables":
        return  # a converted file keeps its variables, which need not be set for the conversion
    done = CliRunner().invoke(main, [command, str(file)])
    assert done.exit_code == 1
    lines = done.output.removeprefix("error: ").splitlines()
    assert all(line.startswith(f"{file}: ") for line in lines), lines
    problems = [line.removeprefix(f"{file}: ") for line in lines]
    expected = file.with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    unfound = [line for line in expected if not any(matches(problem, line) for problem in problems)]
    unexpected = [problem for problem in problems if not any(matches(problem, line) for line in expected)]
    assert (unfound, unexpected) == ([], [])
    assert len(problems) == len(expected)


def matches(problem: str, expected: str) -> bool:
    """Return whether an error line has the expected parts; `...` in the expected text matches anything."""
    return re.match(".*".join(re.escape(part) for part in expected.split(" ... ")), problem) is not None
