"""Expressions: checked against fields, and evaluated for a sample as a pipeline does."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field, ValidationError

from glassflow_dagster.definition.expressions.check import Checked, check_filter, check_transform
from glassflow_dagster.definition.model.source import METADATA_FIELDS, SchemaField
from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.definition.validation import to_problem
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.sample_fields import fields_of_sample
from glassflow_dagster.server.api.api_error import ApiError, bad_request
from glassflow_dagster.server.api.bodies import Body
from glassflow_dagster.server.api.evaluation_session import EvaluationSession
from glassflow_dagster.stream.evaluate import Evaluation, evaluate_filter, evaluate_output, json_sample

_FILTER = ("Filter expression validation failed", "validation_error")
_TRANSFORM = ("Failed to evaluate transformation", "transformation_error")
_MOST_OUTPUTS = 200


class DeclaredField(Body):
    """A field, named as in GlassFlow's request."""

    field_name: str
    field_type: str


class FilterToCheck(Body):
    """A filter's condition, and the fields that it may read."""

    expression: str = Field(min_length=1)
    fields: list[DeclaredField]


class FilterToTry(Body):
    """A filter's condition, and a sample. fields: by default those of the sample, none of them required."""

    expression: str = Field(min_length=1)
    sample: dict[str, Any]
    fields: list[DeclaredField] | None = None


class OutputToTry(Body):
    """An output of a stateless transform."""

    expression: str
    output_name: str
    output_type: str = ""


class OutputsToTry(Body):
    """The outputs; `transform` is GlassFlow's key, `transforms` that of a definition."""

    transform: list[OutputToTry] = Field(default=[], max_length=_MOST_OUTPUTS)
    transforms: list[OutputToTry] = Field(default=[], max_length=_MOST_OUTPUTS)


class TransformToTry(Body):
    """A stateless transform, and a sample."""

    type: str
    config: OutputsToTry
    sample: dict[str, Any]


def check(body: FilterToCheck) -> None:
    """Check a filter; raises `ApiError`, whose text shows the place of the mistake."""
    _checked(check_filter, body.expression, _kinds(_declared(body.fields)), _FILTER)


def try_filter(body: FilterToTry, session: EvaluationSession) -> dict[str, Any]:
    """Return whether a sample passes a filter, or why it would be a dead letter; raises `ApiError`."""
    value = json.dumps(body.sample).encode()
    declared = fields_of_sample(value) if body.fields is None else _declared(body.fields)
    checked = _checked(check_filter, body.expression, _kinds(declared), _FILTER)
    with session.use() as spark:
        outcome = evaluate_filter(spark, checked, json_sample(value, declared))
    if outcome.dead_letter is not None:
        return {"dead_letter": outcome.dead_letter}
    return {"passes": outcome.value}


def try_transform(body: TransformToTry, session: EvaluationSession) -> dict[str, Any]:
    """Return the outputs of a stateless transform for a sample; raises `ApiError`."""
    if body.type != "expr_lang_transform":
        raise bad_request(
            "Invalid transformation type", "invalid_transformation_type", error="only expr_lang_transform is supported"
        )
    value = json.dumps(body.sample).encode()
    declared = fields_of_sample(value)
    outputs = [*body.config.transform, *body.config.transforms]
    checked = [_checked(check_transform, each.expression, _kinds(declared), _TRANSFORM) for each in outputs]
    found: dict[str, Evaluation] = {}
    with session.use() as spark:
        for output, expression in zip(outputs, checked, strict=True):
            sample = json_sample(value, declared)
            found[output.output_name] = evaluate_output(spark, expression, output.output_type, sample)
    for name, outcome in found.items():
        if outcome.dead_letter is not None:
            raise _refused(*_TRANSFORM, f"{name}: {outcome.dead_letter}")
    return {name: outcome.value for name, outcome in found.items()}


def _checked(
    check_one: Callable[[str, Mapping[str, FieldKind]], Checked],
    text: str,
    kinds: Mapping[str, FieldKind],
    refusal: tuple[str, str],
) -> Checked:
    try:
        return check_one(text, kinds)
    except GlassflowError as error:
        raise _refused(*refusal, str(error)) from None


def _refused(message: str, code: str, error: str) -> ApiError:
    return bad_request(message, code, error=error)


def _declared(fields: Sequence[DeclaredField]) -> tuple[SchemaField, ...]:
    """Return declared fields, none of them required; raises `ApiError` for an unknown type."""
    try:
        return tuple(
            SchemaField.model_validate({"name": each.field_name, "type": each.field_type, "required": False})
            for each in fields
        )
    except ValidationError as error:
        raise _refused(*_FILTER, to_problem(error.errors()[0]).text) from None


def _kinds(declared: Sequence[SchemaField]) -> dict[str, FieldKind]:
    return {**METADATA_FIELDS, **{field.name: field.kind for field in declared}}
