"""The settings of the runners: which one starts the drivers, and what it needs to know."""

import os
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, field_validator

from glassflow_dagster.errors import GlassflowError

# The environment variables of the runner's type, and of its settings: KEY=VALUE, with spaces between them.
RUNNER = "GLASSFLOW_RUNNER"
RUNNER_OPTIONS = "GLASSFLOW_RUNNER_OPTIONS"

_STANDALONE = re.compile(r"^spark://[^,:/\s]+:\d+(,[^,:/\s]+:\d+)*$")
_YARN = "yarn"
_KUBERNETES_NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
# Spark's own defaults.
_REST_PORT = 6066
_WEB_PORT = 8080


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LocalSettings(_Settings):
    """Drivers are detached processes of this host."""

    type: Literal["local"] = "local"


class SparkSubmitSettings(_Settings):
    """Executors run on a standalone or a YARN cluster; the driver on this host, or on a host of the cluster."""

    type: Literal["spark-submit"] = "spark-submit"
    master: str | None = Field(
        default=None, description="spark://HOST:PORT, or yarn; if omitted: spark.master of the Spark settings"
    )
    deploy_mode: Literal["client", "cluster"] = Field(
        default="client", description="client: the driver is a process of this host; cluster: of a worker's host"
    )
    python: str | None = Field(
        default=None,
        description="Python with this package, a path that exists on all hosts; if omitted: the path of this Python",
    )
    archive: str | None = Field(
        default=None,
        description="a packed virtual environment (venv-pack, conda-pack) that is sent to the executors, in place of "
        "`python`; only with deploy_mode client",
    )
    address: str | None = Field(
        default=None,
        description="this host's address or name, which the executors can reach; if omitted: that of the route to the "
        "master; only with deploy_mode client",
    )
    rest_url: str | None = Field(
        default=None,
        pattern=r"^https?://\S+[^/\s]$",
        description=f"the master's REST server (spark.master.rest.enabled); if omitted: port {_REST_PORT} of the "
        "master; only with deploy_mode cluster",
    )
    web_url: str | None = Field(
        default=None,
        pattern=r"^https?://\S+[^/\s]$",
        description=f"the master's web page, by which logs are found, and drivers that were started again on "
        f"another worker; if omitted: port {_WEB_PORT} of the master; only with deploy_mode cluster",
    )

    @field_validator("master")
    @classmethod
    def _require_cluster(cls, master: str | None) -> str | None:
        if master is not None and not is_cluster(master):
            raise ValueError(f"{master!r} is no cluster; write spark://HOST:PORT or yarn")
        return master

    def master_in(self, spark_config: Mapping[str, str]) -> str:
        """Return the master; raise `GlassflowError` where neither these settings nor Spark's name a cluster."""
        master = self.master or spark_config.get("spark.master")
        if master is None or not is_cluster(master):
            raise GlassflowError(
                "runner spark-submit: no cluster is named; set its option master to spark://HOST:PORT or yarn"
            )
        return master

    def rest_server(self, master: str) -> str:
        """Return the URL of a standalone master's REST server."""
        return self.rest_url or f"http://{_first_host(master)}:{_REST_PORT}"

    def web_page(self, master: str) -> str:
        """Return the URL of a standalone master's web page."""
        return self.web_url or f"http://{_first_host(master)}:{_WEB_PORT}"


def _first_host(master: str) -> str:
    """Return the host of a standalone master, the first of several."""
    return master.removeprefix("spark://").split(",")[0].rpartition(":")[0]


class SecretKey(_Settings):
    """A key of a Kubernetes Secret."""

    name: str
    key: str


class KubernetesSettings(_Settings):
    """Driver and executors are pods, which an operator for Spark applications starts, and starts again."""

    type: Literal["kubernetes"] = "kubernetes"
    operator: Literal["kubeflow", "apache"] = Field(
        default="kubeflow", description="kubeflow: sparkoperator.k8s.io/v1beta2; apache: spark.apache.org/v1"
    )
    namespace: str = Field(default="default", pattern=_KUBERNETES_NAME, description="of all objects")
    image: str | None = Field(
        default=None, description="this project's image (Dockerfile); if omitted: glassflow-dagster:VERSION"
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = Field(
        default="IfNotPresent", description="when nodes fetch the image"
    )
    image_pull_secrets: tuple[str, ...] = Field(default=(), description="names of Secrets with the registry's login")
    service_account: str = Field(
        default="glassflow-driver", description="of the drivers, which start and watch the executors' pods"
    )
    executors: int | None = Field(
        default=None,
        ge=1,
        description="executors; if omitted: spark.executor.instances, else as many as the cores of the definition's "
        "resources need, else 1",
    )
    secrets: dict[str, SecretKey] = Field(
        default_factory=dict, description="environment variables of the drivers from Secrets: VARIABLE -> name, key"
    )
    variables: dict[str, str] = Field(default_factory=dict, description="further environment variables of the drivers")
    labels: dict[str, str] = Field(default_factory=dict, description="further labels of all objects and pods")
    node_selector: dict[str, str] = Field(default_factory=dict, description="labels of the nodes for the pods")
    scratch_size: str = Field(
        default="10Gi", description="the most that a pod may write to its disk: RocksDB's files, shuffle files"
    )
    context: str | None = Field(
        default=None, description="of the kubeconfig; if omitted: the cluster of this pod, else the current context"
    )


RunnerSettings: TypeAlias = LocalSettings | SparkSubmitSettings | KubernetesSettings
_ADAPTER: TypeAdapter[RunnerSettings] = TypeAdapter(Annotated[RunnerSettings, Field(discriminator="type")])
_MODELS: tuple[type[_Settings], ...] = (LocalSettings, SparkSubmitSettings, KubernetesSettings)
TYPES: tuple[str, ...] = tuple(model.model_fields["type"].default for model in _MODELS)


def is_cluster(master: str) -> bool:
    """Return whether a Spark master is one that the runner `spark-submit` can use."""
    return master == _YARN or bool(_STANDALONE.match(master))


def is_standalone(master: str) -> bool:
    """Return whether a Spark master is that of a standalone cluster."""
    return bool(_STANDALONE.match(master))


def runner_settings(raw: Mapping[str, Any], place: str) -> RunnerSettings:
    """Return the settings of a runner; raise `GlassflowError` for wrong ones. place: where they stand, for errors."""
    if raw.get("type") not in TYPES:
        raise GlassflowError(f"{place}: unknown runner {raw.get('type')!r}; use one of {', '.join(TYPES)}")
    try:
        return _ADAPTER.validate_python(dict(raw))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"][1:])
        reason = first["msg"].removeprefix("Value error, ")
        if first["type"] == "extra_forbidden":
            reason = f"runner {raw['type']} has no such option; it has {', '.join(_options(raw['type'])) or 'none'}"
        raise GlassflowError(f"{place}: {key}: {reason}") from None


def settings_of_options(name: str, pairs: Iterable[str]) -> RunnerSettings:
    """Return the settings of a command line. pairs: KEY=VALUE each, the value in YAML. Raises `GlassflowError`."""
    return runner_settings({"type": name, **_raw_options(name, pairs, "--runner-option")}, "--runner-option")


def settings_of_attributes(
    name: str | None, given: Mapping[str, Any], place: str, environment: Mapping[str, str] = os.environ
) -> RunnerSettings:
    """Return the settings of a component.

    name: its type; None for what the environment says, else `local`.
    given: the options, which take precedence over those of the environment.
    place: where they stand, for errors.
    Raises `GlassflowError`.
    """
    if name is not None:
        return runner_settings({"type": name, **given}, place)
    chosen = environment.get(RUNNER) or TYPES[0]
    options = _raw_options(chosen, environment.get(RUNNER_OPTIONS, "").split(), RUNNER_OPTIONS)
    return runner_settings({"type": chosen, **options, **given}, place if given else RUNNER)


def _raw_options(name: str, pairs: Iterable[str], place: str) -> dict[str, Any]:
    """Split KEY=VALUE texts; raise `GlassflowError` for one without "="."""
    raw: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or key == "type":
            raise GlassflowError(f"{place} {pair}: write KEY=VALUE, with a key of the runner {name}")
        try:
            raw[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raw[key] = value
    return raw


def _options(name: str) -> list[str]:
    """Return the names of a runner's options."""
    [model] = [each for each in _MODELS if each.model_fields["type"].default == name]
    return [key for key in model.model_fields if key != "type"]
