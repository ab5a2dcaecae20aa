"""A pipeline's assets, built as one multi-asset, because one stream fills them all.

Materializing does not move data. It ensures that the stream runs with the current definition, and records its offsets,
counts and state as metadata. A health check materializes only what has new data, and records observations otherwise.
"""

from collections.abc import Iterator
from typing import NoReturn

import dagster as dg

from glassflow_dagster.control.launch import LaunchFailed
from glassflow_dagster.control.runners.runner import StreamRunner
from glassflow_dagster.control.status import StreamStatus
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.asset_keys import AssetKeys
from glassflow_dagster.orchestration.automation import AUTOMATED_TAG
from glassflow_dagster.orchestration.checks import check_specs, run_checks
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
    topics_metadata,
)
from glassflow_dagster.orchestration.options import PipelineOptions
from glassflow_dagster.orchestration.specs import PipelineAssets
from glassflow_dagster.orchestration.values import log_report
from glassflow_dagster.runtime.safe_text import code_block, printable, printable_values

# The tag in which Dagster stores an asset's data version; Dagster has no public constant for it.
DATA_VERSION_TAG = "dagster/data_version"


def build_assets(
    pipeline: PipelineConfig, assets: PipelineAssets, runner: StreamRunner, options: PipelineOptions
) -> dg.AssetsDefinition:
    """Build the pipeline's assets and their checks, which one op serves: it launches the stream, or checks its health.

    The checks are a part of the op, and run also where it materializes nothing.
    """
    keys = assets.keys

    @dg.multi_asset(
        name=f"{keys.name}__stream",
        description=options.op.description or f"Launches the stream of {pipeline.pipeline_id}, or checks its health.",
        specs=assets.specs,
        check_specs=check_specs(pipeline, keys, options.checks),
        can_subset=True,
        op_tags=options.op.tags,
        # With a limit of 1 (dagster.yaml), no two runs launch the same stream at once.
        pool=options.op.pool or f"stream_{keys.name}",
    )
    def stream(
        context: dg.AssetExecutionContext, config: StreamRunConfig
    ) -> Iterator[dg.MaterializeResult | dg.AssetCheckResult]:  # type: ignore[type-arg]
        for warning in pipeline.origin.rewriting_warnings:
            context.log.warning("%s: %s", pipeline.pipeline_id, printable(warning))
        failure: GlassflowError | None = None
        if context.selected_asset_keys:
            try:
                yield from _look_after(context, config, pipeline, keys, runner)
            except GlassflowError as error:
                failure = error
        yield from run_checks(
            pipeline, context.selected_asset_check_keys, runner, options.checks, log_report(context.log)
        )
        if failure:
            _fail(failure)

    return stream


def _look_after(
    context: dg.AssetExecutionContext,
    config: StreamRunConfig,
    pipeline: PipelineConfig,
    keys: AssetKeys,
    runner: StreamRunner,
) -> Iterator[dg.MaterializeResult]:  # type: ignore[type-arg]
    """Apply the run's mode to the stream, and yield the materializations of the selected assets.

    An automatic run does not start a stream that a user has stopped. Where there are no new data since the last
    materialization, it records observations instead, so that nothing downstream takes a health check for new data.
    Raises `GlassflowError` where the stream does not start.
    """
    is_automatic = AUTOMATED_TAG in context.run.tags
    if is_automatic:
        outcome = ensure_if_wanted(pipeline, runner, log_report(context.log))
    else:
        outcome = control(config.mode, pipeline, runner, log_report(context.log))
    if isinstance(outcome, StreamStatus):  # the stream is stopped on purpose
        _observe(context, keys, outcome)
        return
    status, action = outcome
    state = printable(f"{status.state.value} {status.message}".rstrip())
    context.log.info("%s: %s; %s", pipeline.pipeline_id, action.replace("_", " "), state)
    if status.heartbeat is None:
        _observe(context, keys, status)
        return
    health = examine(pipeline, status)
    current_version = data_version(health)
    for key, figures in _metadata(pipeline, keys, health, action).items():
        if key not in context.selected_asset_keys:
            continue
        metadata = printable_values(figures)
        last_version = _last_version(context, key)
        # None where offsets are not available: the data counts as unchanged.
        version = current_version or last_version
        if is_automatic and version is not None and version == last_version:
            context.log_event(dg.AssetObservation(key, metadata=metadata))
        else:
            yield dg.MaterializeResult(asset_key=key, metadata=metadata, data_version=version)


def _metadata(pipeline: PipelineConfig, keys: AssetKeys, health: Health, action: str) -> dict[dg.AssetKey, Metadata]:
    """Return each asset's metadata; the own table has also the stream's when the stream has no asset of its own."""
    metadata: dict[dg.AssetKey, Metadata] = {
        raw_key: topics_metadata(health, source.topic_names or tuple(health.topics))
        for raw_key, source in zip(keys.raw, pipeline.inputs, strict=True)
    }
    metadata |= {key: side_metadata(health, action) for key in keys.deduplicated if key}
    metadata[keys.stream] = joined_metadata(health, action) if keys.joined else stream_metadata(health, action)
    for index, (key, sink) in enumerate(zip(keys.tables, pipeline.sink.by_table, strict=True)):
        metadata[key] = {**metadata.get(key, {}), **table_metadata(health, sink.table_name, index)}
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
    context.log.info("%s: %s; not changed", status.pipeline_id, printable(status.message))
    metadata = observed_joined(status) if keys.joined else observed_stream(status)
    context.log_event(dg.AssetObservation(keys.stream, metadata=printable_values(metadata)))


def _fail(error: GlassflowError) -> NoReturn:
    """Fail the run with the error's text; for a failed launch with the path and end of the driver's log."""
    metadata: dict[str, dg.MetadataValue] = {}
    if isinstance(error, LaunchFailed):
        metadata = {"spark_log": dg.MetadataValue.path(error.log), "tail": dg.MetadataValue.md(code_block(error.tail))}
    raise dg.Failure(description=printable(str(error)), metadata=metadata) from None
