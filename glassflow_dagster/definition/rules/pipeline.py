"""Rules that need more than one field of a definition, such as references between its parts.

Each rule yields `Problem`s; all of them are reported at once.
"""

from collections.abc import Iterator, Mapping

from glassflow_dagster.definition.expressions.patterns import engine_pattern
from glassflow_dagster.definition.model.durations import format_duration
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import SchemaField, Source
from glassflow_dagster.definition.model.spark import is_session_setting, refused_in_pool
from glassflow_dagster.definition.model.transforms import (
    MAX_DEDUP_WINDOW,
    MAX_WINDOWS_LATE,
    MIN_PROCESSING_WINDOW,
    Dedup,
    DedupConfig,
)
from glassflow_dagster.definition.model.types import INTEGER_LIMITS
from glassflow_dagster.definition.problems import Problem, suggestion
from glassflow_dagster.definition.rules.clock import event_time_problems, only_with_event_clock
from glassflow_dagster.definition.rules.connections import WITH_OWN_JVM, connection_problems
from glassflow_dagster.definition.rules.formats import format_problems
from glassflow_dagster.definition.rules.join import join_problems, transform_problems
from glassflow_dagster.definition.rules.otlp import MISSING_TOPIC, otlp_problems
from glassflow_dagster.definition.rules.sink import sink_problems
from glassflow_dagster.definition.rules.state import state_problems
from glassflow_dagster.definition.stages import plan_stages


def problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield every problem of a definition that the models have accepted."""
    yield from _source_problems(config)
    yield from otlp_problems(config)
    yield from join_problems(config)
    yield from _transform_problems(config)
    yield from _dedup_problems(config)
    stages = plan_stages(config)
    yield from stages.problems
    yield from sink_problems(config, stages)
    yield from connection_problems(config)
    yield from _resource_problems(config)
    yield from _pool_problems(config)
    yield from state_problems(config)
    yield from _evolution_problems(config)
    if config.checks.max_unmatched is not None and config.join is None:
        yield Problem("checks.max_unmatched", "applies to a join only; remove it")


def _pool_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield a problem for each thing that a pipeline needs of its JVM, and cannot have in a pool."""
    if config.pool is None:
        return
    for key in config.spark:
        if not is_session_setting(key):
            yield Problem("spark", refused_in_pool(key, config.pool))
    if config.connection.mechanism in WITH_OWN_JVM:
        yield Problem("pool", f"{config.connection.mechanism} needs a JVM of its own; remove it")


def _evolution_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield a problem where new fields cannot be told, or have no way to the table."""
    if config.schema_evolution == "ignore":
        return
    source = config.source
    why = ""
    if config.join is not None:
        why = "a join's output_fields choose the fields"
    elif source.signal is not None:
        why = "the fields of an OTLP source are fixed"
    elif source.encoding.has_schema and source.schema_registry is None:
        why = "the schema is in the definition, and changes with it"
    if why:
        yield Problem("schema_evolution", f"{config.schema_evolution} has no effect here, since {why}; remove it")


def _source_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield the problems of sources: repeated fields, invalid defaults, and a consumer group without effect."""
    for index, source in enumerate(config.sources):
        names = [field.name for field in source.schema_fields]
        for position, name in enumerate(names):
            path = f"sources[{index}].schema_fields[{position}]"
            if name in names[:position]:
                yield Problem(f"{path}.name", f"{name!r} is declared twice; keep one")
            yield from _default_problems(path, source.schema_fields[position])
        yield from _topic_problems(f"sources[{index}]", source)
        yield from format_problems(f"sources[{index}]", source)
        if source.consumer_group and source.start != "committed":
            yield Problem(
                f"sources[{index}].consumer_group", "applies to start: committed only; add that, or remove it"
            )


def _topic_problems(path: str, source: Source) -> Iterator[Problem]:
    """Yield a problem for a source without a topic, and for topics that are there twice."""
    given = [key for key in ("topic", "topics", "topic_pattern") if getattr(source, key)]
    if not given:
        remedy = MISSING_TOPIC if source.signal else "is missing; add it, or topics: [NAME, ...]"
        yield Problem(f"{path}.topic", remedy)
    for key in given[1:]:
        yield Problem(f"{path}.{key}", f"is there beside {given[0]}; keep one of them")
    if source.topic_pattern:
        try:
            engine_pattern(source.topic_pattern)
        except ValueError as error:
            yield Problem(f"{path}.topic_pattern", f"is no regular expression ({error}); correct it")
    for position, topic in enumerate(source.topics):
        if topic in source.topics[:position]:
            yield Problem(f"{path}.topics[{position}]", f"{topic!r} is there twice; keep one")


def _default_problems(path: str, field: SchemaField) -> Iterator[Problem]:
    """Yield a problem when a default is no value of the field's kind."""
    if field.default is None:
        return
    # The Python types of a default, by the kind of field; other kinds take none.
    types: dict[str, tuple[type, ...]] = {"string": (str,), "bool": (bool,), "float": (int, float), "int": (int,)}
    kind = "int" if field.kind == "uint" else field.kind
    has_type = type(field.default) in types.get(kind, ())
    limits = INTEGER_LIMITS.get(field.kind)  # least and greatest value of an integer
    if kind not in types:
        yield Problem(f"{path}.default", f"{field.type} takes no default; remove it, or set required: false")
    elif not has_type or (limits and isinstance(field.default, int) and not limits[0] <= field.default <= limits[1]):
        yield Problem(f"{path}.default", f"{field.default!r} is not of type {field.type}; correct it")


def _transform_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield a problem for each transform with an unknown source_id, or on the wrong side of a join."""
    streams = [*(source.source_id for source in config.sources), *([config.join.id] if config.join else [])]
    for index, transform in enumerate(config.transforms):
        if transform.source_id in streams:
            yield from transform_problems(f"transforms[{index}]", transform, config)
        else:
            remedy = suggestion(transform.source_id, streams)
            yield Problem(f"transforms[{index}].source_id", f"no source is called {transform.source_id!r}; {remedy}")


def _dedup_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield the problems of deduplication: at most one per source, its key, window and clock."""
    sources = {source.source_id: source for source in config.sources}
    seen: set[str] = set()
    for index, transform in enumerate(config.transforms):
        path = f"transforms[{index}]"
        if not isinstance(transform, Dedup) or transform.source_id not in sources:
            continue
        if transform.source_id in seen:
            yield Problem(path, f"source {transform.source_id!r} has a dedup already; keep one")
        seen.add(transform.source_id)
        dedup = transform.config
        if bool(dedup.key) == bool(dedup.keys):
            yield Problem(f"{path}.config", "name the key once: either key (one field) or keys (a list)")
        if dedup.time_window > MAX_DEDUP_WINDOW:
            yield Problem(f"{path}.config.time_window", "is longer than 7 days; choose 7d or less")
        source = sources[transform.source_id]
        # Of an OTLP source, those of the key are required, whichever they are, but for attributes.
        fields = {field.name: field for field in (config.fields_of(source) if source.signal else source.schema_fields)}
        yield from _key_problems(f"{path}.config.key", dedup, source, fields)
        if config.join is None or dedup.clock == "processing":
            yield from _clock_problems(f"{path}.config", dedup, fields)


def _key_problems(
    path: str, dedup: DedupConfig, source: Source, fields: Mapping[str, SchemaField]
) -> Iterator[Problem]:
    """Yield a problem for each part of a key that is undeclared, optional, or no scalar."""
    for name in dedup.key_fields:
        if name not in fields:
            where = f"no field of {source.type}" if source.signal else "not in schema_fields"
            yield Problem(path, f"{name!r} is {where}; {suggestion(name, list(fields))}")
        elif fields[name].kind in ("array", "map", "any"):
            yield Problem(path, f"{name!r} is {fields[name].type}; a key is a string, number or bool")
        elif not fields[name].needed and not source.signal:
            text = f"{name!r} is optional; a key must be present, set required: true without a default"
            yield Problem(path, text)


def _clock_problems(path: str, dedup: DedupConfig, fields: Mapping[str, SchemaField]) -> Iterator[Problem]:
    """Yield the problems of a deduplication's clock, window and lateness."""
    if dedup.clock == "processing":
        if dedup.time_window < MIN_PROCESSING_WINDOW:
            text = "is shorter than 1ms, the resolution of batch times; choose 1ms or more"
            yield Problem(f"{path}.time_window", text)
        names = ("event_time", "event_time_unit", "late", "allowed_lateness")
        yield from only_with_event_clock(path, (name for name in names if getattr(dedup, name) is not None))
        return
    if dedup.lateness > MAX_DEDUP_WINDOW:
        yield Problem(f"{path}.allowed_lateness", "is longer than 7 days; choose 7d or less")
    if dedup.lateness > MAX_WINDOWS_LATE * dedup.time_window:
        longest = format_duration(MAX_WINDOWS_LATE * dedup.time_window)
        yield Problem(
            f"{path}.allowed_lateness",
            f"is more than {MAX_WINDOWS_LATE} times time_window; choose {longest} or less, or a longer time_window",
        )
    yield from event_time_problems(path, dedup, fields)


def _resource_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield a problem for each entry of `resources` with an unknown source_id."""
    source_ids = [source.source_id for source in config.sources]
    for key in ("sources", "transform"):
        # Empty for a definition without resources, where `config.resources` is None.
        for index, stage in enumerate(getattr(config.resources, key, ())):
            if stage.source_id not in source_ids:
                remedy = suggestion(stage.source_id, source_ids)
                path = f"resources.{key}[{index}].source_id"
                yield Problem(path, f"no source is called {stage.source_id!r}; {remedy}")
