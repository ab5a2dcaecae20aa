"""Virtual environments of the peers, in the cache: their packages are not dependencies of the project.

`python -m benchmarks.peers.environment` creates both, and downloads PyFlink's Kafka connector.
"""

import hashlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from benchmarks.console import say
from glassflow_dagster.runtime.cache import cache_folder, exclusive, filled
from glassflow_dagster.runtime.jars import pyspark_folder
from glassflow_dagster.runtime.java import find_java

Environment = Literal["requirements", "requirements-flink"]

# The newest version for Flink 2 that was found in Maven repositories.
FLINK_KAFKA = ("org.apache.flink", "flink-sql-connector-kafka", "4.0.1-2.0")


def python_of(environment: Environment) -> Path:
    """Return the Python of an environment; the first call creates it and downloads some hundred MB."""
    pinned = Path(__file__).with_name(f"{environment}.txt")
    digest = hashlib.sha256(pinned.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = cache_folder() / "peers" / f"{environment}-{digest}"
    complete = folder / "complete"
    with exclusive(folder):
        # A virtual environment cannot be moved after its creation, so a marker file says that it is complete.
        if not complete.exists():
            say(f"installing {pinned.name} into an environment of its own (once)")
            _uv("venv", "--clear", "--python", sys.executable, str(folder))
            _uv("pip", "install", "--python", str(folder / "bin" / "python"), "--requirement", str(pinned))
            complete.touch()
    return folder / "bin" / "python"


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


def _uv(*arguments: str) -> None:
    if find_spec("uv") is None:
        raise SystemExit("uv is not installed; run: make setup")
    _call(sys.executable, "-m", "uv", *arguments, "--quiet")


def _ivy(*arguments: str) -> None:
    jar = next((pyspark_folder() / "jars").glob("ivy-*.jar"))
    _call(str(find_java().executable), "-jar", str(jar), *arguments, "-types", "jar")


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit((done.stderr or done.stdout)[-2000:])


if __name__ == "__main__":
    for each in ("requirements", "requirements-flink"):
        print(python_of(each))
    print(flink_kafka_jar())
