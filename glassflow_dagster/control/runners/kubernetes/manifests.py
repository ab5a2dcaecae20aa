"""The objects of a pipeline in Kubernetes: the application, its definition in a Secret, its disruption budget.

An application is written in the dialect of one of two operators: Kubeflow's `sparkoperator.k8s.io/v1beta2`, or Apache's
`spark.apache.org/v1`. Both start `PythonRunner` of the image, and that `driver/submitted.py`.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from glassflow_dagster.control.runners.kubernetes.names import (
    annotations_of,
    application_name,
    driver_labels,
    labels_of,
)
from glassflow_dagster.control.runners.settings import KubernetesSettings
from glassflow_dagster.control.stop import STOP_TIMEOUT
from glassflow_dagster.control.submission import Submission
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.spark import DEFAULT_MEMORY, DRIVER_MEMORY
from glassflow_dagster.errors import GlassflowError

Manifest = dict[str, Any]

# Paths in the image (Dockerfile).
MAIN_FILE = "local:///opt/glassflow/driver.py"
_SUBMISSION_FOLDER, _SUBMISSION_FILE = "/etc/glassflow", "submission.json"
# Spark takes volumes of this name for its own local files, too.
_SCRATCH, _SCRATCH_FOLDER = "spark-local-dir-1", "/var/glassflow"
STATE_FOLDER = f"{_SCRATCH_FOLDER}/state"
# Spark merges its own container with the one of this name.
_CONTAINERS = {"driver": "spark-kubernetes-driver", "executor": "spark-kubernetes-executor"}
# Beside the heap: the JVM that starts the driver, Python, RocksDB's memory.
_DRIVER_OVERHEAD, _EXECUTOR_OVERHEAD = "1g", "1g"
# The operators' own choice is not to start a driver again, or to give up after some attempts.
_MOST_RESTARTS = 2**31 - 1
_RESTART_MILLISECONDS = 10_000
# The batch is finished by then, or killed.
_GRACE_SECONDS = int(STOP_TIMEOUT) + 15
# Settings that are a field of the operator's object.
_AS_FIELDS = (
    "spark.driver.cores", "spark.driver.memory", "spark.driver.memoryOverhead", "spark.executor.cores",
    "spark.executor.memory", "spark.executor.memoryOverhead", "spark.executor.instances",
)  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """The sizes of the pods, as Spark names them: cores, and memory such as 2g."""

    driver_cores: int
    driver_memory: str
    driver_overhead: str
    executors: int
    executor_cores: int
    executor_memory: str
    executor_overhead: str


def sizes_of(config: PipelineConfig, settings: KubernetesSettings, spark: Mapping[str, str]) -> Sizes:
    """Return the sizes that Spark's settings say, else the definition's `resources`; raises `GlassflowError`.

    spark: the settings of the definition and of the runner.
    """
    executor_cores = _whole(spark, "spark.executor.cores", 1)
    cores = config.resources.cores if config.resources else None
    needed = -(-cores // executor_cores) if cores else 1
    return Sizes(
        driver_cores=_whole(spark, "spark.driver.cores", 1),
        driver_memory=spark.get(DRIVER_MEMORY, DEFAULT_MEMORY),
        driver_overhead=_size(spark.get("spark.driver.memoryOverhead", _DRIVER_OVERHEAD)),
        executors=settings.executors or _whole(spark, "spark.executor.instances", needed),
        executor_cores=executor_cores,
        executor_memory=spark.get("spark.executor.memory", "1g"),
        executor_overhead=_size(spark.get("spark.executor.memoryOverhead", _EXECUTOR_OVERHEAD)),
    )


def render(
    config: PipelineConfig, settings: KubernetesSettings, spark: Mapping[str, str], submission: Submission
) -> list[Manifest]:
    """Return all objects of a pipeline, in the order in which they are applied; raises `GlassflowError`.

    spark: the Spark settings of the definition and of the runner.
    """
    sizes = sizes_of(config, settings, spark)
    build = _of_kubeflow if settings.operator == "kubeflow" else _of_apache
    return [_secret(config, settings, submission), _budget(config, settings), build(config, settings, sizes)]


def _secret(config: PipelineConfig, settings: KubernetesSettings, submission: Submission) -> Manifest:
    """Return the Secret with what the driver is to do, passwords of the definition included."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(config, settings),
        "type": "Opaque",
        "stringData": {_SUBMISSION_FILE: submission.model_dump_json()},
    }


def _budget(config: PipelineConfig, settings: KubernetesSettings) -> Manifest:
    """Return the budget by which nobody evicts the driver from its node before the pipeline is stopped."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _metadata(config, settings),
        "spec": {
            # Of pods without a controller, Kubernetes takes nothing but a number that must be there.
            "minAvailable": 1,
            "selector": {"matchLabels": driver_labels(config.pipeline_id)},
        },
    }


def _of_kubeflow(config: PipelineConfig, settings: KubernetesSettings, sizes: Sizes) -> Manifest:
    """Return the application in the dialect of Kubeflow's operator."""
    labels = labels_of(config.pipeline_id, settings.labels)
    pod: Manifest = {"labels": labels, "nodeSelector": settings.node_selector}
    return {
        "apiVersion": "sparkoperator.k8s.io/v1beta2",
        "kind": "SparkApplication",
        "metadata": _metadata(config, settings, annotations_of(config)),
        "spec": {
            "type": "Python",
            "pythonVersion": "3",
            "mode": "cluster",
            "sparkVersion": version("pyspark"),
            "image": image_of(settings),
            "imagePullPolicy": settings.image_pull_policy,
            "imagePullSecrets": list(settings.image_pull_secrets),
            "mainApplicationFile": MAIN_FILE,
            "arguments": [f"{_SUBMISSION_FOLDER}/{_SUBMISSION_FILE}"],
            # A driver that was stopped is deleted with its application; one that ends by itself is to come back.
            "restartPolicy": {"type": "Always", "onFailureRetryInterval": _RESTART_MILLISECONDS // 1000},
            "sparkConf": {"spark.kubernetes.executor.podNamePrefix": application_name(config.pipeline_id)},
            "volumes": _volumes(config, settings),
            "driver": {
                **pod,
                "cores": sizes.driver_cores,
                "memory": sizes.driver_memory,
                "memoryOverhead": sizes.driver_overhead,
                "serviceAccount": settings.service_account,
                "env": _environment(settings),
                "volumeMounts": _mounts("driver"),
                "lifecycle": _lifecycle(config),
                "terminationGracePeriodSeconds": _GRACE_SECONDS,
            },
            "executor": {
                **pod,
                "instances": sizes.executors,
                "cores": sizes.executor_cores,
                "memory": sizes.executor_memory,
                "memoryOverhead": sizes.executor_overhead,
                "volumeMounts": _mounts("executor"),
            },
        },
    }


def _of_apache(config: PipelineConfig, settings: KubernetesSettings, sizes: Sizes) -> Manifest:
    """Return the application in the dialect of Apache's operator."""
    restarts = {
        "restartPolicy": "Always",
        "maxRestartAttempts": _MOST_RESTARTS,
        "restartBackoffMillis": _RESTART_MILLISECONDS,
    }
    instances = {"initExecutors": sizes.executors, "minExecutors": 0, "maxExecutors": sizes.executors}
    return {
        "apiVersion": "spark.apache.org/v1",
        "kind": "SparkApplication",
        "metadata": _metadata(config, settings, annotations_of(config)),
        "spec": {
            "deploymentMode": "ClusterMode",
            "runtimeVersions": {"sparkVersion": version("pyspark")},
            "pyFiles": MAIN_FILE,
            "driverArgs": [f"{_SUBMISSION_FOLDER}/{_SUBMISSION_FILE}"],
            "applicationTolerations": {
                "restartConfig": restarts,
                "resourceRetainPolicy": "Never",
                "instanceConfig": instances,
            },
            "sparkConf": _apache_settings(config, settings, sizes),
            "driverSpec": {"podTemplateSpec": _template("driver", config, settings)},
            "executorSpec": {"podTemplateSpec": _template("executor", config, settings)},
        },
    }


def _apache_settings(config: PipelineConfig, settings: KubernetesSettings, sizes: Sizes) -> dict[str, str]:
    """Return the Spark settings of Apache's dialect, whose object has no fields for sizes and images."""
    pull_secrets = {"spark.kubernetes.container.image.pullSecrets": ",".join(settings.image_pull_secrets)}
    return {
        "spark.kubernetes.container.image": image_of(settings),
        "spark.kubernetes.container.image.pullPolicy": settings.image_pull_policy,
        **(pull_secrets if settings.image_pull_secrets else {}),
        "spark.kubernetes.namespace": settings.namespace,
        "spark.kubernetes.authenticate.driver.serviceAccountName": settings.service_account,
        "spark.kubernetes.executor.podNamePrefix": application_name(config.pipeline_id),
        "spark.driver.cores": str(sizes.driver_cores),
        DRIVER_MEMORY: sizes.driver_memory,
        "spark.driver.memoryOverhead": sizes.driver_overhead,
        "spark.executor.instances": str(sizes.executors),
        "spark.executor.cores": str(sizes.executor_cores),
        "spark.executor.memory": sizes.executor_memory,
        "spark.executor.memoryOverhead": sizes.executor_overhead,
    }


def _template(role: str, config: PipelineConfig, settings: KubernetesSettings) -> Manifest:
    """Return the template of a driver's or an executor's pod."""
    container: Manifest = {"name": _CONTAINERS[role], "volumeMounts": _mounts(role)}
    spec: Manifest = {"nodeSelector": settings.node_selector, "containers": [container]}
    if role == "driver":
        container |= {"env": _environment(settings), "lifecycle": _lifecycle(config)}
        spec |= {"volumes": _volumes(config, settings), "terminationGracePeriodSeconds": _GRACE_SECONDS}
    else:
        spec |= {"volumes": [_scratch(settings)]}
    return {"metadata": {"labels": labels_of(config.pipeline_id, settings.labels)}, "spec": spec}


def _metadata(
    config: PipelineConfig, settings: KubernetesSettings, annotations: Mapping[str, str] | None = None
) -> Manifest:
    """Return the metadata of an object."""
    return {
        "name": application_name(config.pipeline_id),
        "namespace": settings.namespace,
        "labels": labels_of(config.pipeline_id, settings.labels),
        **({"annotations": dict(annotations)} if annotations else {}),
    }


def _environment(settings: KubernetesSettings) -> list[Manifest]:
    """Return the driver's environment variables; those from Secrets as references."""
    plain: list[Manifest] = [{"name": name, "value": value} for name, value in settings.variables.items()]
    secret = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": source.name, "key": source.key}}}
        for name, source in settings.secrets.items()
    ]
    return [*plain, *secret]


def _volumes(config: PipelineConfig, settings: KubernetesSettings) -> list[Manifest]:
    """Return the volumes of a driver: what it is to do, and its scratch files."""
    name = application_name(config.pipeline_id)
    # Readable for the image's user, who is not the owner; nothing else is in the pod.
    return [{"name": "submission", "secret": {"secretName": name, "defaultMode": 0o444}}, _scratch(settings)]


def _scratch(settings: KubernetesSettings) -> Manifest:
    """Return the volume of a pod's scratch files: it may be lost at any time."""
    return {"name": _SCRATCH, "emptyDir": {"sizeLimit": settings.scratch_size}}


def _mounts(role: str) -> list[Manifest]:
    """Return where a pod has its volumes. Executors get their share from the driver, not the definition."""
    scratch = {"name": _SCRATCH, "mountPath": _SCRATCH_FOLDER}
    submission = {"name": "submission", "mountPath": _SUBMISSION_FOLDER, "readOnly": True}
    return [submission, scratch] if role == "driver" else [scratch]


def _lifecycle(config: PipelineConfig) -> Manifest:
    """Return the hook that lets the driver finish its batch before its pod is ended, by whomever."""
    command = ["glassflow-dagster", "stop", config.pipeline_id, "--state", STATE_FOLDER]
    return {"preStop": {"exec": {"command": command}}}


def image_of(settings: KubernetesSettings) -> str:
    """Return the image of driver and executors."""
    return settings.image or f"glassflow-dagster:{version('glassflow-dagster')}"


def spark_settings_for(spark: Mapping[str, str]) -> dict[str, str]:
    """Return the Spark settings for the driver's session: all but those that the application's object has."""
    return {key: value for key, value in spark.items() if key not in _AS_FIELDS}


def _whole(spark: Mapping[str, str], key: str, default: int) -> int:
    """Return a setting that is a number of one or more; raises `GlassflowError` for another value."""
    text = spark.get(key)
    if text is None:
        return default
    if not text.isdigit() or int(text) < 1:
        raise GlassflowError(f"{key}: {text!r} is no number of one or more; correct it")
    return int(text)


def _size(text: str) -> str:
    """Return a memory size with a unit: Spark takes one without for MiB, and Kubernetes for bytes."""
    return f"{text}m" if re.fullmatch(r"\d+", text) else text
