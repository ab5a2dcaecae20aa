"""Finds the names for `sink.mapping` that may be null, and the reason: their columns should be Nullable."""

from enum import Enum, auto

from glassflow_dagster.definition.model.join import JoinConfig
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import METADATA_FIELDS, Source
from glassflow_dagster.definition.model.transforms import Stateless
from glassflow_dagster.definition.stages import transforms_of, without_hidden


class WhyNull(Enum):
    """The reason why a field may be null."""

    OPTIONAL = auto()
    NO_KEY = auto()
    NO_MATCH = auto()


def nullable_names(config: PipelineConfig) -> dict[str, WhyNull]:
    """Return the names for `sink.mapping` that may be null -> the reason.

    An output of a transform counts when its expression is only such a name; other expressions are not analysed.
    """
    visible = joined_nulls(config, config.join) if config.join else _nulls_of(config, config.source)
    stream = config.join.id if config.join else config.source.source_id
    mappable = visible
    for _, transform in transforms_of(config.transforms, stream):
        outputs = transform.config.transforms if isinstance(transform, Stateless) else ()
        if outputs:
            passed_on = {
                o.output_name: visible[o.expression.strip()] for o in outputs if o.expression.strip() in visible
            }
            names = [output.output_name for output in outputs]
            visible = {**without_hidden(visible, names), **passed_on}
            metadata = {} if config.join else {name: why for name, why in visible.items() if name == "_key"}
            mappable = {**metadata, **passed_on}
    return mappable


def _nulls_of(config: PipelineConfig, source: Source) -> dict[str, WhyNull]:
    """Return the fields of a source that may be null -> the reason; Kafka's key, unless a declared field hides it."""
    fields = config.fields_of(source)
    names = {field.name: WhyNull.OPTIONAL for field in fields if not field.required and field.default is None}
    declares_key = any(field.name == "_key" for field in fields)
    return names if declares_key else {**names, "_key": WhyNull.NO_KEY}


def joined_nulls(config: PipelineConfig, join: JoinConfig) -> dict[str, WhyNull]:
    """Return the fields of the joined event that may be null -> the reason.

    With `type: left` these are all fields of the right source, as there may be no match, and those of the left source
    that may be null in it. Otherwise they are those that may be null in their source, except the fields of the join's
    key, since a null key never matches.
    """
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
    reasons = ((output.joined_name, nulls[output.source_id].get(output.name)) for output in join.output_fields)
    return {name: why for name, why in reasons if why is not None}
