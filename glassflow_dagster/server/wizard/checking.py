"""Checks of a draft by the rules for definitions, and of its expressions by the language's checker."""

from collections.abc import Mapping
from typing import Any

from glassflow_dagster.definition.expressions.check import check_filter, check_transform
from glassflow_dagster.definition.expressions.outputs import output_kind
from glassflow_dagster.definition.load import load_written
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import METADATA_FIELDS
from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.definition.problems import DefinitionError, Problem
from glassflow_dagster.definition.yaml_text import write_yaml
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.definition import definition_of
from glassflow_dagster.server.api.secrets import masked, protect
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.questions import AnswerRefused


def load(definition: Mapping[str, Any]) -> PipelineConfig:
    """Return a definition that was made here; raises `AnswerRefused` with every mistake in it."""
    protected = protect(definition, None, "", "")
    if protected.problems:
        raise AnswerRefused(protected.problems)
    try:
        return load_written(protected.plain)
    except DefinitionError as error:
        raise AnswerRefused(error.problems) from None
    except GlassflowError as error:
        raise AnswerRefused([Problem("", str(error))]) from None


def problems_of(draft: Draft) -> tuple[Problem, ...]:
    """Return the mistakes in a draft's definition."""
    try:
        load(definition_of(draft))
    except AnswerRefused as error:
        return error.problems
    return ()


def filter_problem(text: str, kinds: Mapping[str, FieldKind]) -> str:
    """Return what is wrong with a filter's condition, with a caret below the mistake; empty for nothing."""
    try:
        check_filter(text, {**METADATA_FIELDS, **kinds})
    except GlassflowError as error:
        return str(error)
    return ""


def computed_kind(text: str, kinds: Mapping[str, FieldKind]) -> FieldKind:
    """Return the kind of an expression's result; raises `GlassflowError` with a caret below a mistake."""
    return output_kind(check_transform(text, {**METADATA_FIELDS, **kinds}).kind, "")


def public_text(draft: Draft) -> str:
    """Return the definition as YAML, with masks for its secrets; the edited one, if it was edited."""
    return draft.text if draft.text is not None else write_yaml(masked(definition_of(draft)))


def with_secrets(sent: Mapping[str, Any], draft: Draft) -> dict[str, Any]:
    """Return an edited definition with the draft's secrets in place of the masks; raises `AnswerRefused`.

    A secret stays with its server: for another one it is to be sent again.
    """
    protected = protect(sent, definition_of(draft), "", "")
    if protected.problems:
        raise AnswerRefused(protected.problems)
    return protected.plain
