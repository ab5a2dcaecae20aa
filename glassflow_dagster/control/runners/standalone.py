"""Runs drivers on the workers of a Spark standalone cluster: what `spark-submit` calls cluster mode.

`spark-submit` itself refuses Python programs there. So the driver that the master starts is Spark's `PythonRunner`, by
the master's REST server, and that starts `driver/submitted.py`. The master starts it again on another worker when its
own is lost, and the worker when it fails (`spark.driver.supervise`).
"""

import json
import os
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from glassflow_dagster.control.heartbeat import Heartbeat, pipeline_folder
from glassflow_dagster.control.runners.notes import read_note, write_note
from glassflow_dagster.control.runners.remote import RemoteDriver, RemoteRunner
from glassflow_dagster.control.runners.runner import LOG_LINES
from glassflow_dagster.control.runners.settings import SparkSubmitSettings, is_standalone
from glassflow_dagster.control.runners.spark_submit import require_for_cluster, size_settings
from glassflow_dagster.control.sent_definition import SentDefinition
from glassflow_dagster.control.status import StreamState
from glassflow_dagster.control.submission import SUBMISSION, Submission
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.state import AZURE_KEYS, AZURE_SERVER
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime import direct

# The note of the driver that was submitted last, in the pipeline's local folder.
NOTE = "submission.json"
_MODULE = "glassflow_dagster.driver.submitted"
_STARTER = "org.apache.spark.deploy.PythonRunner"
# The setting with the id of a submission, which is on the command line of the driver's JVM.
_MARK = "spark.glassflow.submission"
# Relative to the folder in which a worker starts the driver.
_STATE = "state"
_ANSWER_SECONDS = 10.0
_LOG_BYTES = 64 * 1024
# Settings that the master reads of a driver; they are on the command line of its JVM, where no secret may be.
_OF_MASTER = ("spark.driver.memory", "spark.driver.cores")
# The stores' variables (definition/model/state.py, stream/checkpoint/*_storage.py).
_STORE = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION", "AWS_DEFAULT_REGION",
    "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "GLASSFLOW_WEBHDFS", "HADOOP_USER_NAME",
    "GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST",
    *AZURE_KEYS, AZURE_SERVER, "AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET",
    "AZURE_FEDERATED_TOKEN_FILE", "AZURE_AUTHORITY_HOST",
)  # fmt: skip

# Of a driver whose worker is lost, for ever: it is started again under another id.
_RELAUNCHED = "RELAUNCHING"
# What the master says of a driver -> the state of the stream, and what that means.
_STATES = {
    "SUBMITTED": (StreamState.STARTING, "waits for a worker with enough cores and memory"),
    "RUNNING": (StreamState.RUNNING, "runs"),
    _RELAUNCHED: (StreamState.STARTING, "is being started again"),
    "FINISHED": (StreamState.STOPPED, "has stopped"),
    "KILLED": (StreamState.STOPPED, "was ended through the master"),
    "FAILED": (StreamState.FAILED, "has failed"),
    "ERROR": (StreamState.FAILED, "could not be started by its worker"),
}


class Submitted(BaseModel):
    """The note of a driver: its id, the fingerprint of its definition, and where the master answers.

    submission: by which the driver is found again once the master has given it another id.
    """

    model_config = ConfigDict(frozen=True)

    settings: SparkSubmitSettings
    driver_id: str
    submission: str
    fingerprint: str
    rest_server: str
    web_page: str


@dataclass(frozen=True)
class StandaloneRunner(RemoteRunner):
    """A `StreamRunner` for cluster mode: drivers are processes of a standalone cluster's workers."""

    settings: SparkSubmitSettings = field(default_factory=lambda: SparkSubmitSettings(deploy_mode="cluster"))
    # The master knows drivers by numbers only.
    _finds_all_drivers: ClassVar[bool] = False

    def require_runnable(self, config: PipelineConfig) -> None:
        """Raise `GlassflowError` for a pipeline, or settings, that cannot be used in cluster mode."""
        require_for_cluster(config, self.pool)
        master = self._master(config)
        if not is_standalone(master):
            raise GlassflowError(
                "runner spark-submit: deploy_mode cluster needs a standalone master; use client for yarn"
            )
        for name in ("archive", "address"):
            if getattr(self.settings, name):
                raise GlassflowError(f"runner spark-submit: {name} needs deploy_mode client; remove it, or name python")

    def submit(self, config: PipelineConfig, report: Callable[[str], None]) -> None:
        """Submit the driver, and note its id; raises `GlassflowError` where the master refuses it."""
        master, submission = self._master(config), str(uuid.uuid4())
        rest_server = self.settings.rest_server(master)
        answer = _ask(f"{rest_server}/v1/submissions/create", self.request(config, submission))
        driver_id = answer.get("submissionId")
        if not answer.get("success") or not driver_id:
            raise GlassflowError(f"{rest_server}: did not take the driver: {_first_line(answer.get('message'))}")
        note = Submitted(
            settings=self.settings,
            driver_id=driver_id,
            submission=submission,
            fingerprint=config.fingerprint,
            rest_server=rest_server,
            web_page=self.settings.web_page(master),
        )
        write_note(pipeline_folder(self.state, config.pipeline_id) / NOTE, note)
        report(f"{config.pipeline_id}: submitted {driver_id} to {master}")

    def request(self, config: PipelineConfig, submission_id: str) -> dict[str, Any]:
        """Return the request to the master for a driver: secrets are in its environment. Raises `GlassflowError`.

        submission_id: of this request alone.
        """
        master, spark = self._master(config), {**config.spark, **self.spark_config}
        submission = Submission(
            # The references are resolved: the driver's host has other variables and files.
            definition=SentDefinition(file=None, definition=config.content, is_content=True),
            state=Path(_STATE),
            create_table=self.create_table,
            log_format=self.log_format,
            spark={**size_settings(config), **self.spark_config, "spark.master": master},
            id=submission_id,
        )
        store = {name: os.environ[name] for name in _STORE if name in os.environ}
        return {
            "action": "CreateSubmissionRequest",
            "clientSparkVersion": version("pyspark"),
            "appResource": "",
            "mainClass": _STARTER,
            # A file, more of them, and the program's arguments: Python takes the first as its option.
            "appArgs": ["-m", "", _MODULE],
            "environmentVariables": {**store, **self.environment, SUBMISSION: submission.encoded()},
            "sparkProperties": {
                "spark.app.name": f"glassflow {config.pipeline_id}",
                "spark.master": master,
                "spark.submit.deployMode": "cluster",
                "spark.driver.supervise": "true",
                _MARK: submission_id,
                "spark.pyspark.python": self.settings.python or sys.executable,
                **{name: spark[name] for name in _OF_MASTER if name in spark},
            },
        }

    def _master(self, config: PipelineConfig) -> str:
        """Return the cluster's master; raises `GlassflowError` where none is named."""
        return self.settings.master_in({**config.spark, **self.spark_config})

    def find(self, pipeline_id: str) -> RemoteDriver | None:
        """Return the driver as the master sees it; raises `GlassflowError` where the master does not answer."""
        note = _note_of(self, pipeline_id)
        if note is None:
            return None
        answer = _status(note)
        if answer.get("driverState") == _RELAUNCHED and (driver_id := _successor(note)):
            note = note.model_copy(update={"driver_id": driver_id})
            write_note(pipeline_folder(self.state, pipeline_id) / NOTE, note)
            answer = _status(note)
        return _driver(note, answer)

    def _started_again(self, config: PipelineConfig, heartbeat: Heartbeat) -> str | None:
        """Return a message about the driver that the master has started since, as the worker of the other is lost."""
        # By the clocks of two hosts; where they differ much, it is taken for lost, and replaced.
        since = max(heartbeat.updated_at, time.time() - self.timeout)

        def is_newer(driver: Mapping[str, Any]) -> bool:
            return driver["state"] == "RUNNING" and float(driver["starttime"]) / 1000 > since

        page = self.settings.web_page(self._master(config))
        found = _driver_of(heartbeat.submission, page, is_newer) if heartbeat.submission else None
        return f"{found} is being started in its place on another worker" if found else None

    def ask_to_end(self, pipeline_id: str, *, at_once: bool) -> None:  # noqa: ARG002 - see the docstring
        """Have the master end the driver. A standalone master has no other way for one that is to end at once."""
        if note := _note_of(self, pipeline_id):
            _ask(f"{note.rest_server}/v1/submissions/kill/{urllib.parse.quote(note.driver_id)}", {})

    def log_of(self, pipeline_id: str, lines: int = LOG_LINES) -> str:
        """Return the last lines of the driver's output, which its worker serves; empty where it is not reached."""
        note = _note_of(self, pipeline_id)
        if note is None:
            return ""
        try:
            pages = _worker_pages(_cluster_page(note.web_page))
            text = _output(pages[_status(note)["workerId"]], note.driver_id, "stdout")
        except (OSError, ValueError, KeyError, GlassflowError):
            return ""
        return "\n".join(text.splitlines()[-lines:])


def _note_of(runner: RemoteRunner, pipeline_id: str) -> Submitted | None:
    """Return the note of the driver that was submitted last; None where none was. Raises `GlassflowError`."""
    remedy = f"when the master runs no driver of {pipeline_id}, remove it"
    return read_note(pipeline_folder(runner.state, pipeline_id) / NOTE, Submitted, remedy)


def _driver(note: Submitted, answer: Mapping[str, Any]) -> RemoteDriver:
    """Return a driver by the master's answer about it."""
    known = _STATES.get(str(answer.get("driverState")))
    if not answer.get("success") or known is None:
        message = f"{note.rest_server} does not know {note.driver_id} any more; the next start repeats the open batch"
        return RemoteDriver(
            note.driver_id, StreamState.FAILED, message, note.fingerprint, note.web_page, note.submission
        )
    state, meaning = known
    worker = answer.get("workerHostPort")
    message = f"{note.driver_id} {meaning}" + (f" on {worker}" if worker else "")
    return RemoteDriver(note.driver_id, state, message, note.fingerprint, note.web_page, note.submission)


def _successor(note: Submitted) -> str | None:
    """Return the id under which the master has started a driver again on another worker; None if it is not found."""
    return _driver_of(note.submission, note.web_page, lambda driver: driver["id"] != note.driver_id)


def _driver_of(submission: str, web_page: str, may_be: Callable[[Mapping[str, Any]], bool]) -> str | None:
    """Return the id of a submission's newest driver among those that it may be; None if it is not found.

    web_page: the master's. The master tells of no connection between the two. But a worker writes the command line of a
    driver's JVM into its output, and there is the id of the submission.
    """
    try:
        cluster = _cluster_page(web_page)
        pages = _worker_pages(cluster)
        drivers = [*cluster.get("activedrivers", []), *cluster.get("completeddrivers", [])]
        for driver in sorted(filter(may_be, drivers), key=lambda each: str(each["id"]), reverse=True):
            page = pages.get(driver.get("worker"))
            if page and f"{_MARK}={submission}" in _output(page, driver["id"], "stderr", start=0):
                return str(driver["id"])
    except (OSError, ValueError, KeyError):
        return None
    return None


def _cluster_page(web_page: str) -> dict[str, Any]:
    """Return what the master's web page tells of workers and drivers; raises `OSError`, `ValueError`."""
    content: dict[str, Any] = json.loads(_get(f"{web_page}/json/"))
    return content


def _worker_pages(cluster: Mapping[str, Any]) -> dict[str, str]:
    """Return the URLs of the workers' web pages by the workers' ids."""
    return {str(each["id"]): str(each["webuiaddress"]) for each in cluster.get("workers", [])}


def _output(page: str, driver_id: str, kind: str, start: int | None = None) -> str:
    """Return the end of a driver's output, which its worker serves; what follows byte `start` where that is given.

    kind: stdout or stderr. Raises `OSError`.
    """
    place = {} if start is None else {"offset": start}
    query = urllib.parse.urlencode({"driverId": driver_id, "logType": kind, "byteLength": _LOG_BYTES, **place})
    # The first line says which bytes follow.
    return _get(f"{page}/log/?{query}").partition("\n")[2]


def _status(note: Submitted) -> dict[str, Any]:
    """Return what the master says of a driver; raises `GlassflowError` where it does not answer."""
    return _ask(f"{note.rest_server}/v1/submissions/status/{urllib.parse.quote(note.driver_id)}", None)


def _ask(url: str, body: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the answer of the master's REST server, by POST where there is a body; raises `GlassflowError`."""
    data = None if body is None else json.dumps(body).encode()
    try:
        answer = json.loads(_get(url, data))
    except urllib.error.HTTPError as error:
        raise GlassflowError(f"{url}: {_message_of(error)}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise GlassflowError(
            f"{url}: does not answer as a standalone master ({reason}); start it with spark.master.rest.enabled=true, "
            "or correct the runner's option rest_url"
        ) from None
    return answer if isinstance(answer, dict) else {}


def _get(url: str, data: bytes | None = None) -> str:
    """Return what a server of the cluster answers, not through a proxy; raises `OSError`."""
    request = urllib.request.Request(url, data, {"Content-Type": "application/json;charset=UTF-8"})  # noqa: S310
    with direct.opener.open(request, timeout=_ANSWER_SECONDS) as answer:
        content: bytes = answer.read()
    return content.decode(errors="replace")


def _message_of(error: urllib.error.HTTPError) -> str:
    """Return the reason in a refusal of the REST server."""
    try:
        return _first_line(json.loads(error.read()).get("message"))
    except ValueError:
        return f"HTTP status {error.code}"


def _first_line(message: Any) -> str:
    """Return the first line of a message, which may have a Java traceback."""
    return (str(message or "").splitlines() or ["no reason given"])[0]
