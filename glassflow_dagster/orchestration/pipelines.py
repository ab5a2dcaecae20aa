"""From a definition to all that Dagster has of it: assets, checks, sensors.

A plain function, so that one's own Dagster project can use it without the folder component.
"""

from pathlib import Path

import dagster as dg

from glassflow_dagster.config.folder import definition_files
from glassflow_dagster.config.load import load_pipeline
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.problems import DefinitionError, Problem
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.asset_keys import identifier, names
from glassflow_dagster.orchestration.assets import build_assets
from glassflow_dagster.orchestration.automation import build_health_check_sensor, require_schedule
from glassflow_dagster.orchestration.checks import build_checks
from glassflow_dagster.orchestration.exact import build_reconciliation
from glassflow_dagster.orchestration.invalid_definitions import build_broken_definitions
from glassflow_dagster.orchestration.sensors import build_observer


def build_pipeline_definitions(definition: Path, config: PipelineConfig) -> dg.Definitions:
    """Build a pipeline's assets, checks, sensors and the job that compares every key; no server is asked.

    They need the resources `stream_runner`, `kafka`, `clickhouse` and `pyspark`. Raises `DefinitionError` for a
    schedule that Dagster cannot run.
    """
    require_schedule(definition, config)
    named = names(config)
    return dg.Definitions(
        assets=[build_assets(definition, config, named)],
        asset_checks=[build_checks(config, named)],
        jobs=[build_reconciliation(config, named)],
        sensors=[build_observer(config, named), build_health_check_sensor(named)],
    )


def build_folder_definitions(folder: Path) -> dg.Definitions:
    """Build the definitions of every pipeline in a folder; a file with mistakes becomes one asset that fails with them.

    Files whose pipelines have the same name in Dagster are all refused: to take one of them could redeploy a running
    stream by a definition that was not meant for it.
    """
    configs: dict[Path, PipelineConfig] = {}
    broken: dict[Path, GlassflowError] = {}
    for file in definition_files(folder):
        try:
            configs[file] = load_pipeline(file)
            _require_name(file, configs[file])
        except GlassflowError as error:
            configs.pop(file, None)
            broken[file] = error
    broken |= _clashes(configs)
    found: list[dg.Definitions] = []
    for file, config in configs.items():
        try:
            if file not in broken:
                found.append(build_pipeline_definitions(file, config))
        except GlassflowError as error:
            broken[file] = error
        except dg.DagsterError as error:
            # A name, say, that a definition may have and Dagster does not take.
            text = f"Dagster does not take this definition: {' '.join(str(error).split())}; correct it"
            broken[file] = DefinitionError(file, [Problem("", text)])
    return dg.Definitions.merge(*found, build_broken_definitions(broken))


def _require_name(file: Path, config: PipelineConfig) -> None:
    """Refuse a pipeline that people would take for another one."""
    if file.stem != config.pipeline_id:
        text = f"{config.pipeline_id!r} is not the file's name; rename the file to {config.pipeline_id}{file.suffix}"
        raise DefinitionError(file, [Problem("pipeline_id", text)])


def _clashes(configs: dict[Path, PipelineConfig]) -> dict[Path, GlassflowError]:
    """Find the pipelines that Dagster would take for one another."""
    same: dict[str, list[Path]] = {}
    for file, config in configs.items():
        same.setdefault(identifier(config.pipeline_id), []).append(file)
    refused: dict[Path, GlassflowError] = {}
    for files in same.values():
        for file in files if len(files) > 1 else ():
            pipeline = configs[file].pipeline_id
            others = [other for other in files if other != file]
            if any(configs[other].pipeline_id == pipeline for other in others):
                text = f"{pipeline!r} is also defined in {_listed(others)}; keep one of the files"
            else:
                text = f"{pipeline!r} has the same name in Dagster as the pipeline in {_listed(others)}; rename one"
            refused[file] = DefinitionError(file, [Problem("pipeline_id", text)])
    return refused


def _listed(files: list[Path]) -> str:
    return ", ".join(str(file) for file in files)
