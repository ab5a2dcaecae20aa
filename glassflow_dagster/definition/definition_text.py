"""Read and parse a definition file, YAML or JSON, without validating its content."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from glassflow_dagster.definition.problems import DefinitionError, Problem
from glassflow_dagster.definition.yaml_text import AliasError, read_yaml

# The YAML parser quotes single characters in its messages; a longer quote may be a value of the file, even a secret.
_LONG_QUOTE = re.compile(r"'[^']{5,}'")


def read_definition(file: Path) -> dict[str, Any]:
    """Return a file's content as an object; raises `DefinitionError` when it is unreadable, unparsable or no object."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DefinitionError(file, [Problem("", "no such file; check the path")]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(file, [Problem("", f"cannot be read ({error}); make it a readable UTF-8 file")]) from None
    return parse_definition(file, text)


def parse_definition(file: Path, text: str) -> dict[str, Any]:
    """Return the object in a definition's text; raises `DefinitionError`, which names the file, when it is none."""
    try:
        raw = _parsed(text)
    except AliasError as error:
        raise DefinitionError(file, [Problem("", str(error))]) from None
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: for an invalid date or number, such as 2024-99-99.
        raise DefinitionError(file, [Problem("", f"is neither YAML nor JSON: {_reason_and_position(error)}")]) from None
    except RecursionError:
        raise DefinitionError(file, [Problem("", "is nested too deeply; it is not a pipeline definition")]) from None
    if not isinstance(raw, dict):
        raise DefinitionError(
            file, [Problem("", "is not a pipeline definition; it must be an object with pipeline_id")]
        )
    return raw


def _parsed(text: str) -> Any:
    """Parse JSON, or else YAML; raises the errors of `read_yaml`."""
    # JSON first: the YAML parser rejects JSON with tabs or with escaped surrogate pairs.
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return read_yaml(text)


def _reason_and_position(error: Exception) -> str:
    """Return the reason and the position of a parser's error, without text of the file, which may be a secret."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return _one_line(_LONG_QUOTE.sub("'...'", str(error)))
    mark, reason = error.problem_mark, _LONG_QUOTE.sub("'...'", f"{error.context or ''} {error.problem or ''}")
    return f"{_one_line(reason)}, line {mark.line + 1}, column {mark.column + 1}; correct it"


def _one_line(text: str) -> str:
    return " ".join(text.split())
