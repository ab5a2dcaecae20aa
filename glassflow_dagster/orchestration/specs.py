"""The asset specs of a pipeline: keys, lineage, column schemas, descriptions and URIs.

They follow from the definition alone; no server is contacted, so definitions load while Kafka and ClickHouse are down.
"""

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from glassflow_dagster.config.model.durations import format_duration
from glassflow_dagster.config.model.join import JoinConfig, JoinSide, OutputField
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.source import METADATA_FIELDS, Source
from glassflow_dagster.config.model.transforms import DedupConfig
from glassflow_dagster.config.nullable_names import joined_nulls
from glassflow_dagster.orchestration.asset_keys import AssetKeys
from glassflow_dagster.orchestration.automation import freshness_policy, health_check_condition

MAX_TAG_LENGTH = 63  # characters, a limit of Dagster
_TAG = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_TAG_LENGTH}}}")


def asset_specs(definition: Path, config: PipelineConfig, keys: AssetKeys) -> Iterator[dg.AssetSpec]:
    """Yield the pipeline's asset specs: raw topics, deduplicated and joined streams (if any), ClickHouse table."""
    common: dict[str, Any] = {
        "group_name": keys.pipeline,
        "tags": {
            "glassflow/pipeline": keys.pipeline[:MAX_TAG_LENGTH],
            **{f"glassflow/{tag}": "" for tag in _tags(config)},
        },
        "automation_condition": health_check_condition(config),
        # With it, Dagster marks the assets of a definition that was edited and whose stream is not yet redeployed.
        "code_version": config.digest[:12],
    }
    reference = code_reference(definition)
    for source, raw, deduplicated in zip(config.inputs, keys.raw, keys.deduplicated, strict=True):
        yield dg.AssetSpec(
            raw,
            description=f"Kafka topic `{source.topic}`, as its producers wrote it.",
            kinds={"kafka"},
            metadata={**_topic_metadata(config, source), **reference},
            **common,
        )
        dedup = config.dedup_of(source)
        if deduplicated and dedup:
            yield dg.AssetSpec(
                deduplicated,
                deps=[raw],
                description=_deduplicated_description(dedup),
                kinds={"spark", "streaming"},
                metadata={
                    "dagster/column_schema": _event_schema(config, source),
                    **_dedup_metadata(dedup),
                    **reference,
                },
                **common,
            )
    if keys.joined and config.join:
        yield dg.AssetSpec(
            keys.joined,
            deps=keys.sides,
            description=_joined_description(config, config.join),
            kinds={"spark", "streaming"},
            metadata={
                "dagster/column_schema": _joined_schema(config, config.join),
                **_join_metadata(config.join),
                **reference,
            },
            **common,
        )
    yield dg.AssetSpec(
        keys.table,
        deps=[keys.joined] if keys.joined else keys.sides,
        description=_table_description(config),
        kinds={"clickhouse", "table"} if keys.stream != keys.table else {"spark", "clickhouse", "table"},
        metadata={**_table_metadata(config), **reference},
        freshness_policy=freshness_policy(config),
        **common,
    )


def _tags(config: PipelineConfig) -> list[str]:
    """Return the definition's labels that are valid as Dagster tags."""
    return [tag for tag in config.metadata.tags if _TAG.fullmatch(tag)]


def code_reference(definition: Path) -> dict[str, Any]:
    """Return the metadata that links an asset's page in Dagster to its definition file."""
    with warnings.catch_warnings():
        # Beta in Dagster 1.13; only the link on the asset's page depends on it.
        warnings.simplefilter("ignore", dg.BetaWarning)
        reference = dg.LocalFileCodeReference(file_path=str(definition.resolve()), label="pipeline definition")
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}


def _topic_metadata(config: PipelineConfig, source: Source) -> dict[str, Any]:
    """Return the static metadata of a raw topic: columns, URI and name."""
    return {
        "dagster/column_schema": _event_schema(config, source),
        "dagster/uri": f"kafka://{','.join(source.connection_params.brokers)}/{source.topic}",
        "dagster/table_name": source.topic,
        "dagster/storage_kind": "kafka",
    }


def _dedup_metadata(dedup: DedupConfig) -> dict[str, Any]:
    """Return the settings of deduplication as metadata."""
    return {
        "dedup_key": ", ".join(dedup.key_fields),
        "dedup_window": format_duration(dedup.time_window),
        "dedup_clock": f"event time {dedup.event_time}" if dedup.event_time else "processing time",
    }


def _join_metadata(join: JoinConfig) -> dict[str, Any]:
    """Return the settings of a join as metadata."""
    left, right = join.sides
    figures = {
        "join_type": "left" if join.keeps_unmatched else "inner",
        "join_match": join.match,
        "join_clock": "event time" if join.clock == "event" else "processing time",
        "left_key": ", ".join(left.key_fields),
        "right_key": ", ".join(right.key_fields),
        "left_window": format_duration(left.time_window),
        "right_window": format_duration(right.time_window),
    }
    if join.clock == "event":
        figures |= {
            "allowed_lateness": format_duration(join.lateness),
            "idle_timeout": format_duration(join.idle_timeout),
        }
    return figures


def _table_metadata(config: PipelineConfig) -> dict[str, Any]:
    """Return the static metadata of the target table: columns, URI and name."""
    connection = config.sink.connection_params
    database, table = config.sink.full_table
    return {
        "dagster/column_schema": _table_schema(config),
        "dagster/uri": f"clickhouse://{connection.host}:{connection.http}/{database}/{table}",
        "dagster/table_name": f"{database}.{table}",
        "dagster/storage_kind": "clickhouse",
    }


def _event_schema(config: PipelineConfig, source: Source) -> dg.TableSchema:
    """Return the declared fields of a source's events as columns."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                field.name,
                field.type,
                description=_role(config, source, field.name),
                constraints=dg.TableColumnConstraints(nullable=not field.required),
            )
            for field in source.schema_fields
        ]
    )


def _role(config: PipelineConfig, source: Source, field: str) -> str | None:
    """Describe the role of a field as key or event time; None when it has none."""
    dedup = config.dedup_of(source)
    keys = ["the deduplication key"] if dedup and field in dedup.key_fields else []
    side = next((s for s in config.join.sides if s.source_id == source.source_id), None) if config.join else None
    if side and field in side.key_fields:
        keys.append("the join key")
    roles = [f"part of {' and of '.join(keys)}"] if keys else []
    if side and field == side.event_time:
        roles.append("event time of the join")
    return "; ".join(roles) or None


def _joined_schema(config: PipelineConfig, join: JoinConfig) -> dg.TableSchema:
    """Return the columns of the joined stream, with the source that each one comes from."""
    sources, nulls = {source.source_id: source for source in config.inputs}, joined_nulls(config, join)

    def column(output: OutputField) -> dg.TableColumn:
        source = sources[output.source_id]
        kinds = {**METADATA_FIELDS, **{field.name: field.type for field in source.schema_fields}}
        return dg.TableColumn(
            output.joined_name,
            kinds[output.name],
            description=f"{output.name} of {source.source_id} (topic {source.topic})",
            constraints=dg.TableColumnConstraints(nullable=output.joined_name in nulls),
        )

    return dg.TableSchema(columns=[column(output) for output in join.output_fields])


def _table_schema(config: PipelineConfig) -> dg.TableSchema:
    """Return the table's columns: the mapped ones, then those that only CREATE TABLE adds."""
    mapped = [
        dg.TableColumn(
            mapping.column_name,
            mapping.column_type,
            description=f"from {mapping.name}",
            constraints=dg.TableColumnConstraints(nullable=mapping.parsed_type.nullable),
        )
        for mapping in config.sink.mapping
    ]
    created = config.sink.create_table.columns if config.sink.create_table else ()
    extra = [
        dg.TableColumn(column.name, column.type, description=f"default {column.default}" if column.default else None)
        for column in created
    ]
    return dg.TableSchema(columns=[*mapped, *extra])


def _deduplicated_description(dedup: DedupConfig) -> str:
    key, window = ", ".join(dedup.key_fields), format_duration(dedup.time_window)
    clock = f" of `{dedup.event_time}`" if dedup.event_time else ""
    return f"The first event of each `{key}` within {window}{clock}; later ones count as duplicates."


def _joined_description(config: PipelineConfig, join: JoinConfig) -> str:
    """Describe in the asset's text which events a join matches: keys, windows, clock, and events without a match."""
    left, right = join.sides
    topics = {source.source_id: source.topic for source in config.inputs}
    before, after = format_duration(right.time_window), format_duration(left.time_window)
    if join.match == "latest":
        match = (
            f"the latest one that came less than {before} before it, or else the first one that came less than {after} "
            "after it"
        )
    else:
        match = f"every one that came less than {before} before it or less than {after} after it"
    unmatched = "makes a row with NULLs" if join.keeps_unmatched else "makes no row"
    return (
        f"Each event of `{topics[left.source_id]}` (left) with the event of `{topics[right.source_id]}` (right) of "
        f"the same key ({_keys(left)} = {_keys(right)}): {match}, {_clock(join)}. A left event without a match "
        f"{unmatched}, and counts as unmatched."
    )


def _keys(side: JoinSide) -> str:
    return ", ".join(f"`{name}`" for name in side.key_fields)


def _clock(join: JoinConfig) -> str:
    """Return the part of a join's description that names its clock."""
    if join.clock == "processing":
        return "by the time at which they are read"
    left, right = join.sides
    return (
        f"by the times in `{left.event_time}` and `{right.event_time}`, of which one may be "
        f"{format_duration(join.lateness)} late"
    )


def _table_description(config: PipelineConfig) -> str:
    name = f"{config.name}. " if config.name else ""
    return (
        f"{name}ClickHouse table `{'.'.join(config.sink.full_table)}`, filled exactly once by a Spark stream that runs "
        "outside Dagster. Materializing launches the stream, or checks the health of the one that runs."
    )
