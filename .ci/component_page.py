"""The page of the component's attributes, docs/reference/component.md: names, values and descriptions from the code."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from glassflow_dagster.orchestration.component.pipeline_folder import PipelineFolder
from glassflow_dagster.orchestration.component.scaffolder import ScaffoldParameters

# A JSON Schema type in words.
WORDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "`true`, `false`"}
# Dagster's marker of a default that only it knows.
_UNSET = "__DAGSTER_UNSET_DEFAULT__"
# Dagster's own model, with a page in its documentation.
_OF_DAGSTER = "AssetSpecUpdateKwargsModel"
# An attribute without a prefix of its own below it: its keys are names of checks.
_BY_CHECK = "checks"
_CONDITION = re.compile(r"; if omitted: (.*)$|; if neither (.*)$")


def component_page(head: str) -> str:
    """Return the text of the page. head: its first line."""
    schema = PipelineFolder.get_model_cls().model_json_schema()
    models = schema["$defs"]
    lines = [
        head,
        "# The component's attributes",
        "",
        "Attributes of `glassflow_dagster.PipelineFolder` in `defs.yaml`. Paths are relative to that file. Texts may",
        "be templates of Dagster, such as `{{ env.NAME }}`; the inline `pipeline` has none, as its `${VAR}` are",
        "resolved with it. The guide [In your Dagster project](../guides/dagster-project.md) has examples.",
        "",
        "## Attributes",
        "",
        *_table(schema, models),
    ]
    for name, model in _objects(schema["properties"], models):
        lines += ["", f"## `{name}`", "", *_table(model, models)]
    parameters = ScaffoldParameters.model_json_schema()
    lines += [
        "",
        "## Options of the scaffolder",
        "",
        "`dg scaffold defs glassflow_dagster.PipelineFolder PATH` writes `defs.yaml`, and with `--topic` a definition",
        "for the topic's messages.",
        "",
        "| option | meaning |",
        "|---|---|",
        *(
            f"| `--{name.replace('_', '-')}` | {_cell(part['description'])} |"
            for name, part in parameters["properties"].items()
        ),
    ]
    return "\n".join(lines) + "\n"


def _objects(properties: Mapping[str, Any], models: Mapping[str, Any], path: str = "") -> Iterable[tuple[str, Any]]:
    """Yield the path and the model of each attribute that is an object with keys of its own."""
    for name, part in properties.items():
        own = f"{path}{name}"
        for model in _references(part):
            if model == _OF_DAGSTER:
                continue
            shown = f"{own}.NAME" if name == _BY_CHECK else own
            yield shown, models[model]
            yield from _objects(models[model]["properties"], models, f"{shown}.")


def _references(part: Mapping[str, Any]) -> list[str]:
    """Return the names of the models that an attribute, or a value of it, may be."""
    found = [part["$ref"].rpartition("/")[2]] if "$ref" in part else []
    inner = [*part.get("anyOf", []), *part.get("allOf", [])]
    values = part.get("additionalProperties")
    if isinstance(values, Mapping):
        inner.append(values)
    return list(dict.fromkeys([*found, *(name for choice in inner for name in _references(choice))]))


def _table(model: Mapping[str, Any], models: Mapping[str, Any]) -> list[str]:
    lines = ["| attribute | value | default | meaning |", "|---|---|---|---|"]
    required = model.get("required", ())
    for name, part in model["properties"].items():
        meaning, default = _meaning(part, required=name in required)
        lines.append(f"| `{name}` | {_value(part, models)} | {default} | {meaning} |")
    return lines


def _meaning(part: Mapping[str, Any], *, required: bool) -> tuple[str, str]:
    """Return an attribute's description, and its default, which the description may state."""
    described = part.get("description")
    if not described:
        raise SystemExit(f"component_page.py: {part.get('title')} of the component has no description; add it")
    condition = _CONDITION.search(described)
    examples = "; ".join(f"`{example}`" for example in part.get("examples", []))
    meaning = _cell(_CONDITION.sub("", described) if condition and condition[1] else described)
    meaning += f" (such as {examples})" if examples else ""
    if required:
        return meaning, "required"
    if condition and condition[1]:
        return meaning, _cell(condition[1])
    default = part.get("default")
    if default is None or default == _UNSET or default in ("", [], {}) or isinstance(default, Mapping):
        return meaning, "none"
    return meaning, f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _value(part: Mapping[str, Any], models: Mapping[str, Any]) -> str:
    """Describe the values that an attribute accepts; that any may be a template is said once, above."""
    if "$ref" in part:
        name = part["$ref"].rpartition("/")[2]
        return (
            "[attributes of an asset spec](https://docs.dagster.io/api/dagster/assets#dagster.AssetSpec)"
            if name == _OF_DAGSTER
            else "mapping"
        )
    choices = part.get("anyOf") or part.get("allOf")
    if choices:
        found = [choice for choice in choices if choice.get("type") != "null"]
        # Every attribute that is no text may also be the text of a template.
        if len(found) > 1:
            found = [choice for choice in found if choice != {"type": "string"}] or found
        # A text that is not only a template stands before its alternatives, as in the annotation.
        words = [*(["text"] if choices[0] == {"type": "string"} else []), *(_value(choice, models) for choice in found)]
        return " or ".join(dict.fromkeys(words))
    if values := part.get("enum") or ([part["const"]] if "const" in part else []):
        return ", ".join(f"`{value}`" for value in values)
    if part.get("type") == "array":
        return f"list of {_value(part['items'], models)}s"
    return WORDS.get(part.get("type", ""), "mapping")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
