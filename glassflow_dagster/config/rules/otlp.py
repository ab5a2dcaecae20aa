"""Rules of OTLP sources: what GlassFlow's receiver does not combine, and what their type decides."""

from collections.abc import Iterator

from glassflow_dagster.config.model.otlp import FIELDS, FORMATS
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.source import Source
from glassflow_dagster.config.problems import Problem

MISSING_TOPIC = (
    "is missing: OTLP requests are read from Kafka; add the topic that OpenTelemetry's collector writes them to "
    "(kafkaexporter)"
)
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
