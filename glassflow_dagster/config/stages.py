"""The way of an event through its definition's filters and stateless transforms, with the names that each can see.

Stages run in the order of the list. One list means something else to GlassFlow, which knows at most one of each and
always filters first: a single filter that stands behind a single stateless transform and names fields of the source
only is put before it.

With a join, the filters of each source stand before it, and what has the join's id as its source_id behind it, where
the names are those of the output_fields. GlassFlow has neither, so there the list's order always counts.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from typing import TypeVar

from glassflow_dagster.config.model.join import JoinConfig
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.source import METADATA_FIELDS, Source
from glassflow_dagster.config.model.transforms import Filter, Output, Stateless, Transform
from glassflow_dagster.config.model.types import FieldKind
from glassflow_dagster.config.problems import Problem
from glassflow_dagster.expressions.language.check import DIGITS, Checked, check_filter, check_transform
from glassflow_dagster.expressions.language.errors import ExpressionError
from glassflow_dagster.expressions.language.outputs import misspelt_output_type, output_kind

_T = TypeVar("_T")

_ORDER_WARNING = (
    "{}: stands behind the stateless transform but names fields of the source only, so it runs before it, as in "
    "GlassFlow; to filter by an output give the output a name of its own"
)

# A joined event is of two records, so that nothing of Kafka's is its own.
_OF_JOINED = {"_batch_time": METADATA_FIELDS["_batch_time"]}


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

    `before` has the filters of each source of a join by its source_id, and nothing without a join; `steps` follow the
    join. A field whose expression is wrong is left out of `mappable` and named in `unknown`. `warnings` say what is
    right and may be meant otherwise.
    """

    before: Mapping[str, tuple[FilterStage, ...]]
    steps: tuple[FilterStage | TransformStage, ...]
    mappable: Mapping[str, FieldKind]
    unknown: frozenset[str]
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]


class WhyNull(Enum):
    """Why a name is null at times."""

    OPTIONAL = auto()
    NO_KEY = auto()
    NO_MATCH = auto()


_Placed = list[tuple[str, Filter | Stateless]]


@dataclass(frozen=True)
class _Expressions:
    """What of a definition decides how its expressions are planned; servers, checks and the like do not."""

    fields: tuple[tuple[str, tuple[tuple[str, FieldKind], ...]], ...]
    transforms: tuple[Transform, ...]
    join: JoinConfig | None
    mapped: tuple[str, ...]


@dataclass(frozen=True)
class _Stream:
    """Transforms that follow each other, the names before the first one, and those that stay mappable behind all."""

    placed: _Placed
    names: Mapping[str, FieldKind]
    own: Mapping[str, FieldKind]


def plan_stages(config: PipelineConfig) -> Stages:
    """Check the expressions of a definition, each with the names that are there at its place.

    Definitions with equal expressions, fields and join share one plan, which nobody may change.
    """
    fields = tuple((s.source_id, tuple((f.name, f.kind) for f in s.schema_fields)) for s in config.sources)
    mapped = tuple(mapping.name for mapping in config.sink.mapping)
    return _planned(_Expressions(fields, config.transforms, config.join, mapped))


# As many definitions as one process may have open; a plan is small.
@lru_cache(maxsize=256)
def _planned(given: _Expressions) -> Stages:
    if given.join is not None:
        names = {source_id: {**METADATA_FIELDS, **dict(fields)} for source_id, fields in given.fields}
        return _plan_joined(given, given.join, names)
    source_id, fields = given.fields[0]
    own = {**METADATA_FIELDS, **dict(fields)}
    placed = _placed(given.transforms, source_id)
    first = _filter_put_first(placed, own)
    warnings = [*([_ORDER_WARNING.format(placed[1][0])] if first else []), *_type_warnings(placed)]
    stream = _Stream(placed[:1] if first else placed, own, METADATA_FIELDS)
    return _plan(stream, [first] if first else [], {}, [], warnings)


def _plan_joined(given: _Expressions, join: JoinConfig, fields: Mapping[str, Mapping[str, FieldKind]]) -> Stages:
    problems: list[Problem] = []
    before = {
        side.source_id: tuple(
            stage
            for place, condition in _placed(given.transforms, side.source_id)
            if isinstance(condition, Filter)
            for stage in _filter(place, condition, fields[side.source_id], problems)
        )
        for side in join.sides
        if side.source_id in fields
    }
    names, wrong = _joined_names(join, fields)
    placed = _placed(given.transforms, join.id) if join.id not in fields else []
    warnings = list(_type_warnings(placed))
    if not wrong:
        return _plan(_Stream(placed, names, _OF_JOINED), [], before, problems, warnings)
    # Without all names, no expression behind the join can be judged, nor a mapping of what they make.
    if any(isinstance(transform, Stateless) for _, transform in placed):
        wrong = frozenset(given.mapped)
    return Stages(before, (), names, wrong, tuple(problems), tuple(warnings))


def _plan(
    stream: _Stream,
    first: Sequence[FilterStage],
    before: Mapping[str, tuple[FilterStage, ...]],
    problems: list[Problem],
    warnings: Sequence[str],
) -> Stages:
    visible = mappable = stream.names
    unknown: frozenset[str] = frozenset()
    steps: list[FilterStage | TransformStage] = [*first]
    for place, transform in stream.placed:
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
        mappable = {**stream.own, **kinds}
    return Stages(before, tuple(steps), mappable, unknown, tuple(problems), tuple(warnings))


def _joined_names(
    join: JoinConfig, fields: Mapping[str, Mapping[str, FieldKind]]
) -> tuple[dict[str, FieldKind], frozenset[str]]:
    """Give the names behind a join with their kinds, and those whose field there is not."""
    kinds = {output.made: fields.get(output.source_id, {}).get(output.name) for output in join.output_fields}
    known = {name: kind for name, kind in kinds.items() if kind is not None}
    return {**_OF_JOINED, **known}, frozenset(kinds.keys() - known.keys())


def without_hidden(names: Mapping[str, _T], made: Sequence[str]) -> dict[str, _T]:
    """Leave out the names that newly made fields hide: the same ones, and those inside of them."""
    return {
        name: value
        for name, value in names.items()
        if not any(name == other or name.startswith(f"{other}.") for other in made)
    }


def nullable_names(config: PipelineConfig) -> dict[str, WhyNull]:
    """Give the names that a mapping may use and that are known to be null at times, and why.

    Of a transform's outputs these are the ones that pass such a name on; what an expression makes is not judged.
    """
    visible = joined_nulls(config, config.join) if config.join else _nulls_of(config, config.source)
    stream = config.join.id if config.join else config.source.source_id
    mappable = visible
    for _, transform in _placed(config.transforms, stream):
        outputs = transform.config.transforms if isinstance(transform, Stateless) else ()
        if outputs:
            passed_on = {
                o.output_name: visible[o.expression.strip()] for o in outputs if o.expression.strip() in visible
            }
            made = [output.output_name for output in outputs]
            visible = {**without_hidden(visible, made), **passed_on}
            kafkas = {} if config.join else {name: why for name, why in visible.items() if name == "_key"}
            mappable = {**kafkas, **passed_on}
    return mappable


def _nulls_of(config: PipelineConfig, source: Source) -> dict[str, WhyNull]:
    fields = config.fields_of(source)
    names = {field.name: WhyNull.OPTIONAL for field in fields if not field.required and field.default is None}
    declares_key = any(field.name == "_key" for field in fields)
    return names if declares_key else {**names, "_key": WhyNull.NO_KEY}


def joined_nulls(config: PipelineConfig, join: JoinConfig) -> dict[str, WhyNull]:
    """Give what a joined event lacks at times: with `type: left` all of the right side, else what the sides lack."""
    left, right = config.inputs
    nulls = {source.source_id: _nulls_of(config, source) for source in (left, right)}
    if join.keeps_unmatched:
        nulls[right.source_id] = dict.fromkeys(
            [*METADATA_FIELDS, *(field.name for field in right.schema_fields)], WhyNull.NO_MATCH
        )
    else:
        # Null keys never match.
        for side in join.sides:
            for name in side.key_fields:
                nulls[side.source_id].pop(name, None)
    found = ((output.made, nulls[output.source_id].get(output.name)) for output in join.output_fields)
    return {name: why for name, why in found if why is not None}


def _placed(transforms: Sequence[Transform], stream: str) -> _Placed:
    return [
        (f"transforms[{index}]", transform)
        for index, transform in enumerate(transforms)
        if isinstance(transform, Filter | Stateless) and transform.source_id == stream
    ]


def _filter_put_first(placed: _Placed, fields: Mapping[str, FieldKind]) -> FilterStage | None:
    """Return the filter that GlassFlow would run in another place than it is written in; None where there is none."""
    match [transform for _, transform in placed]:
        case [Stateless(), Filter() as condition]:
            with suppress(ExpressionError):
                return FilterStage(check_filter(condition.config.expression, fields))
    return None


def _type_warnings(placed: _Placed) -> Iterator[str]:
    for place, transform in placed:
        for index, output in enumerate(transform.config.transforms if isinstance(transform, Stateless) else ()):
            meant = misspelt_output_type(output.output_type)
            if meant:
                at = f"{place}.config.transforms[{index}].output_type"
                yield f"{at}: {output.output_type!r} converts nothing; did you mean {meant!r}?"


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
