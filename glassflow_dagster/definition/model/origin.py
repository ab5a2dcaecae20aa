"""Where a definition comes from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Origin:
    """Where a definition comes from: a file, a part of another file, or Python code.

    All origins are equal, so that equal definitions from different files are equal.

    file: the file, or the file that the definition is a part of; None for one that was built in Python.
    written: the definition as it was written, its references such as `${VAR}` not replaced; None for a file of its own.
    rewriting_warnings and secret_warnings: what to tell its author about an older format, and secrets in plain text.
    """

    file: Path | None = field(default=None, compare=False)
    written: Mapping[str, Any] | None = field(default=None, compare=False)
    rewriting_warnings: tuple[str, ...] = field(default=(), compare=False)
    secret_warnings: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_own_file(self) -> bool:
        """Whether the definition is a file of its own, which another process can load."""
        return self.file is not None and self.written is None
