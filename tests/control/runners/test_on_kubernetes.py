"""What a Kubernetes cluster sees of a stream, beside the contract: rights, secrets, runs of Dagster that end."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlencode

import pytest

from glassflow_dagster.control.launch import Action, LaunchFailed
from glassflow_dagster.control.runners.kubernetes.names import application_name, driver_labels, selector_of
from glassflow_dagster.control.runners.kubernetes.runner import KubernetesRunner
from glassflow_dagster.control.status import StreamState
from glassflow_dagster.control.stop import Ending
from tests.control.runners.conftest import KUBERNETES, THREADS_FAIL, Place
from tests.control.runners.test_contract import send, wait_for_rows
from tests.kubernetes.cluster import DRIVER, LAUNCHER, NAMESPACE, KubernetesCluster, chart_objects
from tests.kubernetes.control_plane import ControlPlane, Refused, collection
from tests.kubernetes.operators import OPERATORS
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.servers,
    pytest.mark.long,
    THREADS_FAIL,
    pytest.mark.skipif(not KUBERNETES, reason="builds a kube-apiserver: make test-kubernetes"),
]
_PODS, _SECRETS = (f"/api/v1/namespaces/{NAMESPACE}/{kind}" for kind in ("pods", "secrets"))
_POD = {"restartPolicy": "Never", "serviceAccountName": DRIVER, "automountServiceAccountToken": False}
# A run of Dagster in a process of its own, as in a pod of its own.
_RUN = """
import json, sys
from pathlib import Path
import dagster as dg
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.orchestration.build_definitions import build_pipeline_assets
from glassflow_dagster.control.runners.choose import build_runner
from glassflow_dagster.control.deployment import DriverOptions
from glassflow_dagster.control.runners.settings import KubernetesSettings
definition, state, settings, spark = sys.argv[1:]
options = DriverOptions(Path(state), spark_config=json.loads(spark))
runner = build_runner(KubernetesSettings.model_validate_json(settings), options)
assets = build_pipeline_assets(load_pipeline(Path(definition)), runner=runner)
assert dg.materialize([assets]).success
"""


def of_account(plane: ControlPlane, account: str) -> ControlPlane:
    """Return the API as a service account sees it."""
    return ControlPlane(plane.address, plane.certificates, plane.account_token(NAMESPACE, account))


@pytest.mark.parametrize(
    ("account", "method", "path"),
    [
        (LAUNCHER, "GET", _SECRETS),
        (LAUNCHER, "POST", _PODS),
        (LAUNCHER, "GET", "/api/v1/namespaces/default/pods"),
        (DRIVER, "GET", _SECRETS),
        (DRIVER, "GET", OPERATORS["kubeflow"].path(NAMESPACE)),
    ],
)
def test_the_charts_accounts_have_no_further_rights(
    kubernetes: KubernetesCluster, account: str, method: str, path: str
) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}} if method == "POST" else None
    with pytest.raises(Refused) as refused:
        of_account(kubernetes.plane, account).request(method, path, body)
    assert refused.value.code == 403


@pytest.mark.parametrize("kind", KUBERNETES)
def test_the_log_of_a_driver_that_has_ended_is_read_but_not_taken_for_that_of_the_next(
    place_of: Callable[[str], Place], kind: str
) -> None:
    place = place_of(kind)
    assert place.kubernetes
    plane, name = place.kubernetes.plane, place.pipeline.name
    labels = driver_labels(name)
    old = json.dumps({"message": f"{name} is running"})
    container = {"name": "driver", "image": "none", "command": ["echo", old]}
    # Without an owner, no garbage collector removes it.
    metadata = {"name": f"{application_name(name)}-old", "labels": labels}
    spec = {**_POD, "containers": [container]}
    plane.request("POST", _PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    wait_until(lambda: _pods(place, selector_of(labels)) == ["Succeeded"], "it has ended")
    assert place.runner.logs(place.config()).strip() == old
    assert place.state() is StreamState.STOPPED
    assert place.runner.stop(place.config()) is Ending.NOT_RUNNING

    assert place.launch().state is StreamState.RUNNING
    assert len(place.drivers()) == 1
    # What is printed for people finds the pod of the driver alone.
    status = place.runner.status(place.config())
    [selector] = re.findall(r"--selector (\S+)", status.log_place or "")
    assert _pods(place, selector) == ["Running"]


def _pods(place: Place, selector: str) -> list[str]:
    """Return the phases of the pods that a selector finds."""
    assert place.kubernetes
    found = place.kubernetes.plane.items(f"{_PODS}?{urlencode({'labelSelector': selector})}")
    return [pod["status"]["phase"] for pod in found]


@pytest.mark.parametrize("kind", KUBERNETES)
def test_keys_are_in_secrets_alone_and_the_stream_outlives_the_run_that_launched_it(
    place_of: Callable[[str], Place], kind: str
) -> None:
    place = place_of(kind)
    assert place.kubernetes
    assert isinstance(place.runner, KubernetesRunner)
    plane, name = place.kubernetes.plane, place.pipeline.name
    settings, spark = place.runner.settings.model_dump_json(), json.dumps(place.runner.spark_config)
    subprocess.run(
        [sys.executable, "-c", _RUN, str(place.pipeline.file), str(place.pipeline.state), settings, spark],
        env={**os.environ, "KUBECONFIG": str(place.kubernetes.kubeconfig)},
        check=True,
        timeout=540,
    )
    [driver] = place.drivers()
    send(place, 0, 50)
    wait_for_rows(place, 50)
    assert place.drivers() == [driver]

    [key] = [value for variable, value in place.kubernetes.servers.store.items() if "SECRET" in variable]
    applications = plane.items(OPERATORS[kind].path(NAMESPACE))
    kinds = ("pods", "configmaps", "services")
    others = [each for each_kind in kinds for each in plane.items(f"/api/v1/namespaces/{NAMESPACE}/{each_kind}")]
    assert application_name(name) in {each["metadata"]["name"] for each in applications}
    assert key not in json.dumps([*applications, *others])
    lines = place.kubernetes.kubelet.processes({})
    assert not [line for line in lines.values() if key in line]


@pytest.mark.parametrize("kind", KUBERNETES)
def test_what_the_operator_could_not_start_is_started_once_the_cause_is_gone(
    place_of: Callable[[str], Place], kind: str
) -> None:
    place = place_of(kind)
    assert place.kubernetes
    assert isinstance(place.runner, KubernetesRunner)
    plane, account = place.kubernetes.plane, f"later-{kind}"
    settings = place.runner.settings.model_copy(update={"service_account": account})
    place = replace(place, runner=replace(place.runner, settings=settings))
    with pytest.raises(LaunchFailed, match="could not"):
        place.launch()
    assert place.state() is StreamState.FAILED

    add_account(plane, account)
    status, action = place.ensure()
    assert (status.state, action) == (StreamState.RUNNING, Action.RESTARTED)
    assert len(place.drivers()) == 1


def add_account(plane: ControlPlane, account: str) -> None:
    """Add a service account with the rights of the chart's for drivers."""
    [binding] = [
        manifest
        for manifest in chart_objects()
        if manifest["kind"] == "RoleBinding" and [each["name"] for each in manifest["subjects"]] == [DRIVER]
    ]
    binding["metadata"]["name"] = binding["subjects"][0]["name"] = account
    manifest = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
    for each in (manifest, binding):
        plane.apply(collection(each, NAMESPACE), each)
