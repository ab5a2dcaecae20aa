"""The settings of the runners, of a command line, the environment and the component."""

from typing import Any

import pytest

from glassflow_dagster.control.runners.settings import (
    KubernetesSettings,
    LocalSettings,
    SparkSubmitSettings,
    settings_of_attributes,
    settings_of_options,
)
from glassflow_dagster.errors import GlassflowError

MASTER = "spark://10.0.0.1:7077"


def test_options_are_the_runners_own() -> None:
    assert settings_of_options("local", ()) == LocalSettings()
    found = settings_of_options("spark-submit", [f"master={MASTER}", "deploy_mode=cluster"])
    assert found == SparkSubmitSettings(master=MASTER, deploy_mode="cluster")


def test_a_value_is_yaml() -> None:
    pairs = ["executors=3", 'secrets={"KEY":{"name":"store","key":"secret"}}', "namespace=streams"]
    found = settings_of_options("kubernetes", pairs)
    assert isinstance(found, KubernetesSettings)
    assert (found.executors, found.namespace, found.secrets["KEY"].name) == (3, "streams", "store")


@pytest.mark.parametrize(
    ("name", "pairs", "text"),
    [
        ("mesos", [], "--runner-option: unknown runner 'mesos'; use one of local, spark-submit, kubernetes"),
        ("spark-submit", ["master"], "--runner-option master: write KEY=VALUE, with a key of the runner spark-submit"),
        ("local", ["master=x"], "--runner-option: master: runner local has no such option; it has none"),
        (
            "spark-submit",
            ["memory=2g"],
            "--runner-option: memory: runner spark-submit has no such option; it has master, deploy_mode, python, arch",
        ),
        (
            "spark-submit",
            ["master=local[2]"],
            "--runner-option: master: 'local[2]' is no cluster; write spark://HOST:PORT or yarn",
        ),
        ("kubernetes", ["namespace=A_B"], "--runner-option: namespace: String should match pattern"),
    ],
)
def test_a_wrong_option_is_named(name: str, pairs: list[str], text: str) -> None:
    with pytest.raises(GlassflowError) as found:
        settings_of_options(name, pairs)
    assert str(found.value).startswith(text)


def test_the_environment_counts_where_the_component_names_no_type() -> None:
    environment = {
        "GLASSFLOW_RUNNER": "spark-submit",
        "GLASSFLOW_RUNNER_OPTIONS": f"master={MASTER} deploy_mode=cluster",
    }
    found = settings_of_attributes(None, {"deploy_mode": "client"}, "attributes.runner", environment)
    assert found == SparkSubmitSettings(master=MASTER, deploy_mode="client")
    assert settings_of_attributes("local", {}, "attributes.runner", environment) == LocalSettings()
    assert settings_of_attributes(None, {}, "attributes.runner", {}) == LocalSettings()


@pytest.mark.parametrize("variables", [{"GLASSFLOW_RUNNER": "mesos"}, {"GLASSFLOW_RUNNER_OPTIONS": "a"}])
def test_a_wrong_variable_is_named(variables: dict[str, Any]) -> None:
    [name] = variables
    with pytest.raises(GlassflowError, match=f"^{name}"):
        settings_of_attributes(None, {}, "attributes.runner", variables)


def test_the_addresses_of_a_master_follow_from_it() -> None:
    settings = SparkSubmitSettings()
    several = "spark://one:7077,two:7077"
    assert settings.rest_server(several) == "http://one:6066"
    assert settings.web_page(several) == "http://one:8080"
    given = SparkSubmitSettings(rest_url="https://proxy/rest", web_url="https://proxy/web")
    assert (given.rest_server(several), given.web_page(several)) == ("https://proxy/rest", "https://proxy/web")
