"""Find the fields of the event that each column of the target is computed from."""

from glassflow_dagster.definition.expressions.check import field_names
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.stages import TransformStage, plan_stages, without_hidden


def event_fields(config: PipelineConfig) -> frozenset[str]:
    """Return the names of the fields that transforms and mapping read: the declared ones, or those of the join."""
    if config.join:
        return frozenset(output.joined_name for output in config.join.output_fields)
    return frozenset(field.name for field in config.source.schema_fields)


def column_sources(config: PipelineConfig) -> dict[str, frozenset[str]]:
    """Return for each mapped column the event's fields that its value depends on.

    Conditions of filters and keys do not count, nor do Kafka's metadata, such as `_offset`.
    """
    visible = {name: frozenset({name}) for name in event_fields(config)}
    mappable = visible
    for stage in plan_stages(config).steps:
        if isinstance(stage, TransformStage):
            mappable = {
                output.name: frozenset[str]().union(*(visible.get(name, ()) for name in field_names(output.value)))
                for output in stage.outputs
            }
            visible = {**without_hidden(visible, list(mappable)), **mappable}
    return {m.column_name: mappable.get(m.name, frozenset()) for m in config.sink.mapping}
