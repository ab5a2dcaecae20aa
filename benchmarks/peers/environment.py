"""Virtual environments and programs of the peers, in the cache: they are not dependencies of the project.

`python -m benchmarks.peers.environment` creates all but GlassFlow's programs, which need Go, and Kafka Connect's, which
need a Java compiler.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from benchmarks.console import say
from benchmarks.processes import call
from glassflow_dagster.runtime.cache import cache_folder, exclusive, filled
from glassflow_dagster.runtime.jars import pyspark_folder
from glassflow_dagster.runtime.java import find_java

Environment = Literal["requirements", "requirements-flink"]

# The newest version for Flink 2 that was found in Maven repositories.
FLINK_KAFKA = ("org.apache.flink", "flink-sql-connector-kafka", "4.0.1-2.0")
# GlassFlow's newest release, and where its source is; $GLASSFLOW_SOURCE names another place, such as a clone.
GLASSFLOW_VERSION = "v3.2.0"
_GLASSFLOW_SOURCE = "https://github.com/glassflow/clickhouse-etl"
NATS_VERSION = "v2.15.2"
# ClickHouse's sink for Kafka Connect; $CONNECT_SOURCE names another place of its source.
CONNECT_VERSION = "v1.5.0"
_CONNECT_SOURCE = "https://github.com/ClickHouse/clickhouse-kafka-connect"
_CONNECT_VERSION_CLASS = f"""package com.clickhouse.kafka.connect.sink;

public final class Version {{
    public static final String ARTIFACT_VERSION = "{CONNECT_VERSION}";
}}
"""


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
    """Return a folder with `glassflow`, `nats-server` and GlassFlow's `migrations`; the first call builds them by Go.

    Raises SystemExit where Go or the source is missing.
    """
    return _built(
        f"glassflow-{GLASSFLOW_VERSION}-nats-{NATS_VERSION}",
        f"GlassFlow {GLASSFLOW_VERSION} and nats-server {NATS_VERSION}",
        "go",
        _build_glassflow,
    )


def _built(name: str, what: str, compiler: str, build: Callable[[Path], None]) -> Path:
    """Return a folder with programs that the first call builds from source. compiler: the command that it needs."""
    folder = cache_folder() / "peers" / name
    with exclusive(folder):
        if not folder.exists():
            if shutil.which(compiler) is None:
                raise SystemExit(f"{what}: built from source by `{compiler}`, which is not there; install it")
            say(f"building {what} (once, some minutes)")
            with filled(folder) as programs:
                build(programs)
    return folder


def _clone(version: str, origin: str, source: Path) -> None:
    call("git", "clone", "--quiet", "--depth", "1", "--branch", version, origin, str(source))


def _build_glassflow(programs: Path) -> None:
    source = programs / "source"
    _clone(GLASSFLOW_VERSION, os.environ.get("GLASSFLOW_SOURCE", _GLASSFLOW_SOURCE), source)
    api = source / "glassflow-api"
    # As its own Makefile builds it.
    _go("build", "-mod=readonly", "-o", str(programs / "glassflow"), "./cmd/glassflow", folder=api, CGO_ENABLED="0")
    (api / "migrations").rename(programs / "migrations")
    shutil.rmtree(source)
    _go("install", f"github.com/nats-io/nats-server/v2@{NATS_VERSION}", folder=programs, GOBIN=str(programs))


def connect_classpath() -> str:
    """Return the class path of Kafka Connect with ClickHouse's sink; the first call compiles that.

    Raises SystemExit where a Java compiler or the source is missing.
    """
    what = f"ClickHouse's sink for Kafka Connect {CONNECT_VERSION}"
    folder = _built(f"clickhouse-connect-{CONNECT_VERSION}", what, "javac", _build_connect)
    return f"{folder / 'classes'}:{folder / 'jars'}/*"


def _build_connect(programs: Path) -> None:
    source, jars, classes = programs / "source", programs / "jars", programs / "classes"
    _clone(CONNECT_VERSION, os.environ.get("CONNECT_SOURCE", _CONNECT_SOURCE), source)
    ivy_file = Path(__file__).with_name("connect-ivy.xml")
    retrieve = ("-retrieve", f"{jars}/[artifact]-[revision].[ext]", "-cache", f"{programs}/.ivy")
    _ivy("-ivy", str(ivy_file), "-confs", "connect", *retrieve)
    java = source / "src" / "main" / "java"
    # Its build generates this class.
    version = java / "com" / "clickhouse" / "kafka" / "connect" / "sink" / "Version.java"
    version.write_text(_CONNECT_VERSION_CLASS, encoding="utf-8")
    files = [str(file) for file in java.rglob("*.java")]
    call("javac", "-nowarn", "-proc:full", "-cp", f"{jars}/*", "-d", str(classes), *files)
    shutil.copytree(source / "src" / "main" / "resources", classes, dirs_exist_ok=True)
    for unused in (source, programs / ".ivy"):
        shutil.rmtree(unused)


def _go(*arguments: str, folder: Path, **variables: str) -> None:
    call("nice", "go", *arguments, folder=folder, **variables)


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
