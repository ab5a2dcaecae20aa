"""A wheel installed outside the checkout is the whole product."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from glassflow_dagster.runtime.cache import cache_folder
from glassflow_dagster.stream.scala.build import SHIPPED, azure_jars, state_jar


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the installed wheel only; its dependencies are the test environment's."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-index", "--target", str(folder), str(wheel)]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    return folder


def run(installed: Path, cwd: Path, *command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a command with the installed wheel in a folder that has no file of the checkout."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GLASSFLOW_")}
    return subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**inherited, "PYTHONPATH": str(installed), "DAGSTER_DISABLE_TELEMETRY": "1", **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_wheel_has_every_file_of_the_package_and_the_shipped_pipelines(wheel: Path, project: Path) -> None:
    package = project / "glassflow_dagster"
    files = {
        str(file.relative_to(project))
        for file in package.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    pipelines = {f"glassflow_dagster/pipelines/{file.name}" for file in (project / "pipelines").glob("*.yaml")}
    with zipfile.ZipFile(wheel) as content:
        names = {name for name in content.namelist() if ".dist-info/" not in name}
    others = {"glassflow_dagster/pyproject.toml", "glassflow_dagster/docs/pipeline.schema.json"}
    jars = {str(SHIPPED.relative_to(project) / jar.parent.name / jar.name) for jar in compiled_jars()}
    assert names == files | pipelines | others | jars


def test_an_installation_compiles_no_scala(installed: Path, tmp_path: Path) -> None:
    """Every library is there, and no compiled jar but the wheel's."""
    (tmp_path / "jars").symlink_to(cache_folder() / "jars")
    code = "from glassflow_dagster.stream.scala import build; print(build.state_jar(exit), build.azure_jars(exit)[0])"
    done = run(installed, tmp_path, "-c", code, GLASSFLOW_CACHE=str(tmp_path))
    paths = [Path(path) for path in done.stdout.split()]
    assert [path.name for path in paths] == ["glassflow-state.jar", "glassflow-azure.jar"], done.stderr
    assert all(path.is_relative_to(installed) for path in paths)
    assert [path.read_bytes() for path in paths] == [jar.read_bytes() for jar in compiled_jars()]


def compiled_jars() -> tuple[Path, Path]:
    """Return the checkout's own jars of the Scala sources."""
    return state_jar(print), azure_jars(print)[0]


def test_what_is_no_python_is_among_it(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        names = set(content.namelist())
    assert {
        "glassflow_dagster/py.typed",
        "glassflow_dagster/runtime/ivy.xml",
        "glassflow_dagster/stream/spark/log4j2.properties",
        "glassflow_dagster/stream/scala/state/ProcessingTimeDedup.scala",
        "glassflow_dagster/stream/scala/decode/StrictJson.scala",
        "glassflow_dagster/orchestration/defs/pipelines/defs.yaml",
        "glassflow_dagster/pipelines/flights.yaml",
        "glassflow_dagster/pyproject.toml",
    } <= names


def test_the_wheel_names_its_command_and_its_licence(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as content:
        texts = {Path(name).name: name for name in content.namelist() if ".dist-info/" in name}
        entry_points = content.read(texts["entry_points.txt"]).decode()
    assert "glassflow-dagster = glassflow_dagster.cli:main" in entry_points
    assert "LICENSE" in texts


def test_the_commands_run_from_the_wheel_in_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    where = run(installed, tmp_path, "-c", "import glassflow_dagster; print(glassflow_dagster.__file__)")
    assert Path(where.stdout.strip()).is_relative_to(installed)
    shipped = sorted(str(file) for file in (installed / "glassflow_dagster" / "pipelines").glob("*.yaml"))
    done = run(installed, tmp_path, "-m", "glassflow_dagster", "validate", *shipped)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.servers
def test_dagster_loads_the_shipped_pipelines_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    command = ("-m", "dagster", "definitions", "validate", "-m", "glassflow_dagster.definitions")
    done = run(installed, tmp_path, *command, DAGSTER_HOME=str(home))
    assert done.returncode == 0, done.stdout + done.stderr
    pipelines = "print(*(spec.key.path[0] for spec in defs().resolve_all_asset_specs()))"
    loaded = run(installed, tmp_path, "-c", f"from glassflow_dagster.definitions import defs; {pipelines}")
    shipped = {"flights", "flights_with_weather", "orders_with_users", "sms_status"}
    assert set(loaded.stdout.split()) == shipped, loaded.stderr
