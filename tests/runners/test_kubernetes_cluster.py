"""The runner for Kubernetes with a real API server, which has the definitions of both operators.

There is no node and no operator: the test plays the operator where it writes an application's status or a driver's pod.
"""

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config

from glassflow_dagster.driver.process import Action, Ending, LaunchFailed, StreamState
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runners.choose import remote_runner_of
from glassflow_dagster.runners.kubernetes.names import application_name, driver_labels
from glassflow_dagster.runners.kubernetes.runner import KubernetesRunner
from tests.cluster.kubernetes import CONTEXT, missing, running_api_server
from tests.runners.crds import OPERATORS, crd
from tests.runners.test_kubernetes import PASSWORD, pipeline, runner
from tests.waiting import wait_until

pytestmark = [pytest.mark.servers, pytest.mark.long]
NAME = application_name("orders_eu")
GROUPS = {"kubeflow": "sparkoperator.k8s.io", "apache": "spark.apache.org"}
RUNNING = {
    "kubeflow": {"applicationState": {"state": "RUNNING"}},
    "apache": {"currentState": {"currentStateSummary": "RunningHealthy"}},
}


class Operator:
    """Plays an operator: reads applications, writes their status and their drivers' pods."""

    def __init__(self, kubeconfig: Path, operator: str, namespace: str) -> None:
        self.name, self.namespace = operator, namespace
        config.load_kube_config(str(kubeconfig), context=CONTEXT)
        self.core, self.objects = client.CoreV1Api(), client.CustomObjectsApi()
        self._place = (GROUPS[operator], OPERATORS[operator], namespace, "sparkapplications")
        self.core.create_namespace({"metadata": {"name": namespace}})

    def application(self) -> dict[str, Any] | None:
        found = self.objects.list_namespaced_custom_object(*self._place)["items"]
        return found[0] if found else None

    def run(self) -> None:
        """Start the driver of the application, once there is one, and say so."""
        wait_until(self.application, "there is an application")
        self.core.create_namespaced_pod(
            self.namespace,
            {
                "metadata": {"name": f"{NAME}-driver", "labels": driver_labels("orders_eu")},
                "spec": {"containers": [{"name": "spark-kubernetes-driver", "image": "none"}]},
            },
        )
        self.say(RUNNING[self.name])

    def say(self, status: dict[str, Any]) -> None:
        self.objects.patch_namespaced_custom_object_status(*self._place, NAME, {"status": status})

    def end(self) -> None:
        """End the driver once its application is deleted."""
        wait_until(lambda: self.application() is None, "the application is deleted")
        self.core.delete_namespaced_pod(f"{NAME}-driver", self.namespace, grace_period_seconds=0)


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if reason := missing():
        pytest.skip(reason)
    with running_api_server(tmp_path_factory.mktemp("kubernetes") / "server") as kubeconfig:
        config.load_kube_config(str(kubeconfig), context=CONTEXT)
        definitions = client.ApiextensionsV1Api()
        for operator in OPERATORS:
            created = definitions.create_custom_resource_definition(crd(operator))

            def established(name: str = created.metadata.name) -> bool:
                conditions = definitions.read_custom_resource_definition(name).status.conditions or []
                return any(each.type == "Established" and each.status == "True" for each in conditions)

            wait_until(established, f"the API server serves {operator}'s applications")
        yield kubeconfig


@pytest.fixture(params=OPERATORS)
def operator(kubeconfig: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    return Operator(kubeconfig, request.param, f"test-{os.urandom(4).hex()}")


def of(operator: Operator, folder: Path, log: str = "", timeout: float = 30) -> KubernetesRunner:
    """Return a runner for the operator's namespace. log: what drivers write; there are no nodes that have any."""
    built = runner(folder, operator=operator.name, namespace=operator.namespace, context=CONTEXT)
    logging = type("Logging", (KubernetesRunner,), {"log_of": lambda *_: log})
    fields = {**vars(built), "timeout": timeout}
    fields.pop("_cluster", None)
    found = logging(**fields)
    assert isinstance(found, KubernetesRunner)
    return found


UP = "2026-11-26 00:00:00 orders_eu is running"


def launched(operator: Operator, kubernetes: KubernetesRunner) -> None:
    playing = threading.Thread(target=operator.run)
    playing.start()
    assert kubernetes.launch(pipeline(), print).state is StreamState.RUNNING
    playing.join()


def test_a_stream_is_launched_left_alone_and_stopped(operator: Operator, tmp_path: Path) -> None:
    kubernetes = of(operator, tmp_path, UP)
    assert kubernetes.status(pipeline()).state is StreamState.STOPPED
    launched(operator, kubernetes)
    assert kubernetes.ensure_running(pipeline(), print)[1] is Action.HEALTH_CHECKED
    secret = operator.core.read_namespaced_secret(NAME, operator.namespace)
    assert set(secret.data) == {"submission.json"}
    budget = client.PolicyV1Api().read_namespaced_pod_disruption_budget(NAME, operator.namespace)
    assert budget.spec.min_available == 1
    assert PASSWORD not in str(operator.application())

    with pytest.raises(LaunchFailed, match="running already"):
        kubernetes.launch(pipeline(), print)

    ending = threading.Thread(target=operator.end)
    ending.start()
    stopping = of(operator, tmp_path)
    assert stopping.stop(pipeline()) is Ending.STOPPED
    ending.join()
    status = stopping.status(pipeline())
    assert (status.state, status.wanted) == (StreamState.STOPPED, False)
    assert operator.core.list_namespaced_secret(operator.namespace).items == []
    assert client.PolicyV1Api().list_namespaced_pod_disruption_budget(operator.namespace).items == []


def test_no_field_of_an_application_is_dropped(operator: Operator, tmp_path: Path) -> None:
    """An API server drops fields that a definition does not have, without an error."""
    kubernetes = of(operator, tmp_path, UP)
    launched(operator, kubernetes)
    [sent] = [each for each in kubernetes.manifests(pipeline()) if each["kind"] == "SparkApplication"]
    stored = operator.application()
    assert stored is not None
    assert contains(stored["spec"], sent["spec"]), (stored["spec"], sent["spec"])


def contains(stored: Any, sent: Any) -> bool:
    """Return whether all that was sent was stored; empty collections may be left out, and defaults added."""
    if isinstance(sent, dict):
        return all(not value or contains((stored or {}).get(key), value) for key, value in sent.items())
    if isinstance(sent, list):
        return len(stored or []) == len(sent) and all(contains(a, b) for a, b in zip(stored, sent, strict=True))
    return bool(stored == sent)


def test_an_edited_definition_is_a_new_application(operator: Operator, tmp_path: Path) -> None:
    kubernetes = of(operator, tmp_path, UP)
    launched(operator, kubernetes)
    before = operator.application()

    def replace() -> None:
        operator.end()
        operator.run()

    playing = threading.Thread(target=replace)
    playing.start()
    # Its log is that of a driver that runs, so that its end in good order is not seen.
    quiet = of(operator, tmp_path, UP)
    action = of_edit(quiet)
    playing.join()
    after = operator.application()
    assert action is Action.REDEPLOYED
    assert before
    assert after
    assert before["metadata"]["uid"] != after["metadata"]["uid"]


def of_edit(kubernetes: KubernetesRunner) -> Action:
    edited = pipeline(checks={"every": "0 * * * *"}, spark={"spark.x": "1"})
    return kubernetes.ensure_running(edited, print)[1]


def test_a_driver_that_fails_is_ended_with_its_reason(operator: Operator, tmp_path: Path) -> None:
    log = "2026-11-26 00:00:00 failed: table shop.orders does not exist; create it"
    kubernetes = of(operator, tmp_path, log)
    playing = threading.Thread(target=operator.run)
    playing.start()
    with pytest.raises(LaunchFailed, match=r"did not start: table shop\.orders does not exist; create it"):
        kubernetes.launch(pipeline(), print)
    playing.join()
    assert operator.application() is None
    assert operator.core.list_namespaced_pod(operator.namespace).items == []
    assert kubernetes.status(pipeline()).wanted


def test_an_application_that_no_operator_sees_says_so(operator: Operator, tmp_path: Path) -> None:
    kubernetes = of(operator, tmp_path, timeout=2)
    with pytest.raises(LaunchFailed, match="the operator has not seen it yet; is it installed"):
        kubernetes.launch(pipeline(), print)
    assert operator.application() is None


def test_the_commands_find_the_runner_by_its_note(operator: Operator, tmp_path: Path) -> None:
    kubernetes = of(operator, tmp_path, UP)
    launched(operator, kubernetes)
    remote = remote_runner_of(tmp_path, "orders_eu")
    assert isinstance(remote, KubernetesRunner)
    assert remote.status_of("orders_eu").state is StreamState.RUNNING
    assert remote.log_of("orders_eu") == ""


def test_a_cluster_without_the_operators_definition_is_named(operator: Operator, tmp_path: Path) -> None:
    definitions = client.ApiextensionsV1Api()
    name = f"sparkapplications.{GROUPS[operator.name]}"
    definitions.delete_custom_resource_definition(name)
    try:
        with pytest.raises(GlassflowError, match=r"the cluster has no SparkApplication of .*; install its operator"):
            of(operator, tmp_path).launch(pipeline(), print)
    finally:
        created: Any = None

        def create() -> bool:
            nonlocal created
            try:
                created = definitions.create_custom_resource_definition(crd(operator.name))
            except client.exceptions.ApiException:
                return False
            return True

        wait_until(create, "it is there again")


def test_a_cluster_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "nothing"))
    with pytest.raises(GlassflowError, match="runner kubernetes: no cluster is configured"):
        runner(tmp_path).launch(pipeline(), print)
