"""Plan the stages of a definition: its filters and stateless transforms in order, each checked against its scope.

The scope of an expression is the set of names that it can read, with their kinds.

Stages run in the order of `transforms`, with one exception: GlassFlow has at most one filter and one stateless
transform, and always filters first. So a single filter behind a single stateless transform runs before it, if it reads
fields of the source only.

The conditions of the sink's tables (`sink.filter` and those of `sink.routes`) come last; they read what a filter behind
the last stage would.

With a join, the filters of a source run before it. Transforms whose source_id is the join's id run behind it; their
scope is the join's output_fields. GlassFlow has neither, so with a join the order of `transforms` always holds.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TypeVar

from glassflow_dagster.definition.expressions.check import DIGITS, Checked, check_filter, check_transform
from glassflow_dagster.definition.expressions.expression_error import ExpressionError
from glassflow_dagster.definition.expressions.outputs import misspelt_output_type, output_kind
from glassflow_dagster.definition.model.join import JoinConfig
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import METADATA_FIELDS
from glassflow_dagster.definition.model.transforms import Filter, Output, Stateless, Transform
from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.definition.problems import Problem

_T = TypeVar("_T")

_ORDER_WARNING = (
    "{}: comes after the stateless transform but uses only fields of the source, so it runs first, as in GlassFlow; "
    "to filter by an output, give the output a unique name"
)

# A joined event comes from two records, so of the metadata only the batch time has one value.
_JOINED_METADATA = {"_batch_time": METADATA_FIELDS["_batch_time"]}


@dataclass(frozen=True)
class FilterStage:
    """A filter with a valid expression."""

    condition: Checked


@dataclass(frozen=True)
class CheckedOutput:
    """An output of a stateless transform with a valid expression. kind: of the field that later stages read."""

    name: str
    value: Checked
    output_type: str
    kind: FieldKind


@dataclass(frozen=True)
class TransformStage:
    """A stateless transform with its valid outputs."""

    outputs: tuple[CheckedOutput, ...]


@dataclass(frozen=True)
class Stages:
    """The stages of a definition in the order in which they run.

    before: source_id -> filters that run before the join; empty without a join.
    steps: the stages behind the join, or all stages without one.
    tables: the condition of each of the sink's tables (`Sink.by_table`), None for one without; incomplete where one is
        invalid.
    mappable: name -> kind of the fields that `sink.mapping` can use.
    invalid_names: names that are missing in `mappable` because of a problem that is reported already, such as an
        output's invalid expression.
    warnings: what is valid, but may be meant otherwise.
    """

    before: Mapping[str, tuple[FilterStage, ...]]
    steps: tuple[FilterStage | TransformStage, ...]
    tables: tuple[FilterStage | None, ...]
    mappable: Mapping[str, FieldKind]
    invalid_names: frozenset[str]
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]


_TransformsByPath = list[tuple[str, Filter | Stateless]]
# Path and expression of the condition of each table; None for a table without one.
_Conditions = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class PlanInput:
    """The parts of a definition that decide its plan, as a key of the cache.

    fields: source_id and (name, kind) of the fields of each source.
    mapped: the names in the mappings.
    tables: path and condition of each of the sink's tables.
    """

    fields: tuple[tuple[str, tuple[tuple[str, FieldKind], ...]], ...]
    transforms: tuple[Transform, ...]
    join: JoinConfig | None
    mapped: tuple[str, ...]
    tables: _Conditions


@dataclass(frozen=True)
class _Stream:
    """A chain of transforms, and the conditions of the tables behind it.

    scope: before the first transform.
    metadata: names that stay mappable behind every transform.
    """

    transforms: _TransformsByPath
    scope: Mapping[str, FieldKind]
    metadata: Mapping[str, FieldKind]
    tables: _Conditions


def plan_stages(config: PipelineConfig) -> Stages:
    """Check the expressions of a definition, each against the scope at its position, and return the stages.

    Definitions with equal expressions, fields and join share one cached plan: do not change it.
    """
    fields = tuple(
        (source.source_id, tuple((field.name, field.kind) for field in source.schema_fields))
        for source in config.sources
    )
    sinks = config.sink.by_table
    return plan_cached(
        PlanInput(
            fields=fields,
            transforms=config.transforms,
            join=config.join,
            mapped=tuple(mapping.name for sink in sinks for mapping in sink.mapping),
            tables=tuple((sink.paths.filter, sink.filter) for sink in sinks),
        )
    )


# At most as many plans as one process may have definitions open; a plan is small.
@lru_cache(maxsize=256)
def plan_cached(definition: PlanInput) -> Stages:
    """Plan a definition, with or without a join; the cache returns the same plan for equal definitions."""
    scopes = {source_id: {**METADATA_FIELDS, **dict(fields)} for source_id, fields in definition.fields}
    if definition.join is not None:
        return _plan_joined(definition, definition.join, scopes)
    # Without a join the first source is the only one; two of them are invalid, which is reported elsewhere.
    source_id, _ = definition.fields[0]
    transforms = transforms_of(definition.transforms, source_id)
    return _plan_single(_Stream(transforms, scopes[source_id], METADATA_FIELDS, definition.tables))


def _plan_single(stream: _Stream) -> Stages:
    """Plan a definition without a join.

    A filter that is written behind the stateless transform, but reads the source's fields only, runs before it, as in
    GlassFlow; a warning says so.
    """
    warnings = list(_type_warnings(stream.transforms))
    early_filters = []
    if early_filter := _filter_to_run_first(stream.transforms, stream.scope):
        # These two are then the only transforms.
        [stateless, (path_of_filter, _)] = stream.transforms
        stream, early_filters = replace(stream, transforms=[stateless]), [early_filter]
        warnings.insert(0, _ORDER_WARNING.format(path_of_filter))
    return _plan(stream, early_filters=early_filters, before={}, problems=[], warnings=warnings)


def _plan_joined(definition: PlanInput, join: JoinConfig, scopes: Mapping[str, Mapping[str, FieldKind]]) -> Stages:
    """Plan a definition with a join: its filters before the join by source, and the stages behind it.

    Where an output field of the join is invalid, which the rules of the join report, nothing behind the join can be
    planned: there are no steps, and `invalid_names` has the names whose mapping is not checked.
    scopes: source_id -> names and kinds of the source's fields and metadata.
    """
    problems: list[Problem] = []
    before = {
        side.source_id: tuple(
            stage
            for path, transform in transforms_of(definition.transforms, side.source_id)
            if isinstance(transform, Filter)
            for stage in _filter(_expression_path(path), transform.config.expression, scopes[side.source_id], problems)
        )
        for side in join.sides
        if side.source_id in scopes
    }
    scope, invalid_names = _joined_scope(join, scopes)
    # A join with the id of a source is reported elsewhere; its transforms cannot be told from the source's.
    transforms = transforms_of(definition.transforms, join.id) if join.id not in scopes else []
    warnings = list(_type_warnings(transforms))
    if not invalid_names:
        stream = _Stream(transforms, scope, _JOINED_METADATA, definition.tables)
        return _plan(stream, early_filters=[], before=before, problems=problems, warnings=warnings)
    # Any mapped name may be an output of a transform, whose expressions cannot be checked without the invalid fields.
    if any(isinstance(transform, Stateless) for _, transform in transforms):
        invalid_names = frozenset(definition.mapped)
    return Stages(
        before=before,
        steps=(),
        tables=(),
        mappable=scope,
        invalid_names=invalid_names,
        problems=tuple(problems),
        warnings=tuple(warnings),
    )


def _plan(
    stream: _Stream,
    *,
    early_filters: Sequence[FilterStage],
    before: Mapping[str, tuple[FilterStage, ...]],
    problems: list[Problem],
    warnings: Sequence[str],
) -> Stages:
    """Check a chain of transforms, each against the fields behind the one before it, and return the stages.

    A filter adds a stage; a stateless transform replaces the fields. Afterwards expressions may read its outputs and
    the fields that no output hides (`scope`); the sink may map its outputs and the metadata only (`mappable`), as in
    GlassFlow. Names without a valid expression count for the last transform only, since it hides those before it.

    early_filters: run before the chain.
    problems: a list, to which checking adds.
    before, warnings: see `Stages`.
    """
    scope = mappable = stream.scope
    invalid_names: frozenset[str] = frozenset()
    steps: list[FilterStage | TransformStage] = [*early_filters]
    for path, transform in stream.transforms:
        if isinstance(transform, Filter):
            steps += _filter(_expression_path(path), transform.config.expression, scope, problems)
            continue
        outputs = _outputs(path, transform, scope, problems)
        if not transform.config.transforms:
            continue  # as in GlassFlow, an empty list changes nothing
        steps.append(TransformStage(tuple(outputs)))
        kinds = {output.name: output.kind for output in outputs}
        invalid_names = frozenset(o.output_name for o in transform.config.transforms) - kinds.keys()
        scope = {**without_hidden(scope, [o.output_name for o in transform.config.transforms]), **kinds}
        mappable = {**stream.metadata, **kinds}
    tables = tuple(_conditions(stream.tables, scope, problems))
    return Stages(before, tuple(steps), tables, mappable, invalid_names, tuple(problems), tuple(warnings))


def _joined_scope(
    join: JoinConfig, scopes: Mapping[str, Mapping[str, FieldKind]]
) -> tuple[dict[str, FieldKind], frozenset[str]]:
    """Return the scope behind a join, and the names of output_fields that refer to no field of a source."""
    kinds = {output.joined_name: scopes.get(output.source_id, {}).get(output.name) for output in join.output_fields}
    valid_kinds = {name: kind for name, kind in kinds.items() if kind is not None}
    return {**_JOINED_METADATA, **valid_kinds}, frozenset(kinds.keys() - valid_kinds.keys())


def without_hidden(scope: Mapping[str, _T], outputs: Sequence[str]) -> dict[str, _T]:
    """Return a scope without the names that a transform's outputs hide: an output `a` hides `a`, `a.b`, `a.b.c` ..."""
    return {
        name: value
        for name, value in scope.items()
        if not any(name == output or name.startswith(f"{output}.") for output in outputs)
    }


def transforms_of(transforms: Sequence[Transform], stream: str) -> _TransformsByPath:
    """Return path and transform of the filters and stateless transforms with this source_id, in order."""
    return [
        (f"transforms[{index}]", transform)
        for index, transform in enumerate(transforms)
        if isinstance(transform, Filter | Stateless) and transform.source_id == stream
    ]


def _filter_to_run_first(transforms: _TransformsByPath, fields: Mapping[str, FieldKind]) -> FilterStage | None:
    """Return the filter that runs before the stateless transform although it is written behind it; None without one.

    It is the only filter, behind the only stateless transform, and reads fields of the source only.
    """
    match [transform for _, transform in transforms]:
        case [Stateless(), Filter() as condition]:
            with suppress(ExpressionError):
                return FilterStage(check_filter(condition.config.expression, fields))
    return None


def _type_warnings(transforms: _TransformsByPath) -> Iterator[str]:
    """Yield a warning for each output_type that looks like a misspelt type."""
    for path, transform in transforms:
        for index, output in enumerate(transform.config.transforms if isinstance(transform, Stateless) else ()):
            suggested_type = misspelt_output_type(output.output_type)
            if suggested_type:
                output_path = f"{path}.config.transforms[{index}].output_type"
                yield f"{output_path}: {output.output_type!r} converts nothing; did you mean {suggested_type!r}?"


def _expression_path(path_of_filter: str) -> str:
    return f"{path_of_filter}.config.expression"


def _filter(
    path: str, expression: str, scope: Mapping[str, FieldKind], problems: list[Problem]
) -> Iterator[FilterStage]:
    """Yield the stage of a filter; nothing, and a problem at `path`, when its expression is invalid."""
    try:
        yield FilterStage(check_filter(expression, scope))
    except ExpressionError as error:
        problems.append(Problem(path, error.one_line))


def _conditions(
    tables: _Conditions, scope: Mapping[str, FieldKind], problems: list[Problem]
) -> Iterator[FilterStage | None]:
    """Yield the condition of each table, None for one without; a problem for each that is invalid."""
    for path, expression in tables:
        if expression is None:
            yield None
        else:
            yield from _filter(path, expression, scope, problems)


def _outputs(
    path: str, transform: Stateless, scope: Mapping[str, FieldKind], problems: list[Problem]
) -> list[CheckedOutput]:
    """Return the valid outputs of a stateless transform; add a problem for each invalid or repeated one."""
    outputs: list[CheckedOutput] = []
    names: set[str] = set()
    for index, output in enumerate(transform.config.transforms):
        output_path = f"{path}.config.transforms[{index}]"
        if output.output_name in names:
            problems.append(Problem(f"{output_path}.output_name", f"{output.output_name!r} is defined twice; keep one"))
        names.add(output.output_name)
        try:
            outputs.append(_checked(output, scope))
        except ExpressionError as error:
            problems.append(Problem(f"{output_path}.expression", error.one_line))
    return outputs


def _checked(output: Output, scope: Mapping[str, FieldKind]) -> CheckedOutput:
    """Check an output's expression and its output_type; raises `ExpressionError`."""
    value = check_transform(output.expression, scope)
    kind = output_kind(value.kind, output.output_type)
    if value.kind in DIGITS and kind not in (value.kind, "string", "float"):
        text = f"is a decimal or wide integer, which cannot become {output.output_type}; leave output_type empty"
        raise ExpressionError(value.text, value.root.span, text)
    return CheckedOutput(output.output_name, value, output.output_type, kind)
