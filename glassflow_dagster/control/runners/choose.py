"""Chooses the runner: by settings for a start, and by what a pipeline's folder says for one that was started."""

from pathlib import Path

from glassflow_dagster.control.deployment import DriverOptions
from glassflow_dagster.control.heartbeat import is_alive, pipeline_folder
from glassflow_dagster.control.runners.kubernetes.runner import NOTE as KUBERNETES_NOTE
from glassflow_dagster.control.runners.kubernetes.runner import KubernetesRunner, read_settings
from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.control.runners.remote import RemoteRunner
from glassflow_dagster.control.runners.runner import StreamRunner
from glassflow_dagster.control.runners.settings import KubernetesSettings, LocalSettings, RunnerSettings
from glassflow_dagster.control.runners.spark_submit import SparkSubmitRunner
from glassflow_dagster.control.runners.standalone import NOTE as STANDALONE_NOTE
from glassflow_dagster.control.runners.standalone import StandaloneRunner
from glassflow_dagster.control.status import stream_status


def build_runner(settings: RunnerSettings, options: DriverOptions) -> StreamRunner:
    """Return the runner of these settings, which starts drivers with these options."""
    how = vars(options)
    if isinstance(settings, LocalSettings):
        return LocalRunner(**how)
    if isinstance(settings, KubernetesSettings):
        return KubernetesRunner(**how, settings=settings)
    if settings.deploy_mode == "cluster":
        return StandaloneRunner(**how, settings=settings)
    return SparkSubmitRunner(**how, settings=settings)


def remote_runner_of(state: Path, pipeline_id: str) -> RemoteRunner | None:
    """Return the runner whose system has the pipeline's driver; None where this host has it, or none was launched.

    state: the local folder. A driver on this host comes first; in client mode it is one, too.
    """
    heartbeat = stream_status(state, pipeline_id).heartbeat
    if heartbeat and is_alive(heartbeat):
        return None
    folder = pipeline_folder(state, pipeline_id)
    notes = [note for name in (STANDALONE_NOTE, KUBERNETES_NOTE) if (note := folder / name).exists()]
    if not notes:
        return None
    # Of a pipeline that has moved from one to the other.
    if max(notes, key=lambda note: note.stat().st_mtime).name == STANDALONE_NOTE:
        return StandaloneRunner(state)
    return KubernetesRunner(state, settings=read_settings(state, pipeline_id) or KubernetesSettings())
