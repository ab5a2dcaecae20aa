"""The operators' part: a small controller for both dialects of SparkApplication. It is no operator, and builds none.

As both operators do, it lets Spark's own code build the driver's pod (`spark-submit --deploy-mode cluster`), with a pod
template of what Spark has no setting for, watches that pod, starts it again by the application's policy, and writes the
application's status in the operator's words. It deletes what belongs to objects that are gone, as Kubernetes' garbage
collector does.
"""

import os
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import ClassVar

import yaml

from glassflow_dagster.runtime.java import find_java, java_environment
from glassflow_dagster.runtime.spark_home import pyspark_folder
from tests.kubernetes.control_plane import ControlPlane, Object, Refused, now

_PAUSE = 0.3  # seconds
_CONTAINERS = {"driver": "spark-kubernetes-driver", "executor": "spark-kubernetes-executor"}
_OWNED = ("pods", "services", "configmaps")


@dataclass
class Attempt:
    """A start of an application's driver. retry_at: the time of the next one, once this one has ended."""

    number: int
    pod: str
    submission: "subprocess.Popen[bytes]"
    log: Path
    state: str = ""
    retry_at: float | None = None


@dataclass
class Operator(ABC):
    """Runs the applications of one dialect in a namespace. folder: for what it gives to Spark, and Spark's output."""

    plane: ControlPlane
    namespace: str
    folder: Path
    attempts: dict[str, Attempt] = field(default_factory=dict)
    _stopped: threading.Event = field(default_factory=threading.Event)

    api_version: ClassVar[str]
    # What the operator calls an application whose driver is requested, runs, has ended well, badly, is to come back,
    # or could not be submitted.
    requested: ClassVar[str]
    running: ClassVar[str]
    succeeded: ClassVar[str]
    failed: ClassVar[str]
    restarting: ClassVar[str]
    not_submitted: ClassVar[str]

    @abstractmethod
    def pod_name(self, application: Object, attempt: int) -> str:
        """Return the name of the driver's pod."""

    @abstractmethod
    def settings(self, application: Object) -> dict[str, str]:
        """Return the Spark settings of an application."""

    @abstractmethod
    def template(self, application: Object, role: str) -> Object:
        """Return the template of a pod: metadata and spec."""

    @abstractmethod
    def program(self, application: Object) -> list[str]:
        """Return the application's file and its arguments."""

    @abstractmethod
    def restart_seconds(self, application: Object) -> float | None:
        """Return the seconds until a driver that has ended is started again; None where it is not."""

    @abstractmethod
    def status(self, word: str, attempt: Attempt, message: str) -> Object:
        """Return the status of an application."""

    @classmethod
    def path(cls, namespace: str) -> str:
        """Return the path of the dialect's applications."""
        return f"/apis/{cls.api_version}/namespaces/{namespace}/sparkapplications"

    @property
    def applications(self) -> str:
        return self.path(self.namespace)

    def run(self) -> None:
        """Do what is to be done, until the operator is stopped."""
        try:
            while not self._stopped.wait(_PAUSE):
                listed = self.plane.items(self.applications)
                for application in listed:
                    self._look_at(application)
                self._forget(self.attempts.keys() - {application["metadata"]["uid"] for application in listed})
        finally:
            self._forget(set(self.attempts))

    def stop(self) -> None:
        self._stopped.set()

    def _forget(self, uids: set[str]) -> None:
        """End the submissions of applications."""
        for uid in uids:
            submission = self.attempts.pop(uid).submission
            submission.kill()
            submission.wait()

    def _look_at(self, application: Object) -> None:
        """Bring an application one step further."""
        uid = application["metadata"]["uid"]
        attempt = self.attempts.get(uid)
        if attempt is None:
            self._submit(application, 0)
            return
        if (code := attempt.submission.poll()) is None:
            return
        pod = self._pod(attempt.pod)
        if attempt.retry_at is not None:
            self._start_again(application, attempt, pod)
        elif code:
            last = attempt.log.read_text().strip().splitlines()[-1:]
            self._write(application, attempt, self.not_submitted, "".join(last))
        elif pod is None:
            self._ended(application, attempt, self.failed, "driver pod not found")
        else:
            phase = pod["status"].get("phase")
            if phase == "Running":
                self._write(application, attempt, self.running)
            elif phase in {"Succeeded", "Failed"}:
                word = self.succeeded if phase == "Succeeded" else self.failed
                self._ended(application, attempt, word, "driver container failed" if phase == "Failed" else "")

    def _pod(self, name: str) -> Object | None:
        """Return a pod; None where there is none."""
        try:
            return self.plane.get(f"/api/v1/namespaces/{self.namespace}/pods/{name}")
        except Refused:
            return None

    def _ended(self, application: Object, attempt: Attempt, word: str, message: str) -> None:
        """Write down that a driver has ended, and when the next one is to start."""
        self._write(application, attempt, word, message)
        seconds = self.restart_seconds(application)
        if seconds is not None:
            attempt.retry_at = monotonic() + seconds

    def _start_again(self, application: Object, attempt: Attempt, pod: Object | None) -> None:
        """Start the driver again when it is time, and the pod of the last start is gone."""
        assert attempt.retry_at is not None
        if monotonic() < attempt.retry_at:
            return
        self._write(application, attempt, self.restarting)
        if pod is None:
            self._submit(application, attempt.number + 1)
        elif not pod["metadata"].get("deletionTimestamp"):
            self.plane.delete(f"/api/v1/namespaces/{self.namespace}/pods/{attempt.pod}")

    def _submit(self, application: Object, number: int) -> None:
        """Have Spark create the driver's pod, and what belongs to it."""
        metadata = application["metadata"]
        folder = self.folder / f"{metadata['uid']}-{number}"
        folder.mkdir()
        name = self.pod_name(application, number)
        settings = {
            **self.settings(application),
            "spark.kubernetes.namespace": self.namespace,
            "spark.kubernetes.driver.pod.name": name,
            "spark.kubernetes.submission.waitAppCompletion": "false",
        }
        for role in _CONTAINERS:
            file = folder / f"{role}.yaml"
            template = {"apiVersion": "v1", "kind": "Pod", **self.template(application, role)}
            if role == "driver":
                template["metadata"] = {**template.get("metadata", {}), "ownerReferences": [_owner(application)]}
            file.write_text(yaml.safe_dump(template))
            settings[f"spark.kubernetes.{role}.podTemplateFile"] = str(file)
        properties = folder / "spark.properties"
        properties.write_text("".join(f"{key} {value}\n" for key, value in settings.items()))
        kubeconfig = folder / "kubeconfig"
        self.plane.write_kubeconfig(kubeconfig, self.namespace, self.plane.token)
        log = folder / "log"
        command = [str(pyspark_folder() / "bin" / "spark-submit"), "--master", f"k8s://{self.plane.url}"]
        command += ["--deploy-mode", "cluster", "--name", metadata["name"], "--properties-file", str(properties)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, *self.program(application)],
                env={**os.environ, **java_environment(find_java()), "KUBECONFIG": str(kubeconfig)},
                stdout=output,
                stderr=output,
            )
        self.attempts[metadata["uid"]] = attempt = Attempt(number, name, process, log)
        self._write(application, attempt, self.requested)

    def _write(self, application: Object, attempt: Attempt, word: str, message: str = "") -> None:
        """Write the application's status, if it is new."""
        if attempt.state != word:
            attempt.state = word
            path = f"{self.applications}/{application['metadata']['name']}"
            self.plane.set_status(path, self.status(word, attempt, message))


def _owner(application: Object) -> Object:
    keys = {"apiVersion": application["apiVersion"], "kind": application["kind"], "controller": True}
    return {**keys, "name": application["metadata"]["name"], "uid": application["metadata"]["uid"]}


class Kubeflow(Operator):
    """Kubeflow's dialect."""

    api_version = "sparkoperator.k8s.io/v1beta2"
    requested, running, restarting = "SUBMITTED", "RUNNING", "PENDING_RERUN"
    succeeded, failed, not_submitted = "SUCCEEDING", "FAILING", "SUBMISSION_FAILED"

    def pod_name(self, application: Object, attempt: int) -> str:
        return f"{application['metadata']['name']}-driver"

    def settings(self, application: Object) -> dict[str, str]:
        spec = application["spec"]
        found = {
            **spec.get("sparkConf", {}),
            "spark.kubernetes.container.image": spec["image"],
            "spark.kubernetes.container.image.pullPolicy": spec["imagePullPolicy"],
            "spark.kubernetes.authenticate.driver.serviceAccountName": spec["driver"]["serviceAccount"],
            "spark.executor.instances": str(spec["executor"]["instances"]),
        }
        for role in _CONTAINERS:
            for key in ("cores", "memory", "memoryOverhead"):
                found[f"spark.{role}.{key}"] = str(spec[role][key])
            for name, value in spec[role]["labels"].items():
                found[f"spark.kubernetes.{role}.label.{name}"] = value
        return found

    def template(self, application: Object, role: str) -> Object:
        """Return what the operator's webhook adds to a pod: variables, hooks, and the volumes that it mounts."""
        spec, own = application["spec"], application["spec"][role]
        mounts = own.get("volumeMounts", [])
        used = {mount["name"] for mount in mounts}
        keys = {key: own[key] for key in ("env", "lifecycle") if key in own}
        pod = {
            "containers": [{"name": _CONTAINERS[role], "volumeMounts": mounts, **keys}],
            "volumes": [volume for volume in spec.get("volumes", []) if volume["name"] in used],
            "nodeSelector": own.get("nodeSelector", {}),
        }
        if grace := own.get("terminationGracePeriodSeconds"):
            pod["terminationGracePeriodSeconds"] = grace
        return {"spec": pod}

    def program(self, application: Object) -> list[str]:
        spec = application["spec"]
        return [spec["mainApplicationFile"], *spec.get("arguments", [])]

    def restart_seconds(self, application: Object) -> float | None:
        policy = application["spec"]["restartPolicy"]
        return float(policy.get("onFailureRetryInterval", 0)) if policy["type"] == "Always" else None

    def status(self, word: str, attempt: Attempt, message: str) -> Object:
        state = {"state": word, "errorMessage": message}
        return {
            "applicationState": state,
            "driverInfo": {"podName": attempt.pod},
            "submissionAttempts": attempt.number + 1,
        }


class Apache(Operator):
    """Apache's dialect."""

    api_version = "spark.apache.org/v1"
    requested, running, restarting = "DriverRequested", "RunningHealthy", "ScheduledToRestart"
    succeeded, failed, not_submitted = "Succeeded", "Failed", "SchedulingFailure"

    def pod_name(self, application: Object, attempt: int) -> str:
        return f"{application['metadata']['name']}-{attempt}-driver"

    def settings(self, application: Object) -> dict[str, str]:
        return dict(application["spec"]["sparkConf"])

    def template(self, application: Object, role: str) -> Object:
        return dict(application["spec"][f"{role}Spec"]["podTemplateSpec"])

    def program(self, application: Object) -> list[str]:
        spec = application["spec"]
        return [spec["pyFiles"], *spec.get("driverArgs", [])]

    def restart_seconds(self, application: Object) -> float | None:
        policy = application["spec"]["applicationTolerations"]["restartConfig"]
        is_always = policy["restartPolicy"] == "Always"
        return int(policy.get("restartBackoffMillis", 30_000)) / 1000 if is_always else None

    def status(self, word: str, attempt: Attempt, message: str) -> Object:
        state = {"currentStateSummary": word, "lastTransitionTime": now(), "message": message}
        return {"currentState": state, "currentAttemptSummary": {"attemptInfo": {"id": attempt.number}}}


@dataclass
class GarbageCollector:
    """Deletes the objects of a namespace whose owner is gone."""

    plane: ControlPlane
    namespace: str
    _stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Do what is to be done, until the collector is stopped."""
        while not self._stopped.wait(_PAUSE):
            objects = [(path, each["metadata"]) for path in map(self._core, _OWNED) for each in self.plane.items(path)]
            # After what they own, so that a new owner is not missed.
            owners = [self._core("pods"), *(kind.path(self.namespace) for kind in OPERATORS.values())]
            uids = {each["metadata"]["uid"] for path in owners for each in self.plane.items(path)}
            for path, metadata in objects:
                owned_by = {owner["uid"] for owner in metadata.get("ownerReferences", [])}
                if owned_by and not metadata.get("deletionTimestamp") and not uids & owned_by:
                    self.plane.delete(f"{path}/{metadata['name']}", preconditions={"uid": metadata["uid"]})

    def stop(self) -> None:
        self._stopped.set()

    def _core(self, kind: str) -> str:
        return f"/api/v1/namespaces/{self.namespace}/{kind}"


OPERATORS: dict[str, type[Operator]] = {"kubeflow": Kubeflow, "apache": Apache}


@contextmanager
def running_operators(plane: ControlPlane, namespace: str, folder: Path) -> Iterator[None]:
    """Run both operators for a namespace while the block runs."""
    operators: list[Operator | GarbageCollector] = [GarbageCollector(plane, namespace)]
    for name, kind in OPERATORS.items():
        (folder / name).mkdir(parents=True)
        operators.append(kind(plane, namespace, folder / name))
    threads = [threading.Thread(target=operator.run, daemon=True) for operator in operators]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for operator, thread in zip(operators, threads, strict=True):
            operator.stop()
            thread.join()
