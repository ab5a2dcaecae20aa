"""Rules that need more than one field of a definition, such as references between its parts.

Each rule yields `Problem`s; all of them are reported at once.
"""

import re
from collections.abc import Iterator, Mapping

from glassflow_dagster.config.model.durations import format_duration
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.source import METADATA_FIELDS, SchemaField, Source
from glassflow_dagster.config.model.spark import is_session_setting, refused_in_pool
from glassflow_dagster.config.model.transforms import (
    MAX_DEDUP_WINDOW,
    MAX_WINDOWS_LATE,
    MIN_PROCESSING_WINDOW,
    Dedup,
    DedupConfig,
)
from glassflow_dagster.config.model.types import INTEGER_LIMITS, declared_as, kinds_taken, takes
from glassflow_dagster.config.problems import Problem, suggestion
from glassflow_dagster.config.rules.avro import avro_problem
from glassflow_dagster.config.rules.clock import event_time_problems, only_with_event_clock
from glassflow_dagster.config.rules.connections import WITH_OWN_JVM, connection_problems
from glassflow_dagster.config.rules.join import join_problems, transform_problems
from glassflow_dagster.config.sql import changing_function
from glassflow_dagster.config.stages import Stages, TransformStage, plan_stages
from glassflow_dagster.expressions.language.patterns import engine_pattern


def problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield every problem of a definition that the models have accepted."""
    yield from _source_problems(config)
    yield from join_problems(config)
    yield from _transform_problems(config)
    yield from _dedup_problems(config)
    stages = plan_stages(config)
    yield from stages.problems
    yield from _mapping_problems(config, stages)
    yield from _delivery_problems(config)
    yield from _partition_problems(config)
    yield from connection_problems(config)
    yield from _resource_problems(config)
    yield from _pool_problems(config)
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
        yield from _format_problems(f"sources[{index}]", source)
        if source.consumer_group and source.start != "committed":
            yield Problem(
                f"sources[{index}].consumer_group", "applies to start: committed only; add that, or remove it"
            )


def _format_problems(path: str, source: Source) -> Iterator[Problem]:
    """Yield a problem for a schema that the format does not have, or needs and has not."""
    schema, registry = source.schema_, source.schema_registry
    if not source.has_schema:
        if schema is not None:
            remedy = "remove it, or add format: avro or protobuf"
            yield Problem(f"{path}.schema", f"format {source.format} has no schema; {remedy}")
        return
    if (schema is None or schema.file is None) and registry is None:
        yield Problem(f"{path}.format", f"{source.format} needs a schema; add schema.file or schema_registry")
    if schema is None:
        return
    if source.format == "avro" and schema.file is not None and (problem := avro_problem(schema.file)):
        yield Problem(f"{path}.schema.file", problem)
    if source.format == "avro" and schema.message_type is not None:
        yield Problem(f"{path}.schema.message_type", "applies to protobuf only; remove it")
    if registry is not None and source.format == "protobuf" and schema.file is not None:
        remedy = "remove schema.file or schema_registry"
        yield Problem(f"{path}.schema.file", f"each record of Protobuf has one schema; {remedy}")
    if registry is not None and schema.wire_format == "none":
        yield Problem(
            f"{path}.schema.wire_format", "none leaves nothing to ask the schema_registry; remove one of them"
        )


def _topic_problems(path: str, source: Source) -> Iterator[Problem]:
    """Yield a problem for a source without a topic, and for topics that are there twice."""
    given = [key for key in ("topic", "topics", "topic_pattern") if getattr(source, key)]
    if not given:
        yield Problem(f"{path}.topic", "is missing; add it, or topics: [NAME, ...]")
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
        fields = {field.name: field for field in sources[transform.source_id].schema_fields}
        yield from _key_problems(f"{path}.config.key", dedup, fields)
        if config.join is None or dedup.clock == "processing":
            yield from _clock_problems(f"{path}.config", dedup, fields)


def _key_problems(path: str, dedup: DedupConfig, fields: Mapping[str, SchemaField]) -> Iterator[Problem]:
    """Yield a problem for each part of a key that is undeclared, optional, or no scalar."""
    for name in dedup.key_fields:
        if name not in fields:
            yield Problem(path, f"{name!r} is not in schema_fields; {suggestion(name, list(fields))}")
        elif fields[name].kind in ("array", "map", "any"):
            yield Problem(path, f"{name!r} is {fields[name].type}; a key is a string, number or bool")
        elif not fields[name].needed:
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


def _mapping_problems(config: PipelineConfig, stages: Stages) -> Iterator[Problem]:
    """Yield the problems of `sink.mapping`: unknown names, types that do not fit, columns that are filled twice."""
    kinds = stages.mappable
    columns: set[str] = set()
    for index, mapping in enumerate(config.sink.mapping):
        path = f"sink.mapping[{index}]"
        if mapping.column_name in columns:
            yield Problem(f"{path}.column_name", f"column {mapping.column_name!r} is filled twice; keep one")
        columns.add(mapping.column_name)
        if mapping.name in stages.invalid_names:
            continue  # reported already, with the expression or the join
        if mapping.name not in kinds:
            yield Problem(f"{path}.name", f"{mapping.name!r} is {_unmapped(mapping.name, config, stages)}")
        elif not takes(mapping.parsed_type, kinds[mapping.name]):
            kinds_text = " or ".join(declared_as(kind) for kind in kinds_taken(mapping.parsed_type))
            field = f"field {mapping.name!r} is {declared_as(kinds[mapping.name])}"
            yield Problem(
                f"{path}.column_type",
                f"{mapping.column_type} takes {kinds_text}, but {field}; change the column's or the field's type",
            )
    for index, extra in enumerate(config.sink.create_table.columns if config.sink.create_table else ()):
        if extra.name in columns:
            yield Problem(
                f"sink.create_table.columns[{index}].name", f"{extra.name!r} is mapped already; remove it here"
            )


# Engines that may deduplicate inserts, which is checked at the start; no other engine does.
_MAY_DEDUPLICATE = re.compile(r"\s*(\w*MergeTree|Distributed)\b")


def _delivery_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield a problem when exactly-once delivery is asked of an engine that does not deduplicate inserts."""
    table = config.sink.create_table
    if table and config.sink.delivery == "exactly_once" and not _MAY_DEDUPLICATE.match(table.engine):
        yield Problem(
            "sink.create_table.engine",
            f"{table.engine} does not recognise a repeated insert; use an engine of the MergeTree family, or set "
            "sink.delivery: at_least_once, with which a repeated batch may duplicate rows",
        )


def _partition_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield a problem when the partition of a row may change in a repeated insert.

    ClickHouse deduplicates insert tokens per partition, so a repeated block must go to the same partition.
    """
    table = config.sink.create_table
    if table is None or not table.partition_by or config.sink.delivery == "at_least_once":
        return
    path = "sink.create_table.partition_by"
    if function := changing_function(table.partition_by):
        yield Problem(
            path, f"calls {function}, which may put a repeated row into another partition; partition by fields"
        )
    for column in table.columns:
        is_used = re.search(rf"(?<!\w){re.escape(column.name)}(?!\w)", table.partition_by)
        if is_used and (function := changing_function(column.default or "")):
            yield Problem(
                path,
                f"uses column {column.name!r}, which the server fills with {function}, so a repeated row may get "
                "another partition; remove the column from columns and map _batch_time to it",
            )


def _unmapped(name: str, config: PipelineConfig, stages: Stages) -> str:
    """Return why a mapping cannot use a name, and what to do; the text follows "... is".

    The sink maps outputs of the last stateless transform; without one, a join's output_fields, or else the source's
    fields.
    """
    join, nearest_remedy = config.join, suggestion(name, list(stages.mappable))
    # Without a join only the first source is read.
    sources = config.sources if join else config.sources[:1]
    declared = {field.name for source in sources for field in source.schema_fields}
    if any(isinstance(step, TransformStage) for step in stages.steps):
        if name in ({output.joined_name for output in join.output_fields} if join else declared):
            return "not among the outputs of the last stateless transform; list it there"
        return f"not an output of the last stateless transform; {nearest_remedy}"
    if join:
        remedy = "list it there" if name in declared | METADATA_FIELDS.keys() else nearest_remedy
        return f"not among join.output_fields; {remedy}"
    return f"not in schema_fields; {nearest_remedy}"


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
