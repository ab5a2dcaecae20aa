"""Compiles the Scala sources beside this file to jars, without a JDK: pyspark's wheel contains the Scala compiler.

A jar is kept in the cache under a digest of the sources, Spark's version and the names of the other jars, so a change
of any of them compiles a new one. `make setup` compiles it; otherwise the first run that needs it does. A wheel carries
the jars (hatch_build.py), so an installation compiles none. The folder azure, whose libraries few pipelines need, has a
jar of its own.
"""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.cache import cache_folder, cached
from glassflow_dagster.runtime.jars import ensure_jars
from glassflow_dagster.runtime.java import find_java
from glassflow_dagster.runtime.spark_home import pyspark_folder

_COMPILER = "scala.tools.nsc.Main"
# For a program that runs once. With Java's optimizing compiler (C2), a collector for several threads and a small heap,
# the compilation uses three times as much CPU time.
_JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xms1g")
_STATE_JAR, _AZURE_JAR = "glassflow-state.jar", "glassflow-azure.jar"
_SOURCES = Path(__file__).parent
_AZURE_SOURCES = _SOURCES / "azure"
# The jars that a wheel carries, each in a folder named by its digest; not in a checkout.
SHIPPED = _SOURCES / "compiled"


def state_jar(report: Callable[[str], None]) -> Path:
    """Return the path of the jar of all pipelines; compile it first if neither the wheel nor the cache has it."""
    sources = [source for source in _SOURCES.rglob("*.scala") if source.parent != _AZURE_SOURCES]
    return _compiled(_STATE_JAR, sorted(sources), ensure_jars("spark", report), report)


def azure_jars(report: Callable[[str], None]) -> list[Path]:
    """Return the paths of the jars that state in Azure needs.

    What is in neither the wheel nor the cache is fetched or compiled.
    """
    libraries = ensure_jars("abfs", report)
    sources = sorted(_AZURE_SOURCES.glob("*.scala"))
    return [_compiled(_AZURE_JAR, sources, [*libraries, state_jar(report)], report), *libraries]


def _compiled(name: str, sources: list[Path], libraries: list[Path], report: Callable[[str], None]) -> Path:
    """Return the path of a jar; compile it first if neither the wheel nor the cache has it."""
    digest = _digest(sources, libraries)
    if (shipped := SHIPPED / digest / name).exists():
        return shipped

    def compile_it(folder: Path) -> None:
        report(f"compiling {name} (once)")
        _compile(sources, libraries, folder / name)

    waiting = partial(report, f"another process is compiling {name}; waiting for it")
    return cached(cache_folder() / "state" / digest, name, compile_it, waiting)


def _digest(sources: list[Path], libraries: list[Path]) -> str:
    """Return a digest of what the jar depends on (sources, Spark, libraries), to name its folder in the cache."""
    # The folder of a compiled jar has its digest; that of a group of jars has the lock's.
    names = [f"{jar.parent.name}/{jar.name}" for jar in libraries]
    digest = hashlib.sha256(" ".join([version("pyspark"), *names]).encode())
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def _compile(sources: list[Path], libraries: list[Path], jar: Path) -> None:
    """Compile sources to a jar; raise `GlassflowError` with the compiler's output where they have errors."""
    classpath = os.pathsep.join([str(pyspark_folder() / "jars" / "*"), *map(str, libraries)])
    command = [find_java().executable, *_JAVA_OPTIONS, "-cp", classpath, _COMPILER, "-usejavacp", "-d", jar, *sources]
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise GlassflowError(f"{jar.name} does not compile:\n{result.stdout}{result.stderr}")


if __name__ == "__main__":
    try:
        print(state_jar(print))
        if "--all" in sys.argv[1:]:
            print(azure_jars(print)[0])
    except GlassflowError as error:
        sys.exit(f"error: {error}")
