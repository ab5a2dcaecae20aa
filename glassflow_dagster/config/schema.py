"""The format as a JSON Schema, for editors: generated from the models, so that the two cannot say different things.

`python -m glassflow_dagster.config.schema` prints it; `docs/pipeline.schema.json` is what it printed last.
A text with a `${VAR}` may stand for any value, so every value that is not plain text takes one too. What only
`rules/` can judge, and the syntax of column types, is left to `validate`.
"""

import json
import re
import sys
from typing import Any

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.variables import VARIABLE

_REFERENCE = {"$ref": "#/$defs/Reference"}
# ECMA's expressions, which JSON Schema uses, write a named group in another way.
_REFERENCE_PATTERN = re.sub(r"\?P<\w+>", "?:", VARIABLE.pattern)


def definition_schema() -> dict[str, Any]:
    """Give the JSON Schema (draft 2020-12) of a definition in the v3 format, extensions included."""
    schema = PipelineConfig.model_json_schema(mode="validation")
    parts = {name: _with_references(part) for name, part in schema.pop("$defs").items()}
    reference = {
        "type": "string",
        "pattern": _REFERENCE_PATTERN,
        "description": "a text with ${VAR} or ${file:PATH} in it",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_with_references(schema),
        "title": "Pipeline definition",
        "$defs": {**parts, "Reference": reference},
    }


def schema_text() -> str:
    """Write the schema as the file holds it."""
    return json.dumps(definition_schema(), indent=2, ensure_ascii=False) + "\n"


def _with_references(part: Any) -> Any:
    """Let a reference stand wherever a number, a boolean, or one of certain texts is asked for."""
    if isinstance(part, list):
        return [_with_references(item) for item in part]
    if not isinstance(part, dict):
        return part
    if _is_narrow(part):
        outside = {key: part[key] for key in ("title", "description", "default") if key in part}
        inside = {key: value for key, value in part.items() if key not in outside}
        return {**outside, "anyOf": [inside, _REFERENCE]}
    return {key: _with_references(value) for key, value in part.items()}


def _is_narrow(part: dict[str, Any]) -> bool:
    if part.get("type") in ("integer", "number", "boolean"):
        return True
    return part.get("type") == "string" and bool({"enum", "const", "pattern"} & part.keys())


if __name__ == "__main__":
    sys.stdout.write(schema_text())
