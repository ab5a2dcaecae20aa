"""The classes that a driver's JVM loads, kept as the JVM has them in memory, so that the next one need not read them.

Java calls it class data sharing. A driver has its first batch done with some 40 % less CPU time. The archive belongs to
one Java and one Spark, and Java itself looks whether it fits; where it does not, or there is none, a driver starts as
it did before, only slower. `make setup` and the container image make it.
"""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

from glassflow_dagster.runtime.cache import cache_folder, exclusive, filled
from glassflow_dagster.runtime.jars import ensure_jars, pyspark_folder
from glassflow_dagster.runtime.java import JavaRuntime, find_java
from glassflow_dagster.streaming.scala.build import state_jar

_ARCHIVE = "driver.jsa"
# Where the Spark and the Java lie that an archive belongs to, a line each.
_OWNERS = "owners"

# An archive that does not fit is no news for the user.
_SILENT = "-Xlog:cds*=off"
# At the address that it was made for its pages are those of the file, and several drivers have them together. Newer
# Javas move it to another one, for which they write to nearly all of its 200 MiB.
_IN_PLACE = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"


def driver_jars(report: Callable[[str], None]) -> list[Path]:
    """Give the jars that a driver needs beside Spark's own, fetched or compiled first where they are not there yet."""
    return [*ensure_jars("spark", report), state_jar(report)]


def reading_options(java: JavaRuntime, jars: Sequence[Path]) -> str:
    """Give the options that make this Java start with its archive; none where there is no archive.

    jars: those before Spark's own in the class path.
    """
    archive = _folder(java, jars) / _ARCHIVE
    return f'"-XX:SharedArchiveFile={archive}" {_IN_PLACE} {_SILENT}' if archive.exists() else ""


def make_archive(report: Callable[[str], None]) -> None:
    """Make the archive by a warm-up run, where there is none yet."""
    java = find_java()
    folder = _folder(java, driver_jars(report))
    if (folder / _ARCHIVE).exists():
        return
    with exclusive(folder, lambda: report("another process is warming up a driver; waiting for it")):
        if (folder / _ARCHIVE).exists():
            return
        report("running a warm-up driver for Java's class data archive, so that drivers start faster (once)")
        with filled(folder) as temporary:
            _run_warmup(temporary / _ARCHIVE, report)
            (temporary / _OWNERS).write_text(f"{pyspark_folder()}\n{java.executable}")
        _remove_orphans(folder)


def _remove_orphans(current: Path) -> None:
    """Remove archives of Sparks and Javas that are gone, or were installed anew in their places.

    Java takes an archive only for the very files that it was made from.
    """
    owners = (current / _OWNERS).read_text()
    for other in current.parent.glob(f"*/{_OWNERS}"):
        found = other.read_text()
        is_gone = not all(Path(line).exists() for line in found.splitlines())
        if is_gone or (found == owners and other.parent != current):
            shutil.rmtree(other.parent, ignore_errors=True)


def _run_warmup(archive: Path, report: Callable[[str], None]) -> None:
    options = f'"-XX:ArchiveClassesAtExit={archive}" {_SILENT}'
    command = [sys.executable, "-m", "glassflow_dagster.streaming.warmup", options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not archive.exists():
        said = (done.stderr or done.stdout).strip().splitlines() or ["no error message"]
        report(f"warning: no class archive was made, so drivers start slower: {said[-1]}")


def _folder(runtime: JavaRuntime, jars: Sequence[Path]) -> Path:
    java, spark = runtime.executable, pyspark_folder()
    # Java compares the time of each jar, which an installation of the same version in the same place changes.
    files = (java.resolve(), *jars, *sorted((spark / "jars").glob("*.jar")))
    parts = [
        version("pyspark"),
        str(spark),
        str(java),
        *map(str, jars),
        *(str(file.stat().st_mtime_ns) for file in files),
    ]
    digest = hashlib.sha256("\0".join(parts).encode())
    digest.update(Path(__file__).parents[1].joinpath("warmup.py").read_bytes())
    return cache_folder() / "classes" / digest.hexdigest()[:16]


if __name__ == "__main__":
    make_archive(print)
