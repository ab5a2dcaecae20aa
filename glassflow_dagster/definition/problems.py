"""A mistake in a definition, and what to write instead."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.safe_text import one_line

# Stands for the file of a definition that was built in Python, in errors and warnings.
BUILT = "pipeline definition"


@dataclass(frozen=True)
class Problem:
    """One mistake in a definition.

    path: of the key, '' for the file.
    text: what is wrong; what to do.
    """

    path: str
    text: str


class DefinitionError(GlassflowError):
    """The definition is invalid: correct it. One line per mistake: `file: field.path: what is wrong; what to do`."""

    def __init__(self, file: Path | None, problems: list[Problem]) -> None:
        """Raise the problems of a definition; file: None for one that was built in Python."""
        self.file = file
        self.problems = problems
        where = BUILT if file is None else file
        lines = (f"{where}: {problem.path + ': ' if problem.path else ''}{problem.text}" for problem in problems)
        super().__init__("\n".join(map(one_line, lines)))


def suggestion(name: str, valid_names: list[str]) -> str:
    """Return the remedy for an unknown name: the nearest valid name, or all of them."""
    nearest_name = nearest(name, valid_names)
    return f"did you mean {nearest_name!r}?" if nearest_name else f"use one of {', '.join(valid_names)}"


def nearest(name: str, valid_names: Iterable[str]) -> str | None:
    """Return the valid name that is most like a misspelt one, ignoring case; None when none is alike."""
    by_lower_case = {valid_name.lower(): valid_name for valid_name in valid_names}
    close = get_close_matches(name.lower(), list(by_lower_case), n=1)
    return by_lower_case[close[0]] if close else None
