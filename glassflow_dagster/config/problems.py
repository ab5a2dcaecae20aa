"""A mistake in a definition, and what to write instead."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from glassflow_dagster.errors import GlassflowError


@dataclass(frozen=True)
class Problem:
    """One mistake in a definition. path: of the key, '' for the file; text: what is wrong; what to do."""

    path: str
    text: str


class DefinitionError(GlassflowError):
    """The definition is invalid: correct it. One line per mistake: `file: field.path: what is wrong; what to do`."""

    def __init__(self, file: Path, problems: list[Problem]) -> None:
        self.file = file
        self.problems = problems
        super().__init__("\n".join(f"{file}: {p.path + ': ' if p.path else ''}{p.text}" for p in problems))


def suggestion(name: str, known: list[str]) -> str:
    """Return the remedy for an unknown name: the nearest known name, or all of them."""
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else f"use one of {', '.join(known)}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is most like a misspelt one, ignoring case; None when none is alike."""
    by_lower_case = {other.lower(): other for other in known}
    close = get_close_matches(name.lower(), list(by_lower_case), n=1)
    return by_lower_case[close[0]] if close else None
