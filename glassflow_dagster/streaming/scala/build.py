"""Compiles the Scala sources beside this file to a jar, without a JDK: pyspark's wheel contains the Scala compiler.

The jar is kept in the cache under a digest of the sources, Spark's version and the names of the other jars, so a
change of any of them compiles a new one. `make setup` and the container image compile it; otherwise the first run does.
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
    """Return the path of the jar; compile it first if the cache does not have it."""
    sources = sorted(Path(__file__).parent.rglob("*.scala"))
    libraries = ensure_jars("spark", report)
    folder = cache_folder() / "state" / _digest(sources, libraries)
    if not (folder / _JAR).exists():
        with exclusive(folder, lambda: report("another process is compiling the state processors; waiting for it")):
            # The other process may have compiled it meanwhile.
            if not (folder / _JAR).exists():
                report("compiling the state processors (once)")
                with filled(folder) as temporary:
                    _compile(sources, libraries, temporary / _JAR)
    return folder / _JAR


def _digest(sources: list[Path], libraries: list[Path]) -> str:
    """Return a digest of what the jar depends on (sources, Spark, libraries), to name its folder in the cache."""
    digest = hashlib.sha256(" ".join([version("pyspark"), *(jar.name for jar in libraries)]).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _compile(sources: list[Path], libraries: list[Path], jar: Path) -> None:
    """Compile the sources to a jar; raise `GlassflowError` with the compiler's output where they have errors."""
    classpath = os.pathsep.join([str(pyspark_folder() / "jars" / "*"), *map(str, libraries)])
    command = [find_java().executable, "-cp", classpath, _COMPILER, "-usejavacp", "-d", jar, *sources]
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise GlassflowError(f"the state processors do not compile:\n{result.stdout}{result.stderr}")


if __name__ == "__main__":
    print(state_jar(print))
