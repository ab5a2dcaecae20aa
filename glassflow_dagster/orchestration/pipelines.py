"""Builds a pipeline's Dagster definitions: assets, checks, jobs and sensors.

Plain functions, so that other Dagster projects can use them without the folder component.
"""

from collections.abc import Mapping
from pathlib import Path

import dagster as dg

from glassflow_dagster.config.folder import definition_files
from glassflow_dagster.config.load import LoadedDefinition, load_definition
from glassflow_dagster.config.problems import DefinitionError, Problem
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.asset_keys import build_asset_keys, identifier
from glassflow_dagster.orchestration.assets import build_assets
from glassflow_dagster.orchestration.automation import build_health_check_sensor, require_schedule
from glassflow_dagster.orchestration.checks import build_checks
from glassflow_dagster.orchestration.exact import build_reconciliation
from glassflow_dagster.orchestration.invalid_definitions import build_invalid_definitions
from glassflow_dagster.orchestration.sensors import build_observer


def build_pipeline_definitions(loaded: LoadedDefinition) -> dg.Definitions:
    """Build a pipeline's assets, checks, sensors and the job that compares every key; contacts no server.

    They need the resources `stream_runner`, `kafka`, `clickhouse` and `pyspark`. Raises `DefinitionError` for a
    schedule that Dagster cannot run.
    """
    config = loaded.config
    require_schedule(loaded.file, config)
    keys = build_asset_keys(config)
    return dg.Definitions(
        assets=[build_assets(loaded, keys)],
        asset_checks=[build_checks(config, keys)],
        jobs=[build_reconciliation(config, keys)],
        sensors=[build_observer(config, keys), build_health_check_sensor(keys)],
    )


def build_folder_definitions(folder: Path) -> dg.Definitions:
    """Build the definitions of every pipeline in a folder; an invalid file becomes an asset that fails with its errors.

    Files whose pipelines have the same name in Dagster are all invalid: loading one of them could redeploy a running
    stream with the definition of another pipeline.
    """
    valid: dict[Path, LoadedDefinition] = {}
    invalid: dict[Path, GlassflowError] = {}
    for file in definition_files(folder):
        try:
            loaded = load_definition(file)
            _require_name(loaded)
            valid[file] = loaded
        except GlassflowError as error:
            invalid[file] = error
    invalid |= _clashes({file: loaded.config.pipeline_id for file, loaded in valid.items()})
    definitions: list[dg.Definitions] = []
    for file, loaded in valid.items():
        try:
            if file not in invalid:
                definitions.append(build_pipeline_definitions(loaded))
        except GlassflowError as error:
            invalid[file] = error
        except dg.DagsterError as error:
            # For example a name that is valid in a definition but not in Dagster.
            text = f"Dagster rejects this definition: {' '.join(str(error).split())}; correct it"
            invalid[file] = DefinitionError(file, [Problem("", text)])
    return dg.Definitions.merge(*definitions, build_invalid_definitions(invalid))


def _require_name(loaded: LoadedDefinition) -> None:
    """Raise `DefinitionError` unless the file is named after its pipeline_id."""
    file, pipeline_id = loaded.file, loaded.config.pipeline_id
    if file.stem != pipeline_id:
        text = f"{pipeline_id!r} is not the file's name; rename the file to {pipeline_id}{file.suffix}"
        raise DefinitionError(file, [Problem("pipeline_id", text)])


def _clashes(pipeline_ids: Mapping[Path, str]) -> dict[Path, GlassflowError]:
    """Return an error for each file whose pipeline has the same Dagster name as that of another file."""
    files_by_name: dict[str, list[Path]] = {}
    for file, pipeline_id in pipeline_ids.items():
        files_by_name.setdefault(identifier(pipeline_id), []).append(file)
    errors: dict[Path, GlassflowError] = {}
    for files in files_by_name.values():
        for file in files if len(files) > 1 else ():
            pipeline = pipeline_ids[file]
            others = [other for other in files if other != file]
            if any(pipeline_ids[other] == pipeline for other in others):
                text = f"{pipeline!r} is also defined in {_listed(others)}; keep one of the files"
            else:
                text = f"{pipeline!r} has the same name in Dagster as the pipeline in {_listed(others)}; rename one"
            errors[file] = DefinitionError(file, [Problem("pipeline_id", text)])
    return errors


def _listed(files: list[Path]) -> str:
    return ", ".join(str(file) for file in files)
