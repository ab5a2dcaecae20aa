"""The asset specs of a pipeline: keys, lineage, column schemas, descriptions and URIs.

They follow from the definition alone; no server is contacted, so definitions load while Kafka and ClickHouse are down.
"""

import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg

from glassflow_dagster.definition.column_sources import column_sources
from glassflow_dagster.definition.model.durations import format_duration
from glassflow_dagster.definition.model.join import JoinConfig, JoinSide, OutputField
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import METADATA_FIELDS, Source
from glassflow_dagster.definition.model.transforms import DedupConfig
from glassflow_dagster.definition.nullable_names import joined_nulls
from glassflow_dagster.orchestration.asset_keys import AssetKeys, build_asset_keys
from glassflow_dagster.orchestration.automation import freshness_policy
from glassflow_dagster.orchestration.options import Node, NodeKind, PipelineOptions
from glassflow_dagster.orchestration.page_link import page_link
from glassflow_dagster.runtime.safe_text import code, markdown

MAX_TAG_LENGTH = 63  # characters, a limit of Dagster
_TAG = re.compile(rf"[A-Za-z0-9_.-]{{1,{MAX_TAG_LENGTH}}}")


@dataclass(frozen=True)
class PipelineAssets:
    """The assets of a pipeline: their keys, and their specs in the order of the data flow."""

    keys: AssetKeys
    specs: tuple[dg.AssetSpec, ...]


def build_pipeline_specs(config: PipelineConfig, options: PipelineOptions) -> PipelineAssets:
    """Build a pipeline's assets: raw topics, deduplicated and joined streams (if any), ClickHouse table.

    A translation may change the keys; the assets then depend on each other by the new ones.
    """
    keys = build_asset_keys(config, options.key_prefix, options.table_key_prefix)
    specs = dict(_specs(config, keys, options))
    if options.translation is None:
        return PipelineAssets(keys, tuple(specs.values()))
    translated = {spec.key: options.translation(spec, node) for node, spec in specs.items()}
    new_keys = {key: spec.key for key, spec in translated.items()}
    with_new_deps = (
        spec.replace_attributes(
            deps=[dep._replace(asset_key=new_keys.get(dep.asset_key, dep.asset_key)) for dep in spec.deps]
        )
        for spec in translated.values()
    )
    return PipelineAssets(keys.renamed(new_keys), tuple(with_new_deps))


def _specs(config: PipelineConfig, keys: AssetKeys, options: PipelineOptions) -> Iterator[tuple[Node, dg.AssetSpec]]:
    """Yield a pipeline's nodes with their specs, before translation, in the order of the data flow."""
    common: dict[str, Any] = {
        "group_name": options.group_name or keys.group,
        "owners": options.owners,
        "tags": {
            "glassflow/pipeline": keys.group[:MAX_TAG_LENGTH],
            **{f"glassflow/{tag}": "" for tag in _tags(config)},
            **options.tags,
        },
        # With it, Dagster marks the assets of a definition that was edited and whose stream is not yet redeployed.
        "code_version": config.digest[:12],
        # A health check without new data materializes nothing.
        "skippable": True,
    }
    reference = {**code_reference(config.origin.file), **page_link(config.pipeline_id)}
    for source, raw, deduplicated in zip(config.inputs, keys.raw, keys.deduplicated, strict=True):
        yield (
            _node("topic", config, source),
            dg.AssetSpec(
                raw,
                description=_topics_description(source),
                kinds={"kafka", *options.kinds},
                metadata={**_topic_metadata(config, source), **reference},
                **common,
            ),
        )
        dedup = config.dedup_of(source)
        if deduplicated and dedup:
            yield (
                _node("deduplicated", config, source),
                dg.AssetSpec(
                    deduplicated,
                    deps=[raw],
                    description=_deduplicated_description(dedup),
                    kinds={"spark", "streaming", *options.kinds},
                    metadata={
                        "dagster/column_schema": _event_schema(config, source),
                        "dagster/column_lineage": _copied_columns(raw, source),
                        **_dedup_metadata(dedup),
                        **reference,
                    },
                    **common,
                ),
            )
    if keys.joined and config.join:
        yield (
            _node("joined", config),
            dg.AssetSpec(
                keys.joined,
                deps=keys.sides,
                description=_joined_description(config, config.join),
                kinds={"spark", "streaming", *options.kinds},
                metadata={
                    "dagster/column_schema": _joined_schema(config, config.join),
                    "dagster/column_lineage": _joined_lineage(config, config.join, keys),
                    **_join_metadata(config.join),
                    **reference,
                },
                **common,
            ),
        )
    for of_table, table in zip(config.by_table, keys.tables, strict=True):
        # A table without a stream asset before it stands for the stream, too.
        kinds = {"spark", "clickhouse", "table"} if table == keys.stream else {"clickhouse", "table"}
        lineage = _table_lineage(of_table, keys)
        yield (
            _node("table", of_table),
            dg.AssetSpec(
                table,
                deps=[keys.joined] if keys.joined else keys.sides,
                description=_table_description(config, of_table),
                kinds={*kinds, *options.kinds},
                metadata={**_table_metadata(of_table), "dagster/column_lineage": lineage, **reference},
                # A route may rightly take no event for long.
                freshness_policy=freshness_policy(config) if table == keys.table else None,
                **common,
            ),
        )


def _node(kind: NodeKind, config: PipelineConfig, source: Source | None = None) -> Node:
    """Return what a translation learns of an asset. source: of a topic and a deduplicated stream."""
    database, table = config.sink.full_table
    return Node(
        kind=kind,
        pipeline_id=config.pipeline_id,
        topic=_topics_text(source) if source else None,
        source_id=source.source_id if source else None,
        database=database,
        table=table,
    )


def _copied_columns(upstream: dg.AssetKey, source: Source) -> dg.TableColumnLineage:
    """Return the lineage of events that have the same fields as those of the asset before."""
    names = [field.name for field in source.schema_fields]
    return dg.TableColumnLineage({name: [dg.TableColumnDep(upstream, name)] for name in names})


def _joined_lineage(config: PipelineConfig, join: JoinConfig, keys: AssetKeys) -> dg.TableColumnLineage:
    """Return the lineage of a joined event's fields: each is a copy of a field of one input."""
    inputs = {source.source_id: key for source, key in zip(config.inputs, keys.sides, strict=True)}
    return dg.TableColumnLineage(
        {
            output.joined_name: [dg.TableColumnDep(inputs[output.source_id], output.name)]
            for output in join.output_fields
            # Metadata, such as the offset, is no column of the input.
            if output.name not in METADATA_FIELDS
        }
    )


def _table_lineage(config: PipelineConfig, keys: AssetKeys) -> dg.TableColumnLineage:
    """Return the lineage of the table's columns: the event's fields that mapping and transforms read for them."""
    upstream = keys.joined or keys.sides[0]
    return dg.TableColumnLineage(
        {
            column: [dg.TableColumnDep(upstream, name) for name in sorted(names)]
            for column, names in column_sources(config).items()
            if names
        }
    )


def _tags(config: PipelineConfig) -> list[str]:
    """Return the definition's labels that are valid as Dagster tags."""
    return [tag for tag in config.metadata.tags if _TAG.fullmatch(tag)]


def code_reference(definition: Path | None) -> dict[str, Any]:
    """Return the metadata that links an asset's page in Dagster to its definition file, if it has one."""
    if definition is None:
        return {}
    with warnings.catch_warnings():
        # Beta in Dagster 1.13; only the link on the asset's page depends on it.
        warnings.simplefilter("ignore", dg.BetaWarning)
        reference = dg.LocalFileCodeReference(file_path=str(definition.resolve()), label="pipeline definition")
        return {"dagster/code_references": dg.CodeReferencesMetadataValue(code_references=[reference])}


def _topic_metadata(config: PipelineConfig, source: Source) -> dict[str, Any]:
    """Return the static metadata of a raw topic: columns, URI and name."""
    return {
        "dagster/column_schema": _event_schema(config, source),
        "dagster/uri": f"kafka://{','.join(source.connection_params.brokers)}/{_topics_text(source)}",
        "dagster/table_name": _topics_text(source),
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
    keys_with_field = ["the deduplication key"] if dedup and field in dedup.key_fields else []
    join_side = (
        next((one_side for one_side in config.join.sides if one_side.source_id == source.source_id), None)
        if config.join
        else None
    )
    if join_side and field in join_side.key_fields:
        keys_with_field.append("the join key")
    roles = [f"part of {' and of '.join(keys_with_field)}"] if keys_with_field else []
    if join_side and field == join_side.event_time:
        roles.append("event time of the join")
    return "; ".join(roles) or None


def _joined_schema(config: PipelineConfig, join: JoinConfig) -> dg.TableSchema:
    """Return the columns of the joined stream, with the source that each one comes from."""
    sources = {source.source_id: source for source in config.inputs}
    nullable_names = joined_nulls(config, join)

    def column(output: OutputField) -> dg.TableColumn:
        source = sources[output.source_id]
        types = {**METADATA_FIELDS, **{field.name: field.type for field in source.schema_fields}}
        return dg.TableColumn(
            output.joined_name,
            types[output.name],
            description=f"{output.name} of {source.source_id} (topic {', '.join(source.topic_names)})",
            constraints=dg.TableColumnConstraints(nullable=output.joined_name in nullable_names),
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
    unmapped = [
        dg.TableColumn(column.name, column.type, description=f"default {column.default}" if column.default else None)
        for column in created
    ]
    return dg.TableSchema(columns=[*mapped, *unmapped])


def _topics_text(source: Source) -> str:
    """Return the topics with commas between them, or the pattern."""
    return source.topic_pattern or ",".join(source.topic_names)


def _topics_description(source: Source) -> str:
    if source.topic:
        return f"Kafka topic {code(source.topic)}, as its producers wrote it."
    if source.topic_pattern:
        return f"Kafka topics whose names match {code(source.topic_pattern)}, as their producers wrote them."
    return f"Kafka topics {', '.join(map(code, source.topics))}, as their producers wrote them."


def _deduplicated_description(dedup: DedupConfig) -> str:
    """Describe in the asset's text which events stay: the key, the window and the clock of the deduplication."""
    key, window = ", ".join(dedup.key_fields), format_duration(dedup.time_window)
    clock = f" of {code(dedup.event_time)}" if dedup.event_time else ""
    return f"The first event of each {code(key)} within {window}{clock}; later ones count as duplicates."


def _joined_description(config: PipelineConfig, join: JoinConfig) -> str:
    """Describe in the asset's text which events a join matches: keys, windows, clock, and events without a match."""
    left, right = join.sides
    topics = {source.source_id: ", ".join(map(code, source.topic_names)) for source in config.inputs}
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
        f"Each event of {topics[left.source_id]} (left) with the event of {topics[right.source_id]} (right) of "
        f"the same key ({_keys(left)} = {_keys(right)}): {match}, {_clock(join)}. A left event without a match "
        f"{unmatched}, and counts as unmatched."
    )


def _keys(side: JoinSide) -> str:
    return ", ".join(map(code, side.key_fields))


def _clock(join: JoinConfig) -> str:
    """Return the part of a join's description that names its clock."""
    if join.clock == "processing":
        return "by the time at which they are read"
    left, right = join.sides
    return (
        f"by the times in {code(left.event_time or '')} and {code(right.event_time or '')}, of which one may be "
        f"{format_duration(join.lateness)} late"
    )


def _table_description(config: PipelineConfig, of_table: PipelineConfig) -> str:
    """Describe one of the sink's tables in the asset's text, with the pipeline's name, if it has one.

    of_table: one of `config.by_table`.
    """
    name = f"{markdown(config.name)}. " if config.name else ""
    events = " with all other events" if len(config.by_table) > 1 else ""
    if of_table.sink.filter:
        events = f" with the events for which {code(of_table.sink.filter)}"
    own, table = config.sink.table_name, of_table.sink.table_name
    checked = "" if table == own else f" The checks of the asset of {code(own)} cover this table, too."
    return (
        f"{name}ClickHouse table {code(table)}, filled exactly once{events} by a Spark stream that runs outside "
        f"Dagster. Materializing launches the stream, or checks the health of the one that runs.{checked}"
    )
