"""A parsed file of any accepted format as v3.

GlassFlow's API of their time ignored keys of v1 and v2 that it did not know, and files in use hold such keys. They are
left out here too, each with a warning; in v3 an unknown key is a mistake.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from glassflow_dagster.config.formats.rewrite import Rewritten, is_older, rewrite
from glassflow_dagster.config.formats.shapes import check_shape
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.problems import DefinitionError, Problem
from glassflow_dagster.config.validation import causes_of, keys_of, path_of, to_problem, without_keys

_IGNORED = "unknown key, which is ignored; remove it or check its spelling"


def upgrade(file: Path, raw: dict[str, Any]) -> Rewritten:
    """Bring what was parsed of a file to v3; raises `DefinitionError` for an older one that has not even its shape."""
    if not is_older(raw):
        return Rewritten(raw)
    unknown = []
    try:
        check_shape(raw)
    except ValidationError as error:
        causes = causes_of(error)
        if any(e["type"] != "extra_forbidden" for e in causes):
            raise DefinitionError(file, [to_problem(e) for e in causes]) from None
        unknown = [e["loc"] for e in causes]
    rewritten = rewrite(without_keys(raw, unknown))
    return _ignoring_rest(replace(rewritten, ignored=tuple(Problem(path_of(place), _IGNORED) for place in unknown)))


def _ignoring_rest(rewritten: Rewritten) -> Rewritten:
    """Leave out the unknown keys of those parts of an older file that v3 has as they were."""
    try:
        PipelineConfig.model_validate(rewritten.definition)
    except ValidationError as error:
        unknown = [e["loc"] for e in error.errors() if e["type"] == "extra_forbidden"]
        found = rewritten.at_origin([Problem(path_of(place), _IGNORED) for place in unknown])
        rest = without_keys(rewritten.definition, [keys_of(place) for place in unknown])
        return replace(rewritten, definition=rest, ignored=(*rewritten.ignored, *found))
    return rewritten
