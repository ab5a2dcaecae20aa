"""What the models and the rules say of a definition in v3, its references replaced: all problems at once."""

import copy
from typing import Any

from pydantic import ValidationError

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.problems import Problem
from glassflow_dagster.config.rules.pipeline import problems

# Where a location names which of several models was tried: transforms, index, type.
_TYPE_PLACE = 2
_FORMS = {
    "pipeline_id": "may hold letters, digits, '-' and '_' only, and starts with a letter or digit",
    "checks.every": "is no cron schedule; write five fields, such as '*/15 * * * *'",
}
_TEXTS = {
    "extra_forbidden": "unknown key; remove it or check its spelling",
    "missing": "is missing; add it",
    "model_type": "must be an object with keys; correct it",
    "dict_type": "must be an object with keys; correct it",
    "too_short": "is empty; list at least one",
}


def validate_definition(definition: dict[str, Any]) -> tuple[PipelineConfig | None, list[Problem]]:
    """Return the definition and what rules find in it; None, and what else is wrong, where the models refuse it."""
    try:
        config = PipelineConfig.model_validate(definition)
    except ValidationError as error:
        causes = causes_of(error)
        return None, [*(to_problem(e) for e in causes), *_beside(definition, causes)]
    return config, list(problems(config))


def _beside(definition: dict[str, Any], causes: list[Any]) -> list[Problem]:
    """Find what is wrong beside what the models refuse, where it can be judged without that.

    It can without unknown keys, and without the values of optional keys that no rule looks at. Where more is missing,
    every further problem would be a guess.
    """
    places = [keys_of(e["loc"]) for e in causes]
    if not all(e["type"] == "extra_forbidden" or not _is_looked_at(e["loc"]) for e in causes):
        return []
    try:
        config = PipelineConfig.model_validate(without_keys(definition, places))
    except ValidationError:
        return []
    return list(problems(config))


def _is_looked_at(location: tuple[str | int, ...]) -> bool:
    return location[0] in ("transforms", "resources", "join") or bool(
        {"schema_fields", "mapping", "create_table"} & {*location}
    )


def without_keys(definition: dict[str, Any], places: list[tuple[str | int, ...]]) -> dict[str, Any]:
    """Copy a definition without the keys at certain places; what is no key of an object stays."""
    rest = copy.deepcopy(definition)
    for *path, last in places:
        owner: Any = rest
        for part in path:
            owner = owner[part]
        if isinstance(owner, dict):
            owner.pop(last, None)
    return rest


def causes_of(error: ValidationError) -> list[Any]:
    """Leave out that a list is too short where that follows from its items: pydantic counts only the good ones."""
    found = error.errors()
    places = [e["loc"] for e in found]
    return [
        e
        for e in found
        if e["type"] != "too_short" or not any(at != e["loc"] and at[: len(e["loc"])] == e["loc"] for at in places)
    ]


def to_problem(error: Any) -> Problem:
    """Say what one of pydantic's errors means to the author of a definition."""
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
        return Problem(path, _FORMS[path])
    return Problem(path, f"{_one_line(error['msg'])}; correct it")


def keys_of(location: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Leave out the transform's type, which pydantic names behind its place, and which is no key."""
    return location[:_TYPE_PLACE] + location[_TYPE_PLACE + 1 :] if location[0] == "transforms" else location


def path_of(location: tuple[str | int, ...]) -> str:
    """Write a location as a path: `sink.mapping[2].column_type`."""
    path = ""
    for part in keys_of(location):
        path += f"[{part}]" if isinstance(part, int) else f"{'.' if path else ''}{part}"
    return path


def _one_line(text: str) -> str:
    return " ".join(text.split())
