"""From a definition to all that Dagster has of it: assets, checks, sensors.

A plain function, so that one's own Dagster project can use it without the folder component.
"""

from pathlib import Path

import dagster as dg

from glassflow_dagster.config.load import DefinitionError, definition_files, load_pipeline
from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.config.problems import Problem
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.assets import build_assets
from glassflow_dagster.orchestration.automation import build_health_check_sensor, require_schedule
from glassflow_dagster.orchestration.checks import build_checks
from glassflow_dagster.orchestration.naming import identifier, names
from glassflow_dagster.orchestration.sensors import build_observer


def build_pipeline_definitions(definition: Path, config: PipelineConfig) -> dg.Definitions:
    """Build a pipeline's assets, checks and sensors; no server is asked.

    They need the resources `stream_runner`, `kafka` and `clickhouse`. Raises `DefinitionError` for a schedule that
    Dagster cannot run.
    """
    require_schedule(definition, config)
    named = names(config)
    return dg.Definitions(
        assets=[build_assets(definition, config, named)],
        asset_checks=[build_checks(config, named)],
        sensors=[build_observer(config, named), build_health_check_sensor(named)],
    )


def build_folder_definitions(folder: Path) -> dg.Definitions:
    """Build the definitions of every pipeline in a folder.

    One wrong file fails the load, with every mistake of every file: a pipeline that silently went missing would be
    found out much later. Streams that run are not touched by it, and a location that was loaded before stays as it is.
    """
    found: list[dg.Definitions] = []
    problems: list[str] = []
    seen: dict[str, Path] = {}
    for file in definition_files(folder):
        try:
            config = load_pipeline(file)
            _require_name(file, config, seen)
            found.append(build_pipeline_definitions(file, config))
        except GlassflowError as error:
            problems.append(str(error))
    if problems:
        raise GlassflowError("\n".join(problems))
    return dg.Definitions.merge(*found)


def _require_name(file: Path, config: PipelineConfig, seen: dict[str, Path]) -> None:
    """Refuse a pipeline that people or Dagster would take for another one."""
    if file.stem != config.pipeline_id:
        text = f"{config.pipeline_id!r} is not the file's name; rename the file to {config.pipeline_id}{file.suffix}"
        raise DefinitionError(file, [Problem("pipeline_id", text)])
    other = seen.setdefault(identifier(config.pipeline_id), file)
    if other != file:
        text = f"{config.pipeline_id!r} has the same name in Dagster as the pipeline in {other}; choose another one"
        raise DefinitionError(file, [Problem("pipeline_id", text)])
