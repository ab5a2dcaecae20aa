"""Virtual environments of the peers, in the cache, and the folders of those that are given.

They are not dependencies of the project. `python -m benchmarks.peers.environment` creates the environments.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from benchmarks.console import say
from benchmarks.processes import call
from glassflow_dagster.runtime.cache import cache_folder, exclusive, filled
from glassflow_dagster.runtime.java import find_java
from glassflow_dagster.runtime.spark_home import pyspark_folder

Environment = Literal["requirements", "requirements-flink"]

# The newest version for Flink 2 that was found in Maven repositories.
FLINK_KAFKA = ("org.apache.flink", "flink-sql-connector-kafka", "4.0.1-2.0")
# Folders of other people's programs, which this project neither fetches nor builds.
GLASSFLOW_PROGRAMS = "GLASSFLOW_PROGRAMS"
CONNECT_JARS = "CONNECT_JARS"


def python_of(environment: Environment) -> Path:
    """Return the Python of an environment; the first call creates it and downloads some hundred MB."""
    pinned = Path(__file__).with_name(f"{environment}.txt")
    digest = hashlib.sha256(pinned.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = cache_folder() / "peers" / f"{environment}-{digest}"

    def install() -> None:
        say(f"installing {pinned.name} into an environment of its own (once)")
        _uv("venv", "--clear", "--python", sys.executable, str(folder))
        _uv("pip", "install", "--python", str(folder / "bin" / "python"), "--requirement", str(pinned))

    set_up_once(folder, install)
    return folder / "bin" / "python"


def set_up_once(folder: Path, set_up: Callable[[], None]) -> None:
    """Set up a folder of the cache that has a virtual environment, unless it is complete; one process at a time."""
    complete = folder / "complete"
    with exclusive(folder):
        # A virtual environment cannot be moved after its creation, so a marker file says that it is complete.
        if not complete.exists():
            set_up()
            complete.touch()


def flink_kafka_jar() -> Path:
    """Return the jar of Flink's Kafka connector; the first call downloads it."""
    organisation, name, revision = FLINK_KAFKA
    folder = cache_folder() / "peers" / f"{name}-{revision}"
    jar = folder / f"{name}-{revision}.jar"
    with exclusive(folder):
        if not jar.exists():
            with filled(folder) as temporary:
                _ivy(
                    *("-dependency", organisation, name, revision, "-confs", "master"),
                    *("-retrieve", f"{temporary}/[artifact]-[revision].[ext]", "-cache", f"{temporary}/.ivy"),
                )
    return jar


def glassflow_programs() -> Path:
    """Return the folder with `glassflow`, `nats-server`, GlassFlow's `migrations`, and its release in `VERSION`."""
    return _given(GLASSFLOW_PROGRAMS, ("glassflow", "nats-server", "migrations", "VERSION"))


def glassflow_version() -> str:
    """Return the releases of GlassFlow and of NATS."""
    folder = glassflow_programs()
    nats = subprocess.run([folder / "nats-server", "--version"], check=True, capture_output=True, text=True).stdout
    return f"{(folder / 'VERSION').read_text(encoding='utf-8').strip()}, {nats.strip()}"


def connect_classpath() -> str:
    """Return the class path of Kafka Connect with ClickHouse's sink."""
    return f"{_given(CONNECT_JARS, ())}/*"


def _given(variable: str, names: tuple[str, ...]) -> Path:
    """Return the folder that an environment variable names; raises SystemExit without it, or one of these in it."""
    folder = Path(os.environ.get(variable, "")).resolve()
    if variable not in os.environ:
        raise SystemExit(f"{variable} is not set; set it to the folder of these programs (benchmarks/peers/README.md)")
    if missing := [name for name in names if not (folder / name).exists()]:
        raise SystemExit(f"{variable}: {folder} has no {', '.join(missing)}; see benchmarks/peers/README.md")
    return folder


def _uv(*arguments: str) -> None:
    if find_spec("uv") is None:
        raise SystemExit("uv is not installed; run: make setup")
    call(sys.executable, "-m", "uv", *arguments, "--quiet")


def _ivy(*arguments: str) -> None:
    jar = next((pyspark_folder() / "jars").glob("ivy-*.jar"))
    call(str(find_java().executable), "-jar", str(jar), *arguments, "-types", "jar", "bundle")


if __name__ == "__main__":
    for each in ("requirements", "requirements-flink"):
        print(python_of(each))
    print(flink_kafka_jar())
