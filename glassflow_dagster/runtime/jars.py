"""Downloads the jars that no wheel contains: Spark's Kafka connector, RE2/J, the Kafka broker, and others.

The Ivy that pyspark contains downloads them once into the cache, below the digest of ivy.xml. Spark's own
`spark.jars.packages` would contact the registry at every start.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.cache import cache_folder, exclusive, filled
from glassflow_dagster.runtime.java import find_java

Configuration = Literal["spark", "msk", "s3", "gs", "abfs", "broker", "hdfs", "format"]

# The file with the names of the jars, written last. Without it, or with a jar missing, the jars are downloaded again.
_COMPLETE = "complete.txt"

# Milliseconds. Without them Ivy hangs on a network that drops packets.
_TIMEOUTS = ["-Dsun.net.client.defaultConnectTimeout=20000", "-Dsun.net.client.defaultReadTimeout=60000"]

_MODULE = r"[\w.\-]+#[\w.\-]+;[\w.\-]+"
_FOUND = re.compile(rf"^\s*found {_MODULE}")
_FETCHED = re.compile(r"^\s*\[SUCCESSFUL \]")
_UNRESOLVED = re.compile(rf"^\s*(?:::|\[FAILED\s*\])\s+({_MODULE})", re.MULTILINE)
_CAUSE = re.compile(r"\(?((?:javax?|sun)\.[\w.]*Exception[^\r\n)]*)")


def ensure_jars(configuration: Configuration, report: Callable[[str], None]) -> list[Path]:
    """Return the paths of one configuration's jars (see ivy.xml); the first call downloads them.

    `report` gets the progress line by line ("12 of 46 jars").
    Raises GlassflowError with the names of the modules that could not be downloaded.
    """
    definition = resources.files(__package__).joinpath("ivy.xml").read_bytes()
    folder = cache_folder() / "jars" / hashlib.sha256(definition).hexdigest()[:16] / configuration
    if jars := _cached(folder):
        return jars
    with exclusive(folder, lambda: report(f"another process is fetching the {configuration} jars; waiting for it")):
        if jars := _cached(folder):
            return jars
        ivy_cache = folder.with_name(f".{configuration}.ivy-cache")
        with filled(folder) as temporary:
            (temporary / "ivy.xml").write_bytes(definition)
            _fetch(configuration, temporary, ivy_cache, report)
            names = sorted(jar.name for jar in temporary.glob("*.jar"))
            (temporary / _COMPLETE).write_text("\n".join(names) + "\n")
        shutil.rmtree(ivy_cache, ignore_errors=True)
    report(f"{len(names)} {configuration} jars ready")
    return [folder / name for name in names]


def pyspark_folder() -> Path:
    """Return the folder in which pyspark is installed, without importing it."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise GlassflowError("pyspark is not installed; run: pip install glassflow-dagster")
    return Path(spec.origin).parent


def _cached(folder: Path) -> list[Path]:
    """Return the jars of a complete folder; empty when it is incomplete or a jar is missing."""
    try:
        names = (folder / _COMPLETE).read_text().split()
    except (FileNotFoundError, NotADirectoryError):
        return []
    jars = [folder / name for name in names]
    return jars if all(jar.is_file() for jar in jars) else []


def _fetch(configuration: Configuration, folder: Path, ivy_cache: Path, report: Callable[[str], None]) -> None:
    """Run Ivy with `folder/ivy.xml`, which downloads the jars into `folder`.

    Ivy's own cache is kept after a failure, so that the next attempt downloads only the missing jars.
    """
    ivy = next(iter((pyspark_folder() / "jars").glob("ivy-*.jar")), None)
    if ivy is None:
        raise GlassflowError(f"{pyspark_folder()}/jars: has no ivy-*.jar; run: pip install --force-reinstall pyspark")
    settings = os.environ.get("GLASSFLOW_IVY_SETTINGS")
    command = [
        *(str(find_java().executable), *_TIMEOUTS, "-jar", str(ivy)),
        *(["-settings", settings] if settings else []),
        *("-ivy", str(folder / "ivy.xml"), "-cache", str(ivy_cache), "-confs", configuration),
        *("-retrieve", f"{folder}/[artifact]-[revision].[ext]", "-types", "jar", "bundle"),
    ]
    report(f"fetching the {configuration} jars (once)")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None  # asked for above
        try:
            output = _relay_progress(process.stdout, report)
        except BaseException:
            process.kill()
            raise
    missing = sorted(set(_UNRESOLVED.findall(output)))
    if process.returncode or missing or not any(folder.glob("*.jar")):
        raise GlassflowError(_failure(configuration, missing, output, folder.parent / configuration))


def _relay_progress(lines: Iterable[str], report: Callable[[str], None]) -> str:
    """Read Ivy's output line by line, report the numbers of jars found and fetched, and return the whole output."""
    output: list[str] = []
    found_count = fetched_count = 0
    for line in lines:
        output.append(line)
        if _FOUND.match(line):
            found_count += 1
            report(f"{found_count} jars found")
        elif _FETCHED.match(line):
            fetched_count += 1
            report(f"{fetched_count} of {found_count} jars")
    return "".join(output)


def _failure(configuration: Configuration, missing: list[str], output: str, folder: Path) -> str:
    """Build the error message: which modules are missing, and why.

    The reason is the first exception in Ivy's output, else that modules were not found, else the output's last line.
    """
    names = ", ".join(missing) or f"the {configuration} jars"
    exception = _CAUSE.search(output)
    lines = output.strip().splitlines() or ["no output from Ivy"]
    why = exception[1].strip() if exception else "not found" if missing else lines[-1].strip()
    return (
        f"could not fetch {names} ({why}); let this machine reach a Maven repository, name a mirror in an Ivy settings "
        f"file (GLASSFLOW_IVY_SETTINGS=FILE), or copy {folder} from a machine that has it"
    )


if __name__ == "__main__":
    kinds: tuple[Configuration, ...] = ("spark", "broker", "msk", "s3", "gs", "abfs")
    for each in kinds:
        print(f"{len(ensure_jars(each, print))} {each} jars in the cache")
