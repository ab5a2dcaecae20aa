"""The requests to a Kubernetes cluster, by its official client."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import Any

from glassflow_dagster.control.runners.kubernetes.names import MANAGER, selector_of
from glassflow_dagster.errors import GlassflowError

_GONE = 404
_ANSWER_SECONDS = 15
_ENDED = frozenset({"Succeeded", "Failed"})


class KubernetesCluster:
    """A namespace of a cluster. context: of the kubeconfig; None for the cluster of this pod, else the current one.

    Every method raises `GlassflowError` where the cluster does not answer or refuses.
    """

    def __init__(self, namespace: str, context: str | None) -> None:
        self.namespace = namespace
        self._context = context

    def apply(self, manifests: Sequence[Mapping[str, Any]]) -> None:
        """Create or change objects (server-side apply), so that this project's fields are as in the manifests."""
        with self._errors():
            for manifest in manifests:
                resource = self._resource(manifest["apiVersion"], manifest["kind"])
                self._dynamic.server_side_apply(
                    resource,
                    body=dict(manifest),
                    name=manifest["metadata"]["name"],
                    namespace=self.namespace,
                    field_manager=MANAGER,
                    force_conflicts=True,
                    _request_timeout=_ANSWER_SECONDS,
                )

    def get(self, api_version: str, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object; None where there is none."""
        with self._errors():
            try:
                found = self._resource(api_version, kind).get(
                    name=name, namespace=self.namespace, _request_timeout=_ANSWER_SECONDS
                )
            except self._client.exceptions.ApiException as error:
                if error.status == _GONE:
                    return None
                raise
            content: dict[str, Any] = found.to_dict()
            return content

    def delete(self, api_version: str, kind: str, name: str) -> None:
        """Delete an object, if it is there; what belongs to it is deleted in the background."""
        with self._errors():
            try:
                self._resource(api_version, kind).delete(
                    name=name, namespace=self.namespace, _request_timeout=_ANSWER_SECONDS
                )
            except self._client.exceptions.ApiException as error:
                if error.status != _GONE:
                    raise

    def pods(self, labels: Mapping[str, str]) -> list[str]:
        """Return the names of the pods with these labels, the oldest first; those that have ended still have a log."""
        return [pod.metadata.name for pod in self._listed(labels)]

    def ended_pods(self, labels: Mapping[str, str]) -> list[str]:
        """Return the names of the pods with these labels that have ended."""
        return [pod.metadata.name for pod in self._listed(labels) if pod.status.phase in _ENDED]

    def has_live_pod(self, labels: Mapping[str, str]) -> bool:
        """Return whether a pod with these labels has not ended."""
        return any(pod.status.phase not in _ENDED for pod in self._listed(labels))

    def delete_pod(self, name: str) -> None:
        """Delete a pod at once, without its hooks."""
        with self._errors():
            try:
                self._core.delete_namespaced_pod(
                    name, self.namespace, grace_period_seconds=0, _request_timeout=_ANSWER_SECONDS
                )
            except self._client.exceptions.ApiException as error:
                if error.status != _GONE:
                    raise

    def log(self, pod: str, lines: int) -> str:
        """Return the last lines of a pod's log; empty where it has none yet."""
        with self._errors():
            try:
                return str(
                    self._core.read_namespaced_pod_log(
                        pod, self.namespace, tail_lines=lines, _request_timeout=_ANSWER_SECONDS
                    )
                )
            except self._client.exceptions.ApiException:
                # Its container has not started, or the pod was removed meanwhile.
                return ""

    def _listed(self, labels: Mapping[str, str]) -> list[Any]:
        """Return the pods with these labels, the oldest first."""
        with self._errors():
            found = self._core.list_namespaced_pod(
                self.namespace, label_selector=selector_of(labels), _request_timeout=_ANSWER_SECONDS
            )
            return sorted(found.items, key=lambda pod: pod.metadata.creation_timestamp)

    @cached_property
    def _client(self) -> ModuleType:
        """Return the client's package, an extra; raises `GlassflowError` where it is not installed."""
        try:
            return import_module("kubernetes.client")
        except ImportError:
            raise GlassflowError(
                "the client of Kubernetes is not installed; run: pip install 'glassflow-dagster[kubernetes]'"
            ) from None

    @cached_property
    def _api(self) -> Any:
        """Return the connection; raises `GlassflowError` without a configuration."""
        client, config = self._client, import_module("kubernetes.config")
        configuration = client.Configuration()
        try:
            if self._context is None:
                try:
                    config.load_incluster_config(client_configuration=configuration)
                except config.ConfigException:
                    config.load_kube_config(client_configuration=configuration)
            else:
                config.load_kube_config(context=self._context, client_configuration=configuration)
        except config.ConfigException as error:
            raise GlassflowError(
                f"runner kubernetes: no cluster is configured ({error}); run it in a pod, or set KUBECONFIG"
            ) from None
        return client.ApiClient(configuration)

    @cached_property
    def _dynamic(self) -> Any:
        """Return the client for objects of any kind."""
        return import_module("kubernetes.dynamic").DynamicClient(self._api)

    @cached_property
    def _core(self) -> Any:
        return self._client.CoreV1Api(self._api)

    def _resource(self, api_version: str, kind: str) -> Any:
        """Return the resource of a kind; raises `GlassflowError` where the cluster does not know it."""
        dynamic = self._dynamic
        try:
            return dynamic.resources.get(api_version=api_version, kind=kind)
        except import_module("kubernetes.dynamic.exceptions").ResourceNotFoundError:
            raise GlassflowError(
                f"the cluster has no {kind} of {api_version}; install its operator, or set the runner's option operator"
            ) from None

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn the errors of the client into a `GlassflowError`."""
        exceptions = self._client.exceptions
        try:
            yield
        except exceptions.ApiException as error:
            reason = " ".join(str(error.body or error.reason).split())
            raise GlassflowError(
                f"namespace {self.namespace}: the cluster refuses ({error.status}): {reason}"
            ) from None
        except (import_module("urllib3.exceptions").HTTPError, OSError) as error:
            raise GlassflowError(f"namespace {self.namespace}: the cluster does not answer: {error}") from None
