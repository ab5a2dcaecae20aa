"""What a pipeline's assets are before anything runs: keys, lineage, columns, addresses.

All of it comes from the definition; no server is asked, so definitions load with both of them down.
"""

import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg

from glassflow_dagster.config.durations import format_duration
from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.orchestration.automation import freshness_policy, health_check_condition
from glassflow_dagster.orchestration.naming import Names

MAX_TAG_LENGTH = 63  # characters; Dagster takes no longer one
_TAG = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_TAG_LENGTH}}}")


def asset_specs(definition: Path, config: PipelineConfig, names: Names) -> Iterator[dg.AssetSpec]:
    """Yield the pipeline's assets: raw topic, deduplicated stream where there is one, ClickHouse table."""
    common: dict[str, Any] = {
        "group_name": names.pipeline,
        "tags": {
            "glassflow/pipeline": names.pipeline[:MAX_TAG_LENGTH],
            **{f"glassflow/{tag}": "" for tag in _tags(config)},
        },
        "automation_condition": health_check_condition(config),
        # Dagster then marks the assets of an edited definition, whose stream is not yet redeployed.
        "code_version": config.digest[:12],
    }
    reference = code_reference(definition)
    yield dg.AssetSpec(
        names.raw,
        description=f"Kafka topic `{config.source.topic}`, as its producers left it.",
        kinds={"kafka"},
        metadata={**_topic_metadata(config), **reference},
        **common,
    )
    if names.deduplicated:
        yield dg.AssetSpec(
            names.deduplicated,
            deps=[names.raw],
            description=_deduplicated_description(config),
            kinds={"spark", "streaming"},
            metadata={"dagster/column_schema": _event_schema(config), **_dedup_metadata(config), **reference},
            **common,
        )
    yield dg.AssetSpec(
        names.table,
        deps=[names.deduplicated or names.raw],
        description=_table_description(config),
        kinds={"clickhouse", "table"} if names.deduplicated else {"spark", "clickhouse", "table"},
        metadata={**_table_metadata(config), **reference},
        freshness_policy=freshness_policy(config),
        **common,
    )


def _tags(config: PipelineConfig) -> list[str]:
    """Give the definition's labels that Dagster takes as tags; it is strict about their characters."""
    return [tag for tag in config.metadata.tags if _TAG.fullmatch(tag)]


def code_reference(definition: Path) -> dict[str, Any]:
    """Link an asset's page to its definition."""
    with warnings.catch_warnings():
        # Marked beta in Dagster 1.13; it gives the asset page its link to the definition, and nothing rests on it.
        warnings.simplefilter("ignore", dg.BetaWarning)
        reference = dg.LocalFileCodeReference(file_path=str(definition.resolve()), label="pipeline definition")
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}


def _topic_metadata(config: PipelineConfig) -> dict[str, Any]:
    source = config.source
    return {
        "dagster/column_schema": _event_schema(config),
        "dagster/uri": f"kafka://{','.join(source.connection_params.brokers)}/{source.topic}",
        "dagster/table_name": source.topic,
        "dagster/storage_kind": "kafka",
    }


def _dedup_metadata(config: PipelineConfig) -> dict[str, Any]:
    if not config.dedup:
        return {}
    return {
        "dedup_key": ", ".join(config.dedup.key_fields),
        "dedup_window": format_duration(config.dedup.time_window),
        "dedup_clock": f"event time {config.dedup.event_time}" if config.dedup.event_time else "processing time",
    }


def _table_metadata(config: PipelineConfig) -> dict[str, Any]:
    connection = config.sink.connection_params
    database, table = config.sink.full_table
    return {
        "dagster/column_schema": _table_schema(config),
        "dagster/uri": f"clickhouse://{connection.host}:{connection.http}/{database}/{table}",
        "dagster/table_name": f"{database}.{table}",
        "dagster/storage_kind": "clickhouse",
    }


def _event_schema(config: PipelineConfig) -> dg.TableSchema:
    keys = config.dedup.key_fields if config.dedup else ()
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                field.name,
                field.type,
                description="part of the deduplication key" if field.name in keys else None,
                constraints=dg.TableColumnConstraints(nullable=not field.required),
            )
            for field in config.source.schema_fields
        ]
    )


def _table_schema(config: PipelineConfig) -> dg.TableSchema:
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


def _deduplicated_description(config: PipelineConfig) -> str:
    if not config.dedup:
        return ""
    key, window = ", ".join(config.dedup.key_fields), format_duration(config.dedup.time_window)
    clock = f" of `{config.dedup.event_time}`" if config.dedup.event_time else ""
    return f"The first event of each `{key}` within {window}{clock}; the others are counted as duplicates."


def _table_description(config: PipelineConfig) -> str:
    name = f"{config.name}. " if config.name else ""
    return (
        f"{name}ClickHouse table `{'.'.join(config.sink.full_table)}`, filled exactly once by a Spark stream that runs "
        "outside Dagster. Materializing launches the stream, or checks the health of the one that runs."
    )
