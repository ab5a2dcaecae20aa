"""Convert a parsed file of any accepted format to v3.

GlassFlow's API for v1 and v2 ignored unknown keys, and files in use hold such keys. They are removed here too, each
with a warning; in a v3 file an unknown key is an error.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from glassflow_dagster.definition.formats.rewrite import Rewritten, is_older, rewrite
from glassflow_dagster.definition.formats.shapes import check_shape
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.problems import DefinitionError, Problem
from glassflow_dagster.definition.validation import causes_of, keys_of, path_of, to_problem, without_keys

_IGNORED = "unknown key, which is ignored; remove it or check its spelling"


def upgrade(file: Path, raw: dict[str, Any]) -> Rewritten:
    """Return a parsed file as v3; unknown keys of an older file are removed, each with a warning.

    Most are found in the older file. Parts that all formats share, such as Kafka's connection, are checked after the
    conversion, as parts of the v3 definition. Raises `DefinitionError` when the structure of an older file is invalid.
    """
    if not is_older(raw):
        return Rewritten(raw)
    unknown_keys = []
    try:
        check_shape(raw)
    except ValidationError as error:
        errors = causes_of(error)
        if any(e["type"] != "extra_forbidden" for e in errors):
            raise DefinitionError(file, [to_problem(e) for e in errors]) from None
        unknown_keys = [e["loc"] for e in errors]
    rewritten = rewrite(without_keys(raw, unknown_keys))
    ignored = tuple(Problem(path_of(location), _IGNORED) for location in unknown_keys)
    return _without_unknown_keys(replace(rewritten, ignored=ignored))


def _without_unknown_keys(rewritten: Rewritten) -> Rewritten:
    """Remove the unknown keys of the v3 definition, each with a warning.

    `check_shape` does not see them: they are in parts that were taken over unchanged, such as Kafka's connection.
    """
    try:
        PipelineConfig.model_validate(rewritten.definition)
    except ValidationError as error:
        unknown_keys = [e["loc"] for e in error.errors() if e["type"] == "extra_forbidden"]
        ignored = rewritten.at_origin([Problem(path_of(location), _IGNORED) for location in unknown_keys])
        definition = without_keys(rewritten.definition, [keys_of(location) for location in unknown_keys])
        return replace(rewritten, definition=definition, ignored=(*rewritten.ignored, *ignored))
    return rewritten
