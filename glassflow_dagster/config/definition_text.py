"""The text of a definition file, as it is parsed: YAML or JSON, nothing in it judged."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from glassflow_dagster.config.problems import DefinitionError, Problem
from glassflow_dagster.config.yaml_text import AliasError, read_yaml

# A sign is quoted by the YAML reader to be shown; anything longer may be what somebody wrote as a value.
_LONG_QUOTE = re.compile(r"'[^']{5,}'")


def read_definition(file: Path) -> dict[str, Any]:
    """Read and parse a file; raises `DefinitionError` when it holds no object."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DefinitionError(file, [Problem("", "no such file; check the path")]) from None
    except (OSError, UnicodeDecodeError) as error:
        raise DefinitionError(file, [Problem("", f"cannot be read ({error}); make it a readable UTF-8 file")]) from None
    try:
        raw = _parsed(text)
    except AliasError as error:
        raise DefinitionError(file, [Problem("", str(error))]) from None
    except (yaml.YAMLError, ValueError) as error:
        # ValueError: what looks like a date or number and is none, such as 2024-99-99.
        raise DefinitionError(file, [Problem("", f"is neither YAML nor JSON: {_unreadable(error)}")]) from None
    except RecursionError:
        raise DefinitionError(file, [Problem("", "is nested too deeply; it is no pipeline definition")]) from None
    if not isinstance(raw, dict):
        raise DefinitionError(file, [Problem("", "is no pipeline definition; it must be an object with pipeline_id")])
    return raw


def _parsed(text: str) -> Any:
    # JSON is YAML but for tabs and pairs of escaped surrogates, which the YAML reader does not take.
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return read_yaml(text)


def _unreadable(error: Exception) -> str:
    """Say what cannot be parsed, and where; none of the file's own text, which may be a secret."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return _one_line(_LONG_QUOTE.sub("'...'", str(error)))
    mark, said = error.problem_mark, _LONG_QUOTE.sub("'...'", f"{error.context or ''} {error.problem or ''}")
    return f"{_one_line(said)}, line {mark.line + 1}, column {mark.column + 1}; correct it"


def _one_line(text: str) -> str:
    return " ".join(text.split())
