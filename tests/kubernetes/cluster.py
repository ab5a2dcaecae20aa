"""A Kubernetes cluster for tests, with this project's chart installed, and servers that its pods reach."""

import json
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from glassflow_dagster.control.runners.settings import KubernetesSettings
from tests.cluster.hosts import missing as missing_hosts
from tests.cluster.hosts import running_network
from tests.cluster.servers import Servers, running_servers
from tests.control.runners.crds import crd
from tests.kubernetes import programs
from tests.kubernetes.control_plane import ControlPlane, Refused, collection, running_control_plane
from tests.kubernetes.kubelet import Kubelet, running_kubelet
from tests.kubernetes.operators import OPERATORS, running_operators
from tests.support.waiting import wait_until

CHART = Path(__file__).parents[2] / "deploy" / "helm" / "glassflow-dagster"
RELEASE, NAMESPACE = "streams", "data"
# Of the chart: those that start the drivers, and those of the drivers.
LAUNCHER, DRIVER = f"{RELEASE}-code", f"{RELEASE}-driver"
STORE_SECRET = "store"
# Pods at once: those of a start, and those of the one before that still end.
_PODS = 10
_ACCESS = {"ServiceAccount", "Role", "RoleBinding"}


@dataclass(frozen=True)
class KubernetesCluster:
    """A running cluster. kubeconfig: of the service account that starts the drivers."""

    plane: ControlPlane
    kubelet: Kubelet
    servers: Servers
    kubeconfig: Path


def missing() -> str:
    """Return why no cluster can run here; empty where one can."""
    absent = [tool for tool in ("openssl", "setpriv") if shutil.which(tool) is None]
    return missing_hosts() or (f"not installed: {', '.join(absent)}" if absent else programs.missing())


@contextmanager
def running_kubernetes(folder: Path) -> Iterator[KubernetesCluster]:
    """Run a cluster with the definitions of both operators while the block runs."""
    names = [f"pod{number}" for number in range(_PODS)]
    with (
        running_network(folder / "network", names) as network,
        running_servers(folder / "servers", network.address) as servers,
        running_control_plane(folder / "control-plane", network.address) as plane,
    ):
        _install(plane, servers)
        kubeconfig = folder / "kubeconfig"
        plane.write_kubeconfig(kubeconfig, NAMESPACE, plane.account_token(NAMESPACE, LAUNCHER))
        with (
            running_kubelet(plane, network, folder / "node", NAMESPACE) as kubelet,
            # Ends before the node, so that no pod is started again.
            running_operators(plane, NAMESPACE, folder / "operators"),
        ):
            yield KubernetesCluster(plane, kubelet, servers, kubeconfig)


def _install(plane: ControlPlane, servers: Servers) -> None:
    """Add the definitions, the chart's accounts and their rights, and the store's keys as a Secret."""
    for operator in OPERATORS:
        plane.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd(operator))
    plane.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for manifest in chart_objects():
        if manifest["kind"] in _ACCESS:
            plane.apply(collection(manifest, NAMESPACE), manifest)
    keys = {name: b64encode(value.encode()).decode() for name, value in servers.store.items() if "_KEY" in name}
    authority = {"ca.crt": plane.certificate.read_text()}
    for kind, name, content in (("Secret", STORE_SECRET, keys), ("ConfigMap", "kube-root-ca.crt", authority)):
        manifest = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, "data": content}
        plane.apply(collection(manifest, NAMESPACE), manifest)
    wait_until(lambda: all(_serves(plane, operator.api_version) for operator in OPERATORS.values()), "both are served")


def _serves(plane: ControlPlane, api_version: str) -> bool:
    """Return whether the server knows an operator's applications."""
    try:
        plane.items(collection({"apiVersion": api_version, "kind": "SparkApplication"}, NAMESPACE))
    except Refused:
        return False
    return True


def kubernetes_settings(cluster: KubernetesCluster, operator: str) -> KubernetesSettings:
    """Return the settings of a runner for this cluster: the chart's accounts, and the store's keys from its Secret."""
    store = cluster.servers.store
    return KubernetesSettings.model_validate(
        {
            "operator": operator,
            "namespace": NAMESPACE,
            "service_account": DRIVER,
            "variables": {name: value for name, value in store.items() if "_KEY" not in name},
            "secrets": {name: {"name": STORE_SECRET, "key": name} for name in store if "_KEY" in name},
        }
    )


def chart_objects(**values: Any) -> list[dict[str, Any]]:
    """Return the objects of the chart, as helm renders them."""
    helm = str(programs.folder() / "helm")
    command = [helm, "template", RELEASE, str(CHART), "--namespace", NAMESPACE, "--values", "-"]
    done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=True)
    return [each for each in yaml.safe_load_all(done.stdout) if each]
