"""The way of an event through its definition's filters and stateless transforms, with the names that each can see.

Stages run in the order of the list. One list means something else to GlassFlow, which knows at most one of each and
always filters first: a single filter that stands behind a single stateless transform and names fields of the source
only is put before it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from glassflow_dagster.config.model import METADATA_FIELDS, Filter, Output, PipelineConfig, Stateless
from glassflow_dagster.config.problems import Problem
from glassflow_dagster.config.types import FieldKind
from glassflow_dagster.expressions.language.check import DIGITS, Checked, check_filter, check_transform
from glassflow_dagster.expressions.language.errors import ExpressionError
from glassflow_dagster.expressions.language.outputs import misspelt_output_type, output_kind

_T = TypeVar("_T")


@dataclass(frozen=True)
class FilterStage:
    """A filter whose expression is right."""

    condition: Checked


@dataclass(frozen=True)
class CheckedOutput:
    """A field that a right expression makes, and the kind of field that it is from then on."""

    name: str
    value: Checked
    output_type: str
    kind: FieldKind


@dataclass(frozen=True)
class TransformStage:
    """A stateless transform whose expressions are right."""

    outputs: tuple[CheckedOutput, ...]


@dataclass(frozen=True)
class Stages:
    """The stages in the order in which they run, and what the columns can be filled from after the last one.

    A field whose expression is wrong is left out of `mappable` and named in `unknown`. `warnings` say what is right
    and may be meant otherwise.
    """

    steps: tuple[FilterStage | TransformStage, ...]
    mappable: Mapping[str, FieldKind]
    unknown: frozenset[str]
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]


def plan_stages(config: PipelineConfig) -> Stages:
    """Check the expressions of a definition's source, each with the names that are there at its place."""
    declared: dict[str, FieldKind] = {**METADATA_FIELDS, **{f.name: f.kind for f in config.source.schema_fields}}
    visible = declared
    mappable: Mapping[str, FieldKind] = visible
    unknown: frozenset[str] = frozenset()
    steps: list[FilterStage | TransformStage] = []
    problems: list[Problem] = []
    for place, transform in _in_order(config, declared):
        if isinstance(transform, Filter):
            steps += _filter(place, transform, visible, problems)
            continue
        outputs = _outputs(place, transform, visible, problems)
        if not transform.config.transforms:
            continue  # GlassFlow: an empty list changes nothing
        steps.append(TransformStage(tuple(outputs)))
        kinds = {output.name: output.kind for output in outputs}
        unknown = frozenset(o.output_name for o in transform.config.transforms) - kinds.keys()
        visible = {**without_hidden(visible, [o.output_name for o in transform.config.transforms]), **kinds}
        mappable = {**METADATA_FIELDS, **kinds}
    return Stages(tuple(steps), mappable, unknown, tuple(problems), tuple(_warnings(config, declared)))


def without_hidden(names: Mapping[str, _T], made: Sequence[str]) -> dict[str, _T]:
    """Leave out the names that newly made fields hide: the same ones, and those inside of them."""
    return {
        name: value
        for name, value in names.items()
        if not any(name == other or name.startswith(f"{other}.") for other in made)
    }


def nullable_names(config: PipelineConfig) -> set[str]:
    """Give the names that a mapping may use and that are known to be null at times: optional fields, and Kafka's key.

    Of a transform's outputs these are the ones that pass such a name on; what an expression makes is not judged.
    """
    names = {field.name for field in config.fields if not field.required and field.default is None}
    visible = names | ({"_key"} - {field.name for field in config.source.schema_fields})
    mappable = visible
    for transform in config.transforms:
        outputs = transform.config.transforms if isinstance(transform, Stateless) else ()
        if outputs:
            passed_on = {output.output_name for output in outputs if output.expression.strip() in visible}
            made = [output.output_name for output in outputs]
            visible = {*without_hidden(dict.fromkeys(visible), made), *passed_on}
            mappable = passed_on | (visible & {"_key"})
    return mappable


def _in_order(config: PipelineConfig, fields: Mapping[str, FieldKind]) -> list[tuple[str, Filter | Stateless]]:
    placed = _placed(config)
    return placed[::-1] if _filters_first(placed, fields) else placed


def _placed(config: PipelineConfig) -> list[tuple[str, Filter | Stateless]]:
    return [
        (f"transforms[{index}]", transform)
        for index, transform in enumerate(config.transforms)
        if isinstance(transform, Filter | Stateless) and transform.source_id == config.source.source_id
    ]


def _filters_first(placed: list[tuple[str, Filter | Stateless]], fields: Mapping[str, FieldKind]) -> bool:
    """Whether GlassFlow would run the list in another order than it is written in."""
    if [type(transform) for _, transform in placed] != [Stateless, Filter]:
        return False
    condition = placed[1][1]
    return isinstance(condition, Filter) and _is_right(condition, fields)


def _warnings(config: PipelineConfig, fields: Mapping[str, FieldKind]) -> Iterator[str]:
    placed = _placed(config)
    if _filters_first(placed, fields):
        yield (
            f"{placed[1][0]}: stands behind the stateless transform but names fields of the source only, so it runs "
            "before it, as in GlassFlow; to filter by an output give the output a name of its own"
        )
    for place, transform in placed:
        for index, output in enumerate(transform.config.transforms if isinstance(transform, Stateless) else ()):
            meant = misspelt_output_type(output.output_type)
            if meant:
                at = f"{place}.config.transforms[{index}].output_type"
                yield f"{at}: {output.output_type!r} converts nothing; did you mean {meant!r}?"


def _is_right(condition: Filter, fields: Mapping[str, FieldKind]) -> bool:
    try:
        check_filter(condition.config.expression, fields)
    except ExpressionError:
        return False
    return True


def _filter(
    place: str, transform: Filter, visible: Mapping[str, FieldKind], problems: list[Problem]
) -> Iterator[FilterStage]:
    try:
        yield FilterStage(check_filter(transform.config.expression, visible))
    except ExpressionError as error:
        problems.append(Problem(f"{place}.config.expression", error.one_line))


def _outputs(
    place: str, transform: Stateless, visible: Mapping[str, FieldKind], problems: list[Problem]
) -> list[CheckedOutput]:
    found: list[CheckedOutput] = []
    names: set[str] = set()
    for index, output in enumerate(transform.config.transforms):
        at = f"{place}.config.transforms[{index}]"
        if output.output_name in names:
            problems.append(Problem(f"{at}.output_name", f"{output.output_name!r} is made twice; keep one"))
        names.add(output.output_name)
        try:
            found.append(_checked(output, visible))
        except ExpressionError as error:
            problems.append(Problem(f"{at}.expression", error.one_line))
    return found


def _checked(output: Output, visible: Mapping[str, FieldKind]) -> CheckedOutput:
    value = check_transform(output.expression, visible)
    kind = output_kind(value.kind, output.output_type)
    if value.kind in DIGITS and kind not in (value.kind, "string", "float"):
        text = f"is a number of many digits, which does not become {output.output_type}; leave output_type empty"
        raise ExpressionError(value.text, value.root.span, text)
    return CheckedOutput(output.output_name, value, output.output_type, kind)
