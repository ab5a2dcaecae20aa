"""A mistake in a definition, and what to write instead."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from glassflow_dagster.errors import GlassflowError


@dataclass(frozen=True)
class Problem:
    """One mistake in a definition: where it is, and what is wrong and to be done."""

    path: str
    text: str


class DefinitionError(GlassflowError):
    """A definition that cannot run: one line per mistake, `file: field.path: what is wrong; what to do`."""

    def __init__(self, file: Path, found: list[Problem]) -> None:
        self.file = file
        self.problems = found
        super().__init__("\n".join(f"{file}: {p.path + ': ' if p.path else ''}{p.text}" for p in found))


def suggestion(name: str, known: list[str]) -> str:
    """Say what to write instead of an unknown name."""
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else f"use one of {', '.join(known)}"


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Find the name that was probably meant, None where no known one is near."""
    lower = {other.lower(): other for other in known}
    close = get_close_matches(name.lower(), list(lower), n=1)
    return lower[close[0]] if close else None
