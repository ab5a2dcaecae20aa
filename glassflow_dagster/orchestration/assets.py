"""A pipeline's assets as one step: one stream fills them all, so one run looks after all of them.

Materializing does not move data. It sees to it that the stream runs by the definition as it is now, and records how
far it is. Nothing is materialized for a stream that is not meant to run: observations say so.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import dagster as dg

from glassflow_dagster.config.load import rewriting_warnings
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.driver.process import LaunchFailed, StreamStatus
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.asset_keys import AssetKeys
from glassflow_dagster.orchestration.automation import AUTOMATED_TAG
from glassflow_dagster.orchestration.control import StreamRunConfig, control, ensure_if_wanted
from glassflow_dagster.orchestration.health import Health, examine
from glassflow_dagster.orchestration.metadata import (
    Metadata,
    data_version,
    joined_metadata,
    observed_joined,
    observed_stream,
    side_metadata,
    stream_metadata,
    table_metadata,
    topic_metadata,
)
from glassflow_dagster.orchestration.specs import asset_specs
from glassflow_dagster.resources.clickhouse import ClickHouseResource
from glassflow_dagster.resources.kafka import KafkaResource
from glassflow_dagster.resources.stream_runner import StreamRunner

# Where Dagster keeps an asset's data version; it has no public name.
DATA_VERSION_TAG = "dagster/data_version"


def build_assets(definition: Path, pipeline: PipelineConfig, names: AssetKeys) -> dg.AssetsDefinition:
    """Build the pipeline's assets. The run needs the resources `stream_runner`, `kafka` and `clickhouse`."""
    noted = rewriting_warnings(definition)

    @dg.multi_asset(
        name=f"{names.pipeline}__stream",
        description=f"Launches the stream of {pipeline.pipeline_id}, or checks its health.",
        specs=list(asset_specs(definition, pipeline, names)),
        can_subset=True,
        # With a limit of 1 (dagster.yaml), no two runs launch the same stream at once.
        pool=f"stream_{names.pipeline}",
    )
    def stream(
        context: dg.AssetExecutionContext,
        config: StreamRunConfig,
        stream_runner: StreamRunner,
        kafka: KafkaResource,
        clickhouse: ClickHouseResource,
    ) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]
        for warning in noted:
            context.log.warning("%s: %s", definition, warning)
        try:
            if AUTOMATED_TAG in context.run.tags:
                tended = ensure_if_wanted(definition, pipeline, stream_runner, context.log.info)
            else:
                tended = control(config.mode, definition, pipeline, stream_runner, context.log.info)
        except GlassflowError as error:
            _fail(error)
        if isinstance(tended, StreamStatus):
            _observe(context, names, tended)
            return
        status, done = tended
        said = f"{status.state.value} {status.message}".rstrip()
        context.log.info("%s: %s; %s", pipeline.pipeline_id, done.replace("_", " "), said)
        if status.heartbeat is None:
            _observe(context, names, status)
            return
        health = examine(pipeline, status, kafka, clickhouse)
        version = data_version(health)
        for key, metadata in _figures(pipeline, names, health, done).items():
            if key in context.selected_asset_keys:
                known = version or _known_version(context, key)
                yield dg.MaterializeResult(asset_key=key, metadata=metadata, data_version=known)

    return stream


def _figures(pipeline: PipelineConfig, names: AssetKeys, health: Health, done: str) -> dict[dg.AssetKey, Metadata]:
    """Give each asset's figures; without a node of its own, the stream's are the table's."""
    figures: dict[dg.AssetKey, Metadata] = {
        raw: topic_metadata(health, source.topic) for raw, source in zip(names.raw, pipeline.inputs, strict=True)
    }
    figures |= {key: side_metadata(health, done) for key in names.deduplicated if key}
    figures[names.stream] = joined_metadata(health, done) if names.joined else stream_metadata(health, done)
    figures[names.table] = {**figures.get(names.table, {}), **table_metadata(health)}
    return figures


def _known_version(context: dg.AssetExecutionContext, key: dg.AssetKey) -> dg.DataVersion | None:
    """Give an asset's last data version: not to know the offsets does not make the data new."""
    event = context.instance.get_latest_materialization_event(key)
    materialization = event.asset_materialization if event else None
    tags = materialization.tags if materialization else None
    known = (tags or {}).get(DATA_VERSION_TAG)
    return dg.DataVersion(known) if known else None


def _observe(context: dg.AssetExecutionContext, names: AssetKeys, status: StreamStatus) -> None:
    """Record that the stream does not run and is not meant to; its assets are as they were."""
    context.log.info("%s: %s; it is left so", status.pipeline_id, status.message)
    figures = observed_joined(status) if names.joined else observed_stream(status)
    context.log_event(dg.AssetObservation(names.stream, metadata=figures))


def _fail(error: GlassflowError) -> NoReturn:
    metadata: dict[str, dg.MetadataValue] = {}
    if isinstance(error, LaunchFailed):
        metadata = {
            "spark_log": dg.MetadataValue.path(error.log),
            "tail": dg.MetadataValue.md(f"```\n{error.tail}\n```"),
        }
    raise dg.Failure(description=str(error), metadata=metadata) from None
