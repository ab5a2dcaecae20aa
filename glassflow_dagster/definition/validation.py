"""Validate a v3 definition, its references replaced, by models and rules: all problems at once."""

import copy
from typing import Any

from pydantic import ValidationError

from glassflow_dagster.definition.model.otlp import signal_of
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.problems import Problem
from glassflow_dagster.definition.rules.otlp import MISSING_CONNECTION
from glassflow_dagster.definition.rules.pipeline import problems

# A location in `transforms` is transforms, index, type, key ...: pydantic adds the type of the model that it tried.
_TYPE_INDEX = 2
# In place of types that do not exist, so that the rules can check the rest of a definition.
_STAND_INS = ({"type": "any", "column_type": "String"}, {"type": "string", "column_type": "Int64"})
_PATTERN_TEXTS = {
    "pipeline_id": "may hold letters, digits, '-' and '_' only, and starts with a letter or digit",
    "pool": "may hold up to 100 letters, digits, '-' and '_' only, and starts with a letter or digit",
    "state.endpoint": "is no URL of a server; write http://HOST:PORT or https://HOST",
    "sink.bookkeeping_engine": "must be MergeTree, ReplicatedMergeTree or SharedMergeTree, with their arguments if any",
    "checks.every": "is not a cron schedule; write five fields, such as '*/15 * * * *'",
}
_TEXTS = {
    "extra_forbidden": "unknown key; remove it or check its spelling",
    "missing": "is missing; add it",
    "model_type": "must be an object with keys; correct it",
    "dict_type": "must be an object with keys; correct it",
    "tuple_type": "must be a list; write [A, B, ...]",
    "too_short": "is empty; list at least one",
}


def validate_definition(definition: dict[str, Any]) -> tuple[PipelineConfig | None, list[Problem]]:
    """Return the definition and the problems of the rules; None, and all problems, when the models reject it."""
    try:
        config = PipelineConfig.model_validate(definition)
    except ValidationError as error:
        errors = causes_of(error)
        found = [_of_otlp(definition, e["loc"], to_problem(e)) for e in errors]
        return None, [*found, *_further_problems(definition, errors)]
    return config, list(problems(config))


def _of_otlp(definition: dict[str, Any], location: tuple[str | int, ...], problem: Problem) -> Problem:
    """Return the problem of a missing connection with a text for OTLP sources, which have none in GlassFlow."""
    match location:
        case ("sources", int(index), "connection_params") if signal_of(definition["sources"][index].get("type")):
            return Problem(problem.path, MISSING_CONNECTION) if problem.text == _TEXTS["missing"] else problem
    return problem


def _further_problems(definition: dict[str, Any], errors: list[Any]) -> list[Problem]:
    """Return the problems that the rules find without what the models reject.

    errors: of pydantic. Unknown keys and keys that no rule reads are removed; types of fields and columns are replaced
    by those of `_STAND_INS`, and a problem that not all of these have only follows from one. The result is empty with
    any other rejected key, for the same reason, and when the models reject the rest, too.
    """
    types = [keys_of(e["loc"]) for e in errors if _is_type(definition, e["loc"])]
    rest = [e for e in errors if not _is_type(definition, e["loc"])]
    if not all(e["type"] == "extra_forbidden" or not _is_needed_by_rules(e["loc"]) for e in rest):
        return []
    remaining = without_keys(definition, [keys_of(e["loc"]) for e in rest])
    found: list[list[Problem]] = []
    for stand_ins in _STAND_INS if types else _STAND_INS[:1]:
        try:
            config = PipelineConfig.model_validate(_with_types(remaining, types, stand_ins))
        except ValidationError:
            return []
        found.append(list(problems(config)))
    rejected = {path_of(e["loc"]) for e in errors}
    return [each for each in found[0] if each.path not in rejected and all(each in others for others in found)]


def _is_type(definition: dict[str, Any], location: tuple[str | int, ...]) -> bool:
    """Return whether a location of pydantic's errors is the type of a declared field or of a mapped column.

    GlassFlow's SDK writes the fields elsewhere, where the model finds them.
    """
    match location:
        case ("sources", int(index), "schema_fields", int(), "type"):
            return "schema_fields" in definition["sources"][index]
        case ("sink", "mapping", int(), "column_type") | ("sink", "routes", int(), "mapping", int(), "column_type"):
            return True
    return False


def _with_types(
    definition: dict[str, Any], locations: list[tuple[str | int, ...]], types: dict[str, str]
) -> dict[str, Any]:
    """Return a copy of a definition with other types at these locations. types: by the last key of a location."""
    changed = copy.deepcopy(definition)
    for *path, last_key in locations:
        owner: Any = changed
        for key in path:
            owner = owner[key]
        owner[last_key] = types[str(last_key)]
    return changed


def _is_needed_by_rules(location: tuple[str | int, ...]) -> bool:
    """Return whether a rule may read the key at a location of pydantic's errors."""
    return location[0] in ("transforms", "resources", "join") or bool(
        {"schema_fields", "mapping", "create_table"} & {*location}
    )


def without_keys(definition: dict[str, Any], locations: list[tuple[str | int, ...]]) -> dict[str, Any]:
    """Return a copy of a definition without the keys at these locations; items of lists stay."""
    remaining = copy.deepcopy(definition)
    for *path, last_key in locations:
        owner: Any = remaining
        for key in path:
            owner = owner[key]
        if isinstance(owner, dict):
            owner.pop(last_key, None)
    return remaining


def causes_of(error: ValidationError) -> list[Any]:
    """Return pydantic's errors without a "list is too short" that only follows from invalid items of the list.

    Such an error is recognised by another one inside its location.
    """
    errors = error.errors()
    locations = [e["loc"] for e in errors]
    return [
        e
        for e in errors
        if e["type"] != "too_short"
        or not any(location != e["loc"] and location[: len(e["loc"])] == e["loc"] for location in locations)
    ]


def to_problem(error: Any) -> Problem:
    """Return one of pydantic's errors as a problem with a text for the author of a definition."""
    path = path_of(error["loc"])
    kind, context = error["type"], error.get("ctx", {})
    if kind in _TEXTS:
        return Problem(path, _TEXTS[kind])
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return Problem(f"{path}.type", "must be 'dedup', 'filter' or 'stateless'")
    if kind == "literal_error":
        # The value stays out of the text: under a mistaken key it may be a secret.
        return Problem(path, f"must be {context['expected']}")
    if kind == "value_error":
        return Problem(path, str(context["error"]))
    if kind == "string_pattern_mismatch":
        return Problem(path, _PATTERN_TEXTS[path])
    # Any other error: its text as pydantic writes it.
    return Problem(path, f"{_one_line(error['msg'])}; correct it")


def keys_of(location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Return a location of pydantic's errors as keys and indexes, without the type of a transform, which is no key."""
    return location[:_TYPE_INDEX] + location[_TYPE_INDEX + 1 :] if location[0] == "transforms" else location


def path_of(location: tuple[str | int, ...]) -> str:
    """Return a location of pydantic's errors as a path: `sink.mapping[2].column_type`."""
    path = ""
    for part in keys_of(location):
        path += f"[{part}]" if isinstance(part, int) else f"{'.' if path else ''}{part}"
    return path


def _one_line(text: str) -> str:
    return " ".join(text.split())
