"""What this host notes of a driver that it has launched elsewhere, in a file of the pipeline's local folder."""

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from glassflow_dagster.errors import GlassflowError

_Note = TypeVar("_Note", bound=BaseModel)


def write_note(file: Path, note: BaseModel) -> None:
    """Replace a note as a whole: without it, nothing would find the driver. Raises `OSError`."""
    temporary = file.with_suffix(".new")
    temporary.write_text(note.model_dump_json())
    temporary.replace(file)


def read_note(file: Path, kind: type[_Note], remedy: str) -> _Note | None:
    """Return a note; None where there is none. Raises `GlassflowError` with the remedy where it cannot be read."""
    try:
        return kind.model_validate_json(file.read_text())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError):
        raise GlassflowError(f"{file}: cannot be read; {remedy}") from None
