"""Replace the references in a definition: `${VAR}`, `${VAR:-default}`, and `${file:PATH}` for the content of a file.

They are replaced in the parsed texts, not in the file, so that a secret with a quote or a colon in it cannot change the
structure of the definition.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassflow_dagster.definition.problems import Problem

# `${file:-default}` is a variable called `file` with a default, not a path.
VARIABLE = re.compile(r"\$\{(?:file:(?P<file>[^-}][^}]*)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?)\}")


def holds_variable(text: str) -> bool:
    """Return whether a text refers to a variable or a file."""
    return VARIABLE.search(text) is not None


@dataclass(frozen=True)
class References:
    """Resolves references.

    environment: the variables.
    folder: of the definition, to which paths are relative.
    """

    environment: Mapping[str, str]
    folder: Path

    def fill(self, text: str) -> tuple[str, list[str]]:
        """Return the text with its references replaced, and a message for each one that cannot be resolved."""
        errors: list[str] = []

        def replace(match: re.Match[str]) -> str:
            try:
                return self._file(match["file"]) if match["file"] else self._variable(match["name"], match["default"])
            except LookupError as error:
                errors.append(str(error.args[0]))
                return ""

        return VARIABLE.sub(replace, text), errors

    def _variable(self, name: str, default: str | None) -> str:
        if name in self.environment:
            return self.environment[name]
        if default is None:
            raise LookupError(f"variable {name} is not set; set it, or write ${{{name}:-default}}")
        return default

    def _file(self, name: str) -> str:
        """Return a file's text without a line end at its end, which editors and secret stores add to a value."""
        path = self.folder / name
        try:
            return path.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
        except OSError as error:
            raise LookupError(
                f"file {path} cannot be read ({error.strerror}); create it, or correct its path"
            ) from None
        except UnicodeDecodeError:
            raise LookupError(f"file {path} is not UTF-8 text; write it as text, such as base64") from None


def fill_references(definition: dict[str, Any], references: References) -> tuple[dict[str, Any], list[Problem]]:
    """Return a copy of a definition with its references replaced, and the problems of unresolvable ones."""
    problems: list[Problem] = []
    resolved: dict[str, Any] = _filled(definition, references, "", problems)
    return resolved, problems


def _filled(value: Any, references: References, path: str, problems: list[Problem]) -> Any:
    """Return the value at a path with the references in all its texts replaced; add to `problems`."""
    if isinstance(value, dict):
        return {
            key: _filled(item, references, f"{path}.{key}" if path else str(key), problems)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_filled(item, references, f"{path}[{i}]", problems) for i, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    text, errors = references.fill(value)
    problems += [Problem(path, error) for error in errors]
    return text
