"""Rules of OTLP sources: what GlassFlow's receiver does not combine, and what their type decides."""

import re
from collections.abc import Iterator

from glassflow_dagster.definition.model.otlp import FIELDS, FORMATS
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.definition.model.transforms import Filter, Stateless, Transform
from glassflow_dagster.definition.problems import Problem

MISSING_TOPIC = (
    "is missing: OTLP requests are read from Kafka; add the topic that OpenTelemetry's collector writes them to "
    "(kafkaexporter)"
)
# The texts that GlassFlow omits where they are empty, compared with nil.
_OMITTED = "(trace_id|span_id|parent_span_id|trace_state|status_message|scope_version)"
_COMPARED_WITH_NIL = re.compile(rf"(?<![\w.]){_OMITTED}\s*(?:[!=]=\s*nil\b|\?\?)|\bnil\s*[!=]=\s*{_OMITTED}\b")
MISSING_CONNECTION = "is missing: OTLP requests are read from Kafka; add it, or set GLASSFLOW_KAFKA_BROKERS"


def otlp_problems(config: PipelineConfig) -> Iterator[Problem]:
    """Yield the problems of OTLP sources, and of a format that belongs to them only."""
    otlp = [index for index, source in enumerate(config.sources) if source.signal]
    for index, source in enumerate(config.sources):
        yield from _source_problems(f"sources[{index}]", source)
    if not otlp:
        return
    if len(otlp) < len(config.sources):
        yield Problem("sources", "kafka and OTLP sources cannot be combined; keep one of them")
    elif len(otlp) > 1:
        yield Problem("sources", "at most one OTLP source is possible; keep one")
    if config.join is not None:
        yield Problem("join", "is not possible with an OTLP source; remove it")
    ids = [config.sources[index].source_id for index in otlp]
    for index, stage in enumerate(config.resources.sources if config.resources else ()):
        if stage.source_id in ids:
            yield Problem(f"resources.sources[{index}]", "OTLP sources have no resources of their own; remove it")


def otlp_warnings(config: PipelineConfig) -> Iterator[str]:
    """Yield a warning for each expression on an OTLP source that compares a text with nil, which GlassFlow omits.

    Here an event has all texts, so that the comparison is always false: a filter of GlassFlow's would drop all events.
    """
    if not config.sources[0].signal:
        return
    for index, transform in enumerate(config.transforms):
        for path, expression in _expressions(f"transforms[{index}].config", transform):
            for name in dict.fromkeys(found[1] or found[2] for found in _COMPARED_WITH_NIL.finditer(expression)):
                yield (
                    f"{path}: {name} is never nil, but an empty text in an event without it; GlassFlow omits it there. "
                    f'Compare it with "": {name} == ""'
                )


def _expressions(path: str, transform: Transform) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each expression of a transform."""
    if isinstance(transform, Filter):
        yield f"{path}.expression", transform.config.expression
    elif isinstance(transform, Stateless):
        for index, output in enumerate(transform.config.transforms):
            yield f"{path}.transforms[{index}].expression", output.expression


def _source_problems(path: str, source: Source) -> Iterator[Problem]:
    if source.signal is None:
        if source.format in FORMATS:
            types = ", ".join(f"otlp.{signal}" for signal in FIELDS)
            yield Problem(f"{path}.format", f"{source.format} is of OTLP sources; use the type {types}")
        return
    if source.format not in FORMATS:
        yield Problem(f"{path}.format", f"{source.type} has the formats {' and '.join(FORMATS)}; use one of them")
    if not source.has_fields_of_signal:
        yield Problem(f"{path}.schema_fields", f"the fields of {source.type} are fixed; remove them")
    if source.schema_registry is not None:
        yield Problem(f"{path}.schema_registry", f"{source.type} has no schema; remove it")
    if source.schema_ is not None:
        yield Problem(f"{path}.schema", f"{source.type} has no schema; remove it")
    for key in ("key_format", "key_schema"):
        if getattr(source, key) is not None:
            yield Problem(f"{path}.{key}", f"{source.type} has no fields of the key, only _key as a whole; remove it")
