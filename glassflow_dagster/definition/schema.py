"""Generate the JSON Schema of definitions, for editors, from the models, so that the two cannot differ.

`python -m glassflow_dagster.definition.schema` prints it; `docs/pipeline.schema.json` is the last output.
A text with a `${VAR}` may stand for any value, so every value that is no plain text may be such a text too. The rules
in `rules/` and the syntax of column types are not in the schema: `validate` checks them.
"""

import json
import re
import sys
from typing import Any

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.variables import VARIABLE

# Keys that a source of the type kafka must have, and an OTLP source need not or must not.
_NOT_OF_OTLP = ("connection_params", "schema_fields")
_REFERENCE = {"$ref": "#/$defs/Reference"}
# JSON Schema uses ECMA's regular expressions, which write named groups in another way.
_REFERENCE_PATTERN = re.sub(r"\?P<\w+>", "?:", VARIABLE.pattern)


def definition_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a v3 definition, this project's extensions included."""
    schema = PipelineConfig.model_json_schema(mode="validation")
    definitions = schema.pop("$defs")
    definitions["Source"] = _source(definitions["Source"])
    parts = {name: _with_references(part) for name, part in definitions.items()}
    reference = {
        "type": "string",
        "pattern": _REFERENCE_PATTERN,
        "description": "a string with ${VAR} or ${file:PATH} in it",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_with_references(schema),
        "title": "Pipeline definition",
        "$defs": {**parts, "Reference": reference},
    }


def _source(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a source in which only one of the type kafka must declare what an OTLP source need not."""
    required = [key for key in schema["required"] if key not in _NOT_OF_OTLP]
    is_kafka = {"properties": {"type": {"const": "kafka"}}}
    return {**schema, "required": required, "if": is_kafka, "then": {"required": list(_NOT_OF_OTLP)}}


def schema_text() -> str:
    """Return the schema as the text of docs/pipeline.schema.json."""
    return json.dumps(definition_schema(), indent=2, ensure_ascii=False) + "\n"


def _with_references(part: Any) -> Any:
    """Return a part of the schema that also accepts a `${...}` text for each number, boolean and restricted text."""
    if isinstance(part, list):
        return [_with_references(item) for item in part]
    if not isinstance(part, dict):
        return part
    if _rejects_references(part):
        annotations = {key: part[key] for key in ("title", "description", "default") if key in part}
        constraints = {key: value for key, value in part.items() if key not in annotations}
        return {**annotations, "anyOf": [constraints, _REFERENCE]}
    return {key: _with_references(value) for key, value in part.items()}


def _rejects_references(part: dict[str, Any]) -> bool:
    """Return whether a value's schema does not accept any text: a number, a boolean, or a restricted text."""
    if part.get("type") in ("integer", "number", "boolean"):
        return True
    return part.get("type") == "string" and bool({"enum", "const", "pattern"} & part.keys())


if __name__ == "__main__":
    sys.stdout.write(schema_text())
