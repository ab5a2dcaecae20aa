"""References in the texts of a definition: `${VAR}` and `${VAR:-default}`, and `${file:PATH}` for what a file holds.

They are replaced in the parsed texts, not in the file, so that a secret with a quote or a colon in it cannot change the
definition's shape.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glassflow_dagster.config.problems import Problem

# Of a variable called `file`, `${file:-default}` is still the default.
VARIABLE = re.compile(r"\$\{(?:file:(?P<file>[^-}][^}]*)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?)\}")


def holds_variable(text: str) -> bool:
    """Whether a text refers to a variable or a file."""
    return VARIABLE.search(text) is not None


@dataclass(frozen=True)
class References:
    """What references stand for: variables of `environment`, and files, relative to the definition's own folder."""

    environment: Mapping[str, str]
    folder: Path

    def fill(self, text: str) -> tuple[str, list[str]]:
        """Put in what references stand for; gives what is wrong with those that stand for nothing, too."""
        wrong: list[str] = []

        def replace(match: re.Match[str]) -> str:
            try:
                return self._file(match["file"]) if match["file"] else self._variable(match["name"], match["default"])
            except LookupError as error:
                wrong.append(str(error.args[0]))
                return ""

        return VARIABLE.sub(replace, text), wrong

    def _variable(self, name: str, default: str | None) -> str:
        if name in self.environment:
            return self.environment[name]
        if default is None:
            raise LookupError(f"variable {name} is not set; set it, or write ${{{name}:-default}}")
        return default

    def _file(self, name: str) -> str:
        """Read a file without the line end that editors and secret stores put behind a value."""
        path = self.folder / name
        try:
            return path.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
        except OSError as error:
            raise LookupError(
                f"file {path} cannot be read ({error.strerror}); create it, or correct its path"
            ) from None
        except UnicodeDecodeError:
            raise LookupError(f"file {path} is no text in UTF-8; write it as text, such as base64") from None


def fill_references(definition: dict[str, Any], references: References) -> tuple[dict[str, Any], list[Problem]]:
    """Copy a definition with its references replaced, and say which of them stand for nothing."""
    unset: list[Problem] = []
    filled: dict[str, Any] = _filled(definition, references, "", unset)
    return filled, unset


def _filled(value: Any, references: References, path: str, unset: list[Problem]) -> Any:
    if isinstance(value, dict):
        return {k: _filled(v, references, f"{path}.{k}" if path else str(k), unset) for k, v in value.items()}
    if isinstance(value, list):
        return [_filled(v, references, f"{path}[{i}]", unset) for i, v in enumerate(value)]
    if not isinstance(value, str):
        return value
    text, wrong = references.fill(value)
    unset += [Problem(path, said) for said in wrong]
    return text
