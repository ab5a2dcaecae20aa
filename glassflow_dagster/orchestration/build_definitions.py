"""Builds the Dagster definitions of pipelines: assets, checks, jobs and sensors.

Plain functions, so that other Dagster projects can use them without the component. Nothing they build needs a resource
of the code location, and all their names begin with that of the pipeline or of the component.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import dagster as dg

from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.control.runners.runner import StreamRunner
from glassflow_dagster.control.state_folder import state_folder
from glassflow_dagster.definition.folder import definition_files
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.problems import DefinitionError, Problem
from glassflow_dagster.definition.shared_tables import Writer, sharing_problems
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.alerts.alert import AlertChannel
from glassflow_dagster.orchestration.alerts.sensors import build_alert_sensors
from glassflow_dagster.orchestration.alerts.webhook import EnvironmentWebhook
from glassflow_dagster.orchestration.asset_keys import AssetKeys, identifier
from glassflow_dagster.orchestration.assets import build_assets
from glassflow_dagster.orchestration.automation import schedule_problem
from glassflow_dagster.orchestration.exact import build_exact_job
from glassflow_dagster.orchestration.exact import job_name as exact_job_name
from glassflow_dagster.orchestration.health_checks import Scheduled, build_health_check_job, build_health_check_sensor
from glassflow_dagster.orchestration.health_checks import job_name as health_check_job_name
from glassflow_dagster.orchestration.invalid_definitions import build_invalid_definitions
from glassflow_dagster.orchestration.observer import Observed, build_observer
from glassflow_dagster.orchestration.options import Automation, PipelineOptions
from glassflow_dagster.orchestration.specs import build_pipeline_specs

# The name of the sensors and jobs where there is one component, or none.
DEFAULT_NAME = "glassflow"


@dataclass(frozen=True)
class Orchestration:
    """How Dagster runs and shows pipelines.

    name: begins the names of sensors and jobs.
    runner: starts and monitors the streams.
    spark_config: of the job that compares every key.
    alerts: where they are sent, besides Dagster's log.
    """

    name: str = DEFAULT_NAME
    runner: StreamRunner = field(default_factory=lambda: LocalRunner(state_folder()))
    options: PipelineOptions = field(default_factory=PipelineOptions)
    automation: Automation = field(default_factory=Automation)
    alerts: Sequence[AlertChannel] = field(default_factory=lambda: (EnvironmentWebhook(),))
    spark_config: Mapping[str, str] = field(default_factory=dict)


def build_pipeline_assets(
    pipeline: PipelineConfig, options: PipelineOptions | None = None, runner: StreamRunner | None = None
) -> dg.AssetsDefinition:
    """Build a pipeline's assets and asset checks, without sensors; contacts no server.

    Materializing them launches the stream, or checks the one that runs. runner: by default drivers run on this host,
    with their state in GLASSFLOW_STATE, else `.glassflow/state`.
    """
    options = options or PipelineOptions()
    assets = build_pipeline_specs(pipeline, options)
    return build_assets(pipeline, assets, runner or LocalRunner(state_folder()), options)


def build_pipeline_definitions(
    pipelines: PipelineConfig | Iterable[PipelineConfig], orchestration: Orchestration | None = None
) -> dg.Definitions:
    """Build the assets, checks, sensors and jobs of pipelines; contacts no server.

    The sensors check the streams' health on the definitions' schedules, restart failed ones, and send alerts. Raises
    `DefinitionError` for a schedule that Dagster cannot run, for pipelines that write to one table without saying so,
    and for assets of one key; and `GlassflowError` for two pipelines of one name.
    """
    how = orchestration or Orchestration()
    built: list[_Built] = []
    ids_by_name: dict[str, str] = {}
    configs = (pipelines,) if isinstance(pipelines, PipelineConfig) else tuple(pipelines)
    writers = [Writer.of(config) for config in configs]
    for config in configs:
        if found := sharing_problems(Writer.of(config), writers):
            raise DefinitionError(config.origin.file, found)
        name = identifier(config.pipeline_id)
        if name in ids_by_name:
            text = f"{config.pipeline_id!r} has the same name in Dagster as {ids_by_name[name]!r}; rename one"
            raise GlassflowError(text)
        ids_by_name[name] = config.pipeline_id
        built.append(_build_pipeline(config, how))
    for error in filter(None, _key_clashes(built)):
        raise error
    return _with_sensors(built, how)


def build_folder_definitions(
    folder: Path, orchestration: Orchestration | None = None, environment: Mapping[str, str] = os.environ
) -> dg.Definitions:
    """Build the definitions of every pipeline in a folder; an invalid file becomes an asset that fails with its errors.

    Files whose pipelines have the same name in Dagster are all invalid: loading one of them could redeploy a running
    stream with the definition of another pipeline. So are those that write to one table, unless all say that they share
    it: the checks would take the rows of one for faults of the other.

    environment: the variables that the definitions' references name, and those that replace servers.
    """
    how = orchestration or Orchestration()
    valid: dict[Path, PipelineConfig] = {}
    invalid: dict[Path, GlassflowError] = {}
    for file in definition_files(folder):
        try:
            config = load_pipeline(file, environment)
            _require_file_name(file, config)
            valid[file] = config
        except GlassflowError as error:
            invalid[file] = error
    invalid |= _errors(valid, _clashes({file: config.pipeline_id for file, config in valid.items()}), _unshared(valid))
    built: list[_Built] = []
    for file, config in valid.items():
        if file in invalid:
            continue
        try:
            built.append(_build_pipeline(config, how))
        except GlassflowError as error:
            invalid[file] = error
        except dg.DagsterError as error:
            # For example a name that is valid in a definition but not in Dagster.
            text = f"Dagster rejects this definition: {' '.join(str(error).split())}; correct it"
            invalid[file] = DefinitionError(file, [Problem("", text)])
    # The files of what was built, in its order.
    files = [file for file in valid if file not in invalid]
    clashing = _key_clashes(built)
    invalid |= {file: error for file, error in zip(files, clashing, strict=True) if error}
    built = [one for one, error in zip(built, clashing, strict=True) if error is None]
    failing = build_invalid_definitions(how.name, invalid, how.options.key_prefix, how.automation.default_status)
    return dg.Definitions.merge(_with_sensors(built, how, failing.assets), failing.definitions)


@dataclass(frozen=True)
class _Built:
    """A pipeline with its assets for Dagster."""

    config: PipelineConfig
    keys: AssetKeys
    assets: dg.AssetsDefinition


def _build_pipeline(config: PipelineConfig, how: Orchestration) -> _Built:
    """Build a pipeline's assets; raises `DefinitionError` for a schedule that Dagster cannot run."""
    # A schedule for all pipelines, which was checked already, replaces those of the definitions.
    if how.automation.every is None and (problem := schedule_problem(config.checks.every, "checks.every")):
        raise DefinitionError(config.origin.file, [problem])
    assets = build_pipeline_specs(config, how.options)
    return _Built(config, assets.keys, build_assets(config, assets, how.runner, how.options))


def _with_sensors(built: Sequence[_Built], how: Orchestration, failing: Sequence[dg.AssetKey] = ()) -> dg.Definitions:
    """Return the definitions of pipelines with the sensors and jobs that they share.

    failing: the assets of invalid definitions, whose failed runs are reported, too.
    """
    keys = [one.keys for one in built]
    assets = [*failing, *(key for one in keys for key in one.assets)]
    jobs: list[dg.JobDefinition] = []
    sensors: list[dg.SensorDefinition] = []
    status = how.automation.default_status
    if built:
        job = build_health_check_job(how.name, keys)
        jobs = [job, build_exact_job(how.name, [one.config for one in built], how.spark_config)]
        observed = [Observed(one.config, one.keys) for one in built]
        sensors.append(build_observer(how.name, job, observed, how.runner, status, restarts=how.automation.restarts))
        if how.automation.health_checks:
            scheduled = [
                Scheduled(one.config, one.keys, how.automation.every or one.config.checks.every) for one in built
            ]
            sensors.append(build_health_check_sensor(how.name, job, scheduled, how.runner, status))
    if assets:
        own_jobs = {health_check_job_name(how.name), exact_job_name(how.name)}
        sensors += build_alert_sensors(how.name, assets, own_jobs, how.alerts, status)
    return dg.Definitions(assets=[one.assets for one in built], jobs=jobs, sensors=sensors)


def _require_file_name(file: Path, config: PipelineConfig) -> None:
    """Raise `DefinitionError` unless the file is named after its pipeline_id."""
    if file.stem != config.pipeline_id:
        text = f"{config.pipeline_id!r} is not the file's name; rename the file to {config.pipeline_id}{file.suffix}"
        raise DefinitionError(file, [Problem("pipeline_id", text)])


def _errors(files: Iterable[Path], *found: Mapping[Path, list[Problem]]) -> dict[Path, GlassflowError]:
    """Return an error for each file with problems, with all of them. found: file -> problems of one kind."""
    by_file = {file: [problem for problems in found for problem in problems.get(file, ())] for file in files}
    return {file: DefinitionError(file, problems) for file, problems in by_file.items() if problems}


def _unshared(configs: Mapping[Path, PipelineConfig]) -> dict[Path, list[Problem]]:
    """Return a problem for each table that another file writes to, too, unless all of them say so: file -> problems."""
    writers = [Writer.of(config) for config in configs.values()]
    return {file: sharing_problems(Writer.of(config), writers) for file, config in configs.items()}


def _key_clashes(built: Sequence[_Built]) -> list[DefinitionError | None]:
    """Return an error for each pipeline with an asset of another one's key, which Dagster cannot load; None for others.

    With `table_key_prefix`, or a translation, tables that two pipelines share have one key, as may others.
    """
    owners: dict[dg.AssetKey, list[str]] = {}
    for one in built:
        for key in one.keys.assets:
            owners.setdefault(key, []).append(one.config.pipeline_id)
    errors: list[DefinitionError | None] = []
    for one in built:
        problems = []
        for key in one.keys.assets:
            others = " and ".join(repr(other) for other in owners[key] if other != one.config.pipeline_id)
            if others:
                text = f"asset {key.to_user_string()} is one of pipeline {others}, too; leave out table_key_prefix, or "
                problems.append(Problem("", f"{text}give it another key by a translation"))
        errors.append(DefinitionError(one.config.origin.file, problems) if problems else None)
    return errors


def _clashes(pipeline_ids: Mapping[Path, str]) -> dict[Path, list[Problem]]:
    """Return a problem for each file whose pipeline has the same Dagster name as that of another file."""
    files_by_name: dict[str, list[Path]] = {}
    for file, pipeline_id in pipeline_ids.items():
        files_by_name.setdefault(identifier(pipeline_id), []).append(file)
    problems_by_file: dict[Path, list[Problem]] = {}
    for files in files_by_name.values():
        for file in files if len(files) > 1 else ():
            pipeline = pipeline_ids[file]
            other_files = [other_file for other_file in files if other_file != file]
            if any(pipeline_ids[other_file] == pipeline for other_file in other_files):
                text = f"{pipeline!r} is also defined in {_listed(other_files)}; keep one of the files"
            else:
                text = (
                    f"{pipeline!r} has the same name in Dagster as the pipeline in {_listed(other_files)}; rename one"
                )
            problems_by_file[file] = [Problem("pipeline_id", text)]
    return problems_by_file


def _listed(files: list[Path]) -> str:
    return ", ".join(str(file) for file in files)
