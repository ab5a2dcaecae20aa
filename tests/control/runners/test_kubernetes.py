"""The objects of the runner for Kubernetes, against the definitions that the operators publish."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from glassflow_dagster.control.deployment import DriverOptions
from glassflow_dagster.control.runners.choose import build_runner
from glassflow_dagster.control.runners.kubernetes.manifests import MAIN_FILE
from glassflow_dagster.control.runners.kubernetes.names import application_name
from glassflow_dagster.control.runners.kubernetes.runner import KubernetesRunner
from glassflow_dagster.control.runners.kubernetes.states import state_of
from glassflow_dagster.control.runners.settings import KubernetesSettings, SecretKey, settings_of_options
from glassflow_dagster.control.status import StreamState
from glassflow_dagster.control.submission import Submission
from glassflow_dagster.definition.load import load_written
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from tests.control.runners.crds import OPERATORS, schema
from tests.support import definition as v3

PROJECT = Path(__file__).parents[3]
CHART = PROJECT / "deploy" / "helm" / "glassflow-dagster"
PASSWORD = "not-for-everyone"
NAME_IN_KUBERNETES = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")


def pipeline(name: str = "orders_eu", **more: Any) -> PipelineConfig:
    clickhouse = {**v3.clickhouse(8123, "shop"), "password": PASSWORD}
    fields = [{"name": "id", "type": "string"}]
    sink = v3.sink({"id": "String"}, clickhouse, table="orders")
    more = {"state": "s3a://bucket/state", **more}
    return load_written(v3.definition(name, v3.source("orders", fields, "kafka:9092"), sink, **more), environment={})


def runner(folder: Path, spark_config: dict[str, str] | None = None, **settings: Any) -> KubernetesRunner:
    built = build_runner(KubernetesSettings(**settings), DriverOptions(folder, spark_config=spark_config or {}))
    assert isinstance(built, KubernetesRunner)
    return built


def by_kind(manifests: list[dict[str, Any]]) -> dict[str, Any]:
    return {manifest["kind"]: manifest for manifest in manifests}


FULL = {
    "namespace": "streams",
    "image": "registry.example.com/glassflow-dagster:1",
    "image_pull_secrets": ("registry",),
    "executors": 3,
    "secrets": {"AWS_SECRET_ACCESS_KEY": SecretKey(name="store", key="secret")},
    "variables": {"AWS_REGION": "eu-central-1"},
    "labels": {"team": "data"},
    "node_selector": {"disk": "ssd"},
}


@pytest.mark.parametrize("settings", [{}, FULL], ids=["defaults", "everything"])
@pytest.mark.parametrize("operator", OPERATORS)
def test_an_application_is_one_of_its_operators(tmp_path: Path, operator: str, settings: dict[str, Any]) -> None:
    objects = by_kind(runner(tmp_path, operator=operator, **settings).manifests(pipeline()))
    application = objects["SparkApplication"]
    jsonschema.validate(application, schema(operator))
    assert application["apiVersion"].endswith(f"/{OPERATORS[operator]}")
    assert set(objects) == {"Secret", "PodDisruptionBudget", "SparkApplication"}
    for each in objects.values():
        assert each["metadata"]["namespace"] == settings.get("namespace", "default")
        assert each["metadata"]["labels"].items() >= settings.get("labels", {}).items()


def test_the_schemas_do_not_take_what_a_cluster_would_drop(tmp_path: Path) -> None:
    for operator in OPERATORS:
        application = by_kind(runner(tmp_path, operator=operator).manifests(pipeline()))["SparkApplication"]
        application["spec"]["restartPolicies"] = "Always"
        with pytest.raises(jsonschema.ValidationError, match="restartPolicies"):
            jsonschema.validate(application, schema(operator))


@pytest.mark.parametrize("operator", OPERATORS)
def test_no_secret_is_in_the_application(tmp_path: Path, operator: str) -> None:
    """The definition's passwords are in its Secret, and further variables refer to Secrets of the user's."""
    config = pipeline()
    objects = by_kind(runner(tmp_path, operator=operator, **FULL).manifests(config))
    text = json.dumps(objects["SparkApplication"])
    assert PASSWORD not in text
    assert '"secretKeyRef": {"name": "store", "key": "secret"}' in text
    submission = Submission.model_validate_json(objects["Secret"]["stringData"]["submission.json"])
    assert submission.definition.load() == config
    assert config.fingerprint in text
    assert config.digest in text


def test_a_driver_is_started_again_whatever_its_end(tmp_path: Path) -> None:
    kubeflow, apache = (
        by_kind(runner(tmp_path, operator=operator).manifests(pipeline()))["SparkApplication"]["spec"]
        for operator in OPERATORS
    )
    assert kubeflow["restartPolicy"]["type"] == "Always"
    assert apache["applicationTolerations"]["restartConfig"]["restartPolicy"] == "Always"
    assert kubeflow["mainApplicationFile"] == apache["pyFiles"] == MAIN_FILE


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_pod_that_is_ended_lets_the_driver_finish_its_batch(tmp_path: Path, operator: str) -> None:
    spec = by_kind(runner(tmp_path, operator=operator).manifests(pipeline()))["SparkApplication"]["spec"]
    if operator == "kubeflow":
        lifecycle, grace = spec["driver"]["lifecycle"], spec["driver"]["terminationGracePeriodSeconds"]
    else:
        pod = spec["driverSpec"]["podTemplateSpec"]["spec"]
        lifecycle, grace = pod["containers"][0]["lifecycle"], pod["terminationGracePeriodSeconds"]
    assert lifecycle["preStop"]["exec"]["command"][:3] == ["glassflow-dagster", "stop", "orders_eu"]
    assert grace > 60


def test_sizes_are_those_of_the_spark_settings_else_of_the_resources(tmp_path: Path) -> None:
    resources = {"sources": [{"source_id": "orders", "replicas": 5}]}
    config = pipeline(resources=resources, spark={"spark.executor.cores": "2", "spark.driver.memory": "3g"})
    given = {"spark.executor.memory": "4g", "spark.executor.memoryOverhead": "700"}
    kubeflow = by_kind(runner(tmp_path, given).manifests(config))["SparkApplication"]["spec"]
    assert kubeflow["executor"]["instances"] == 3  # 5 cores, by 2
    assert (kubeflow["executor"]["cores"], kubeflow["executor"]["memory"]) == (2, "4g")
    assert kubeflow["executor"]["memoryOverhead"] == "700m"
    assert kubeflow["driver"]["memory"] == "3g"
    apache = by_kind(runner(tmp_path, given, operator="apache").manifests(config))["SparkApplication"]["spec"]
    assert apache["sparkConf"]["spark.executor.instances"] == "3"
    assert apache["sparkConf"]["spark.driver.memory"] == "3g"


def test_a_size_that_is_no_number_is_named(tmp_path: Path) -> None:
    with pytest.raises(GlassflowError, match=r"spark\.executor\.cores: 'many' is no number of one or more"):
        runner(tmp_path, {"spark.executor.cores": "many"}).manifests(pipeline())


def test_a_pod_without_a_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GlassflowError, match="other hosts cannot reach a local folder of state"):
        runner(tmp_path).manifests(pipeline(state=None))


@pytest.mark.parametrize("name", ["orders", "Orders", "orders_eu", "orders-eu", "o" * 100, "orders-eu-", "ORDERS_EU"])
def test_a_name_is_one_in_kubernetes(name: str) -> None:
    found = application_name(name)
    assert NAME_IN_KUBERNETES.match(found), found
    # With what the operators and Spark append.
    assert len(f"{found}-driver-svc") <= 63


def test_different_pipelines_have_different_names() -> None:
    names = ["orders", "Orders", "orders_eu", "orders-eu", "Orders_eu", "o" * 99, "o" * 100]
    assert len({application_name(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("application", "state"),
    [
        ({"apiVersion": "sparkoperator.k8s.io/v1beta2"}, StreamState.STARTING),
        ({"status": {"applicationState": {"state": "RUNNING"}}}, StreamState.RUNNING),
        ({"status": {"applicationState": {"state": "PENDING_RERUN"}}}, StreamState.STARTING),
        ({"status": {"applicationState": {"state": "FAILED", "errorMessage": "no\nnode"}}}, StreamState.FAILED),
        ({"apiVersion": "spark.apache.org/v1", "status": {}}, StreamState.STARTING),
        (
            {
                "apiVersion": "spark.apache.org/v1",
                "status": {"currentState": {"currentStateSummary": "RunningHealthy", "message": "fine"}},
            },
            StreamState.RUNNING,
        ),
    ],
)
def test_the_state_is_what_the_operator_says(application: dict[str, Any], state: StreamState) -> None:
    assert state_of(application)[0] is state


def test_a_reason_of_the_operators_is_one_line() -> None:
    application = {"status": {"applicationState": {"state": "FAILED", "errorMessage": "no\nnode"}}}
    assert state_of(application)[1] == "its driver has failed: no"


def test_every_state_of_the_definition_is_known() -> None:
    status = schema("apache")["properties"]["status"]["properties"]
    for word in status["currentState"]["properties"]["currentStateSummary"]["enum"]:
        message = state_of(
            {"apiVersion": "spark.apache.org/v1", "status": {"currentState": {"currentStateSummary": word}}}
        )[1]
        assert not message.startswith("the operator says"), word


def helm(*arguments: str) -> str:
    program = shutil.which("helm")
    if program is None:
        pytest.skip("helm is not installed")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_chart_passes_helms_checks() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize(
    "values",
    [
        {},
        {
            "pipelines": {"orders.yaml": "pipeline_id: orders\n"},
            "secrets": {"AWS_SECRET_ACCESS_KEY": {"name": "store", "key": "secret"}},
            "variables": {"AWS_REGION": "eu-central-1"},
            "image": {"pullSecrets": ["registry"]},
            "driver": {"nodeSelector": {"disk": "ssd"}, "labels": {"team": "data"}},
        },
        {"codeLocation": {"enabled": False}, "launchers": [{"name": "dagster", "namespace": "dagster"}]},
    ],
)
def test_the_chart_gives_the_code_settings_that_its_runner_takes(tmp_path: Path, values: dict[str, Any]) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    text = helm("template", "streams", str(CHART), "--namespace", "data", "--values", str(file))
    objects = [each for each in yaml.safe_load_all(text) if each]
    accounts = {each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"}
    assert "streams-driver" in accounts
    deployments = [each for each in objects if each["kind"] == "Deployment"]
    assert len(deployments) == int(values.get("codeLocation", {}).get("enabled", True))
    for deployment in deployments:
        [container] = deployment["spec"]["template"]["spec"]["containers"]
        variables = {each["name"]: each.get("value") for each in container["env"]}
        settings = settings_of_options(variables["GLASSFLOW_RUNNER"], variables["GLASSFLOW_RUNNER_OPTIONS"].split())
        assert isinstance(settings, KubernetesSettings)
        assert settings.namespace == "data"
        assert settings.service_account == "streams-driver"
        assert settings.image == container["image"]
        assert settings.secrets.keys() == values.get("secrets", {}).keys()
        assert settings.node_selector == values.get("driver", {}).get("nodeSelector", {})
