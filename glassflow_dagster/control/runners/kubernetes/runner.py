"""The runner for Kubernetes: an operator starts the drivers' pods, and starts them again."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from glassflow_dagster.control.heartbeat import pipeline_folder
from glassflow_dagster.control.runners.kubernetes.cluster import KubernetesCluster
from glassflow_dagster.control.runners.kubernetes.manifests import STATE_FOLDER, Manifest, render, spark_settings_for
from glassflow_dagster.control.runners.kubernetes.names import (
    FINGERPRINT_ANNOTATION,
    application_name,
    driver_labels,
    selector_of,
)
from glassflow_dagster.control.runners.kubernetes.states import state_of
from glassflow_dagster.control.runners.notes import read_note, write_note
from glassflow_dagster.control.runners.remote import POLL_SECONDS, RemoteDriver, RemoteRunner
from glassflow_dagster.control.runners.runner import LOG_LINES
from glassflow_dagster.control.runners.settings import KubernetesSettings
from glassflow_dagster.control.runners.spark_submit import require_for_cluster
from glassflow_dagster.control.sent_definition import SentDefinition
from glassflow_dagster.control.status import StreamState
from glassflow_dagster.control.stop import STOP_TIMEOUT
from glassflow_dagster.control.submission import Submission
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError

# The note that a pipeline's driver was launched here, in its local folder.
NOTE = "kubernetes.json"
_API_VERSIONS = {"kubeflow": "sparkoperator.k8s.io/v1beta2", "apache": "spark.apache.org/v1"}
_KIND = "SparkApplication"


class Launched(BaseModel):
    """The note of a launch: the settings by which the application is found."""

    model_config = ConfigDict(frozen=True)

    settings: KubernetesSettings


@dataclass(frozen=True)
class KubernetesRunner(RemoteRunner):
    """A `StreamRunner` for Kubernetes."""

    settings: KubernetesSettings = field(default_factory=KubernetesSettings)

    def manifests(self, config: PipelineConfig) -> list[Manifest]:
        """Return the objects of a pipeline, secrets of its definition among them; raises `GlassflowError`."""
        require_for_cluster(config, self.pool)
        submission = Submission(
            # The references are resolved: the pod has other variables and files.
            definition=SentDefinition(file=None, definition=config.content, is_content=True),
            state=Path(STATE_FOLDER),
            create_table=self.create_table,
            log_format=self.log_format,
            spark=spark_settings_for(self.spark_config),
        )
        return render(config, self.settings, {**config.spark, **self.spark_config}, submission)

    def require_runnable(self, config: PipelineConfig) -> None:
        """Raise `GlassflowError` for a pipeline that cannot run in pods."""
        require_for_cluster(config, self.pool)

    def submit(self, config: PipelineConfig, report: Callable[[str], None]) -> None:
        """Apply the objects; raises `GlassflowError` where the cluster refuses them."""
        manifests = self.manifests(config)
        write_note(pipeline_folder(self.state, config.pipeline_id) / NOTE, Launched(settings=self.settings))
        self._remove_ended(config.pipeline_id)
        # Their logs would be taken for the new driver's.
        for pod in self._cluster.ended_pods(driver_labels(config.pipeline_id)):
            self._cluster.delete_pod(pod)
        self._cluster.apply(manifests)
        report(f"{config.pipeline_id}: applied {_KIND} {application_name(config.pipeline_id)}")

    def _remove_ended(self, pipeline_id: str) -> None:
        """Delete an application that has ended for good, and wait until it is gone; raises `GlassflowError`.

        Applied again without a change, it would stay as it is.
        """
        api_version, name = _API_VERSIONS[self.settings.operator], application_name(pipeline_id)
        deadline = time.monotonic() + STOP_TIMEOUT
        self._cluster.delete(api_version, _KIND, name)
        while self._cluster.get(api_version, _KIND, name) or self._cluster.has_live_pod(driver_labels(pipeline_id)):
            if time.monotonic() > deadline:
                raise GlassflowError(
                    f"{_KIND} {name}: not deleted after {STOP_TIMEOUT:.0f} s; look at its finalizers and pods"
                )
            time.sleep(POLL_SECONDS)

    def find(self, pipeline_id: str) -> RemoteDriver | None:
        """Return the driver as the operator sees it; one whose application was deleted while its pod is there."""
        name = application_name(pipeline_id)
        # The operators name the pod differently.
        selector = selector_of(driver_labels(pipeline_id))
        place = f"kubectl logs --namespace {self.settings.namespace} --selector {selector} --tail=-1"
        application = self._cluster.get(_API_VERSIONS[self.settings.operator], _KIND, name)
        if application is None or application["metadata"].get("deletionTimestamp"):
            if not self._cluster.has_live_pod(driver_labels(pipeline_id)):
                return None
            return RemoteDriver(name, StreamState.STARTING, f"{name}: its driver is ending", "", place)
        state, meaning = state_of(application)
        fingerprint = (application["metadata"].get("annotations") or {}).get(FINGERPRINT_ANNOTATION, "")
        return RemoteDriver(name, state, f"{name}: {meaning}", fingerprint, place)

    def _is_wanted(self, pipeline_id: str, driver: RemoteDriver | None) -> bool:
        """Return whether the stream is meant to run: while it has an application, the operator sees to that."""
        return driver is not None or super()._is_wanted(pipeline_id, driver)

    def ask_to_end(self, pipeline_id: str, *, at_once: bool) -> None:
        """Delete the objects; the operator deletes the pods, whose hook lets the driver finish its batch."""
        name = application_name(pipeline_id)
        self._cluster.delete(_API_VERSIONS[self.settings.operator], _KIND, name)
        if at_once:
            for pod in self._cluster.pods(driver_labels(pipeline_id)):
                self._cluster.delete_pod(pod)
        self._cluster.delete("policy/v1", "PodDisruptionBudget", name)
        # With its passwords; the pods have it mounted for as long as they run.
        self._cluster.delete("v1", "Secret", name)

    def log_of(self, pipeline_id: str, lines: int = LOG_LINES) -> str:
        """Return the last lines of the driver's pod; empty where there is none."""
        pods = self._cluster.pods(driver_labels(pipeline_id))
        return self._cluster.log(pods[-1], lines) if pods else ""

    @cached_property
    def _cluster(self) -> KubernetesCluster:
        return KubernetesCluster(self.settings.namespace, self.settings.context)


def read_settings(state: Path, pipeline_id: str) -> KubernetesSettings | None:
    """Return the settings of a pipeline's last launch on Kubernetes; None without one. Raises `GlassflowError`."""
    note = read_note(pipeline_folder(state, pipeline_id) / NOTE, Launched, "start the pipeline again")
    return note.settings if note else None
