"""Makes the jar of the Scala sources beside this file, without a JDK: pyspark's wheel carries the Scala compiler.

The jar is kept in the cache under a digest of the sources, of Spark's version and of the names of the jars beside
Spark's, so it is never older than what it was made from. `make setup` and the container image make it; where neither
did, the first run does.
"""

import hashlib
import os
import subprocess
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.cache import cache_folder, exclusive, filled
from glassflow_dagster.runtime.jars import ensure_jars, pyspark_folder
from glassflow_dagster.runtime.java import find_java

_COMPILER = "scala.tools.nsc.Main"
_JAR = "glassflow-state.jar"


def state_jar(report: Callable[[str], None]) -> Path:
    """Give the jar, made from the sources first when there is none yet."""
    sources = sorted(Path(__file__).parent.rglob("*.scala"))
    libraries = ensure_jars("spark", report)
    folder = cache_folder() / "state" / _digest(sources, libraries)
    if not (folder / _JAR).exists():
        with exclusive(folder, lambda: report("another process is compiling the state processors; waiting for it")):
            if not (folder / _JAR).exists():
                report("compiling the state processors (once)")
                with filled(folder) as temporary:
                    _compile(sources, libraries, temporary / _JAR)
    return folder / _JAR


def _digest(sources: list[Path], libraries: list[Path]) -> str:
    digest = hashlib.sha256(" ".join([version("pyspark"), *(jar.name for jar in libraries)]).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _compile(sources: list[Path], libraries: list[Path], jar: Path) -> None:
    classpath = os.pathsep.join([str(pyspark_folder() / "jars" / "*"), *map(str, libraries)])
    command = [find_java().executable, "-cp", classpath, _COMPILER, "-usejavacp", "-d", jar, *sources]
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise GlassflowError(f"the state processors do not compile:\n{result.stdout}{result.stderr}")


if __name__ == "__main__":
    print(state_jar(print))
