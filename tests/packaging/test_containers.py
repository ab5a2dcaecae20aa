"""The containers, as far as they can be checked without a Docker engine.

Every name that one file uses of another (a path, a variable, a service, a port, a command's option) is looked up where
it is defined. Not tested: the images themselves, and that they start.
"""

import base64
import re
import shlex
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
import yaml

# There are no public names for the schemas of dagster.yaml and workspace.yaml.
from dagster._core.instance.config import dagster_instance_config
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster_postgres.utils import get_conn_string
from sqlalchemy import create_engine

from glassflow_dagster.definition.load import load_pipeline

PROJECT = Path(__file__).parents[2]
WORKDIR = "/opt/glassflow"
DAGSTER = ("pipelines", "webserver", "daemon")
# Those that run the project's image.
OWN = (*DAGSTER, "metrics")

Service = dict[str, Any]


def interpolated(text: str) -> str:
    """Fill in the defaults of variables, as Compose does when none is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text).replace("$$", "$")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load(interpolated((PROJECT / "docker-compose.yml").read_text())))


@pytest.fixture(scope="module")
def services(compose: dict[str, Any]) -> dict[str, Service]:
    return dict(compose["services"])


@pytest.fixture(scope="module")
def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions as (name, arguments)."""
    lines = [line for line in (PROJECT / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in joined.splitlines() if line)]


@pytest.fixture(scope="module")
def image_variables(instructions: list[tuple[str, str]]) -> dict[str, str]:
    pairs = [pair for name, rest in instructions if name == "ENV" for pair in shlex.split(rest)]
    return dict(pair.split("=", 1) for pair in pairs)


def ignored(path: str) -> bool:
    """Return whether .dockerignore excludes a path; the last pattern that matches it or a parent decides."""
    found = False
    parents = [path, *(str(parent) for parent in Path(path).parents)]
    for line in (PROJECT / ".dockerignore").read_text().split():
        pattern, kept = line.removeprefix("!").removeprefix("**/"), line.startswith("!")
        if any(fnmatch(name, pattern) or fnmatch(Path(name).name, pattern) for name in parents):
            found = not kept
    return found


def test_the_build_finds_what_it_copies(instructions: list[tuple[str, str]]) -> None:
    sources = [source for name, rest in instructions if name == "COPY" for source in rest.split()[:-1]]
    assert sources
    assert [source for source in sources if not (PROJECT / source).exists()] == []
    assert [source for source in sources if ignored(source)] == []


def test_the_build_has_all_that_goes_into_the_wheel(instructions: list[tuple[str, str]]) -> None:
    settings = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = [rest.split() for name, rest in instructions if name == "COPY"]
    targets = {target for *_, target in copied} | {f"{target}{s}" for *sources, target in copied for s in sources}
    needed = [*wheel["packages"], *wheel["force-include"]]
    places = {path: {f"source/{path}", f"source/{Path(path).parent}"} for path in needed}
    assert [path for path, of_path in places.items() if not of_path & targets] == []


def test_nothing_of_a_checkouts_data_goes_into_the_build() -> None:
    data = (".venv/bin/python", ".glassflow/kafka", ".git/config", ".env", "tests", "pipelines/.api/audit.jsonl")
    assert all(map(ignored, data))
    assert not ignored("glassflow_dagster/stream/scala/state/ProcessingTimeDedup.scala")


def test_one_service_builds_the_image_that_all_of_the_project_runs(services: dict[str, Service]) -> None:
    assert [name for name, service in services.items() if "build" in service] == ["pipelines"]
    assert len({services[name]["image"] for name in OWN}) == 1
    # The other services use images from a registry, with a version.
    assert [s["image"] for n, s in services.items() if n not in OWN and not re.search(r":v?\d", s["image"])] == []


def test_volumes_are_declared_and_used(compose: dict[str, Any], services: dict[str, Service]) -> None:
    sources = [volume.split(":")[0] for service in services.values() for volume in service.get("volumes", [])]
    assert {source for source in sources if not source.startswith(".")} == set(compose["volumes"])
    assert [source for source in sources if source.startswith(".") and not (PROJECT / source).exists()] == []


def test_volumes_cover_folders_that_belong_to_the_images_user(
    services: dict[str, Service], instructions: list[tuple[str, str]]
) -> None:
    """A new named volume gets the owner of the folder it is mounted on, and root when there is no such folder."""
    script = next(rest for name, rest in instructions if name == "RUN" and "useradd" in rest)
    made = {f"{WORKDIR}/{folder}" for folder in re.findall(r"mkdir -p ([^&]+)", script)[0].split()}
    owned = {f"{WORKDIR}/{folder}" for folder in re.findall(r"chown -R glassflow ([^&]+)", script)[0].split()}
    targets = {v.split(":")[1] for v in services["pipelines"]["volumes"] if not v.startswith(".")}
    assert targets == made
    assert all(any(Path(target).is_relative_to(folder) for folder in owned) for target in targets)
    assert [rest for name, rest in instructions if name == "USER"] == ["glassflow"]


def test_the_images_variables_name_its_folders(
    image_variables: dict[str, str], services: dict[str, Service], instructions: list[tuple[str, str]]
) -> None:
    assert ("WORKDIR", WORKDIR) in instructions
    targets = [volume.split(":")[1] for volume in services["pipelines"]["volumes"]]
    assert image_variables["GLASSFLOW_STATE"] in targets
    assert image_variables["GLASSFLOW_PIPELINES"] in targets
    assert f"{image_variables['DAGSTER_HOME']}/storage" in targets
    copied = [rest.split()[-1] for name, rest in instructions if name == "COPY"]
    assert f"{Path(image_variables['DAGSTER_HOME']).relative_to(WORKDIR)}/dagster.yaml" in copied


def test_the_projects_variables_are_those_that_the_code_reads(
    image_variables: dict[str, str], services: dict[str, Service]
) -> None:
    code = "".join(file.read_text() for file in (PROJECT / "glassflow_dagster").rglob("*.py"))
    names = {*image_variables, *services["pipelines"]["environment"]}
    assert [name for name in sorted(names) if name.startswith("GLASSFLOW_") and name not in code] == []


def test_services_wait_for_services_that_say_when_they_are_healthy(services: dict[str, Service]) -> None:
    dependencies = [entry for service in services.values() for entry in service.get("depends_on", {}).items()]
    assert dependencies
    for name, how in dependencies:
        assert how == {"condition": "service_healthy"}
        assert services[name]["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")


@pytest.mark.servers
@pytest.mark.parametrize("name", OWN)
def test_the_commands_have_the_options_that_they_are_given(services: dict[str, Service], name: str) -> None:
    """Click parses all options before --help, so a wrong one is an error."""
    program, *arguments = services[name]["command"]
    command = [str(Path(sys.executable).with_name(program)), *arguments, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_dagster_takes_the_instances_configuration(
    services: dict[str, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (PROJECT / "deploy" / "dagster.yaml").read_text()
    given = services["pipelines"]["environment"]
    assert set(re.findall(r"env: (\w+)", text)) == {name for name in given if name.startswith("DAGSTER_")}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    config, _ = dagster_instance_config(str(PROJECT / "deploy"))
    assert config["concurrency"]["pools"] == {"default_limit": 1, "granularity": "run"}


def test_the_databases_driver_is_installed(services: dict[str, Service]) -> None:
    """SQLAlchemy's default driver is not the one that dagster-postgres installs; creating an engine needs no server."""
    given = services["pipelines"]["environment"]
    parts = yaml.safe_load((PROJECT / "deploy" / "dagster.yaml").read_text())["storage"]["postgres"]["postgres_db"]
    known = {name: given[part["env"]] if isinstance(part, dict) else part for name, part in parts.items()}
    assert create_engine(get_conn_string(**known)).dialect.driver == "psycopg2"


def test_dagster_and_its_database_know_each_other(services: dict[str, Service]) -> None:
    given, database = services["pipelines"]["environment"], services["postgres"]["environment"]
    assert given["DAGSTER_POSTGRES_HOST"] in services
    for part in ("USER", "PASSWORD", "DB"):
        assert given[f"DAGSTER_POSTGRES_{part}"] == database[f"POSTGRES_{part}"]


def test_the_workspace_names_the_service_that_serves_the_code(services: dict[str, Service]) -> None:
    [origin] = WorkspaceFileTarget(paths=[str(PROJECT / "deploy" / "workspace.yaml")]).create_origins()
    command = services[origin.host]["command"]
    assert command[command.index("--port") + 1] == str(origin.port)
    assert command[command.index("--location-name") + 1] == origin.location_name
    assert str(origin.port) in services[origin.host]["healthcheck"]["test"][-1]


@pytest.mark.parametrize("file", sorted((PROJECT / "pipelines").glob("*.yaml")), ids=lambda file: file.stem)
def test_the_shipped_pipelines_go_to_the_composed_servers(services: dict[str, Service], file: Path) -> None:
    config = load_pipeline(file, services["pipelines"]["environment"])
    [broker] = config.source.connection_params.brokers
    assert f"INTERNAL://{broker}" in services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    connection, server = config.sink.connection_params, services["clickhouse"]["environment"]
    assert (connection.host, connection.http) == ("clickhouse", 8123)
    assert connection.username == server["CLICKHOUSE_USER"]
    assert connection.password.get_secret_value() == server["CLICKHOUSE_PASSWORD"]
    # Pipelines create their tables and databases.
    assert config.sink.create_table is not None


def test_kafka_keeps_its_log_in_its_volume_and_knows_its_own_listeners(services: dict[str, Service]) -> None:
    kafka = services["kafka"]["environment"]
    [volume] = services["kafka"]["volumes"]
    assert kafka["KAFKA_LOG_DIRS"] == volume.split(":")[1]
    assert len(base64.urlsafe_b64decode(kafka["CLUSTER_ID"] + "==")) == 16
    mapped = {pair.split(":")[0] for pair in kafka["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")}
    listeners = {listener.split(":")[0] for listener in kafka["KAFKA_LISTENERS"].split(",")}
    advertised = {listener.split(":")[0] for listener in kafka["KAFKA_ADVERTISED_LISTENERS"].split(",")}
    assert listeners == mapped
    assert advertised == listeners - {kafka["KAFKA_CONTROLLER_LISTENER_NAMES"]}


def test_kafka_is_the_version_that_is_tested_here(services: dict[str, Service]) -> None:
    ivy = (PROJECT / "glassflow_dagster" / "runtime" / "ivy.xml").read_text()
    tested = re.findall(r'name="kafka_2.13" rev="([^"]+)"', ivy)
    assert [services["kafka"]["image"].partition(":")[2]] == tested


def test_only_this_host_reaches_the_ports(services: dict[str, Service]) -> None:
    ports = [port for service in services.values() for port in service.get("ports", [])]
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)


def mounted(services: dict[str, Service], name: str) -> dict[str, Path]:
    """Return the files and folders of the project that a service mounts, by their paths in the container."""
    volumes = [volume.split(":") for volume in services[name]["volumes"] if volume.startswith(".")]
    return {target: PROJECT / source for source, target, *_ in volumes}


def file_in_container(services: dict[str, Service], name: str, path: str) -> Path:
    """Return the project's file that a service has under a path."""
    for target, source in mounted(services, name).items():
        if Path(path).is_relative_to(target):
            return source / Path(path).relative_to(target)
    raise AssertionError(f"{name}: nothing is mounted at {path}")


def test_the_metrics_see_the_drivers_and_their_state(services: dict[str, Service]) -> None:
    metrics, pipelines = services["metrics"], services["pipelines"]
    # A driver lives if its process is in /proc.
    assert metrics["pid"] == "service:pipelines"
    [volume] = metrics["volumes"]
    assert volume.removesuffix(":ro") in pipelines["volumes"]
    # There is no login: only containers reach them.
    assert "ports" not in metrics


def test_prometheus_scrapes_the_metrics_and_has_the_rules(services: dict[str, Service]) -> None:
    options = dict(option.lstrip("-").split("=", 1) for option in services["prometheus"]["command"])
    file = file_in_container(services, "prometheus", options["config.file"])
    config = yaml.safe_load(file.read_text())
    assert config["rule_files"] == ["alerts.yaml"]
    rules = (file.parent / "alerts.yaml").read_text()
    [job] = config["scrape_configs"]
    assert set(re.findall(r'job="(\w+)"', rules)) == {job["job_name"]}
    [target] = job["static_configs"][0]["targets"]
    host, port = target.split(":")
    command = services[host]["command"]
    assert command[command.index("--port") + 1] == port
    assert ip_address(command[command.index("--host") + 1]).is_unspecified
    assert f"prometheus:{options['storage.tsdb.path']}" in services["prometheus"]["volumes"]


def test_grafana_asks_prometheus_and_has_the_dashboard(services: dict[str, Service]) -> None:
    provisioning = file_in_container(services, "grafana", "/etc/grafana/provisioning")
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yaml").read_text())["datasources"]
    host, port = source["url"].removeprefix("http://").split(":")
    assert services[host]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert source["type"] == "prometheus"
    scraping = yaml.safe_load((PROJECT / "deploy" / "prometheus" / "prometheus.yaml").read_text())
    assert source["jsonData"]["timeInterval"] == scraping["global"]["scrape_interval"]
    [provider] = yaml.safe_load((provisioning / "dashboards" / "glassflow.yaml").read_text())["providers"]
    folder = file_in_container(services, "grafana", provider["options"]["path"])
    assert [file.name for file in folder.iterdir()] == ["glassflow.json"]


def test_no_two_services_take_one_port_of_the_host(services: dict[str, Service]) -> None:
    ports = [port.split(":")[1] for service in services.values() for port in service.get("ports", [])]
    assert len(ports) == len(set(ports))
