"""A pipeline's assets, built as one multi-asset, because one stream fills them all.

Materializing does not move data. It ensures that the stream runs with the current definition, and records its offsets,
counts and state as metadata. For a stopped stream, a scheduled run records an observation and no materialization.
"""

from collections.abc import Iterator
from typing import NoReturn

import dagster as dg

from glassflow_dagster.config.load import LoadedDefinition
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

# The tag in which Dagster stores an asset's data version; Dagster has no public constant for it.
DATA_VERSION_TAG = "dagster/data_version"


def build_assets(loaded: LoadedDefinition, keys: AssetKeys) -> dg.AssetsDefinition:
    """Build the pipeline's assets. Their run needs the resources `stream_runner`, `kafka` and `clickhouse`."""
    definition, pipeline = loaded.file, loaded.config

    @dg.multi_asset(
        name=f"{keys.pipeline}__stream",
        description=f"Launches the stream of {pipeline.pipeline_id}, or checks its health.",
        specs=list(asset_specs(definition, pipeline, keys)),
        can_subset=True,
        # With a limit of 1 (dagster.yaml), no two runs launch the same stream at once.
        pool=f"stream_{keys.pipeline}",
    )
    def stream(
        context: dg.AssetExecutionContext,
        config: StreamRunConfig,
        stream_runner: StreamRunner,
        kafka: KafkaResource,
        clickhouse: ClickHouseResource,
    ) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]
        for warning in loaded.rewriting_warnings:
            context.log.warning("%s: %s", definition, warning)
        try:
            if AUTOMATED_TAG in context.run.tags:
                outcome = ensure_if_wanted(definition, pipeline, stream_runner, context.log.info)
            else:
                outcome = control(config.mode, definition, pipeline, stream_runner, context.log.info)
        except GlassflowError as error:
            _fail(error)
        if isinstance(outcome, StreamStatus):  # the stream is stopped on purpose
            _observe(context, keys, outcome)
            return
        status, action = outcome
        state = f"{status.state.value} {status.message}".rstrip()
        context.log.info("%s: %s; %s", pipeline.pipeline_id, action.replace("_", " "), state)
        if status.heartbeat is None:
            _observe(context, keys, status)
            return
        health = examine(pipeline, status, kafka, clickhouse)
        version = data_version(health)
        for key, metadata in _metadata(pipeline, keys, health, action).items():
            if key in context.selected_asset_keys:
                data = version or _last_version(context, key)
                yield dg.MaterializeResult(asset_key=key, metadata=metadata, data_version=data)

    return stream


def _metadata(pipeline: PipelineConfig, keys: AssetKeys, health: Health, action: str) -> dict[dg.AssetKey, Metadata]:
    """Return each asset's metadata; the table has also the stream's when the stream has no asset of its own."""
    metadata: dict[dg.AssetKey, Metadata] = {
        raw: topic_metadata(health, source.topic) for raw, source in zip(keys.raw, pipeline.inputs, strict=True)
    }
    metadata |= {key: side_metadata(health, action) for key in keys.deduplicated if key}
    metadata[keys.stream] = joined_metadata(health, action) if keys.joined else stream_metadata(health, action)
    metadata[keys.table] = {**metadata.get(keys.table, {}), **table_metadata(health)}
    return metadata


def _last_version(context: dg.AssetExecutionContext, key: dg.AssetKey) -> dg.DataVersion | None:
    """Return the data version of an asset's last materialization; used when the current offsets are not available."""
    event = context.instance.get_latest_materialization_event(key)
    materialization = event.asset_materialization if event else None
    tags = materialization.tags if materialization else None
    version = (tags or {}).get(DATA_VERSION_TAG)
    return dg.DataVersion(version) if version else None


def _observe(context: dg.AssetExecutionContext, keys: AssetKeys, status: StreamStatus) -> None:
    """Record the stream's state as an observation of its asset, without a materialization."""
    context.log.info("%s: %s; not changed", status.pipeline_id, status.message)
    metadata = observed_joined(status) if keys.joined else observed_stream(status)
    context.log_event(dg.AssetObservation(keys.stream, metadata=metadata))


def _fail(error: GlassflowError) -> NoReturn:
    """Fail the run with the error's text; for a failed launch with the path and end of the driver's log."""
    metadata: dict[str, dg.MetadataValue] = {}
    if isinstance(error, LaunchFailed):
        metadata = {
            "spark_log": dg.MetadataValue.path(error.log),
            "tail": dg.MetadataValue.md(f"```\n{error.tail}\n```"),
        }
    raise dg.Failure(description=str(error), metadata=metadata) from None
