"""Runs the Ivy that pyspark contains: to resolve the lock, and to fetch its jars by an Ivy settings file."""

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.jar_lock import Jar
from glassflow_dagster.runtime.java import find_java
from glassflow_dagster.runtime.spark_home import pyspark_folder

# Milliseconds. Without them Ivy hangs on a network that drops packets.
_TIMEOUTS = ["-Dsun.net.client.defaultConnectTimeout=20000", "-Dsun.net.client.defaultReadTimeout=60000"]

_MODULE = r"[\w.\-]+#[\w.\-]+;[\w.\-]+"
_FETCHED = re.compile(r"^\s*\[SUCCESSFUL \]")
_UNRESOLVED = re.compile(rf"^\s*(?:::|\[FAILED\s*\])\s+({_MODULE})", re.MULTILINE)
_CAUSE = re.compile(r"\(?((?:javax?|sun)\.[\w.]*Exception[^\r\n)]*)")

_FILE = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="glassflow" module="locked"/>
  <configurations><conf name="jars"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""


def ivy_settings() -> str | None:
    """Return the path of the user's Ivy settings file, `GLASSFLOW_IVY_SETTINGS`; None where it is not set."""
    return os.environ.get("GLASSFLOW_IVY_SETTINGS") or None


def fetch_by_ivy(jars: Sequence[Jar], folder: Path, ivy_cache: Path, report: Callable[[str], None]) -> None:
    """Write these jars, and none that they depend on, into a folder; their content is not verified.

    ivy_cache: Ivy's own. It is kept after an error, so that the next attempt fetches only what is missing. Raises
    `GlassflowError` with the names of the modules that could not be fetched, without a remedy.
    """
    file = folder / "ivy.xml"
    file.write_text(_FILE.format(dependencies="\n".join(map(_dependency, jars))))
    fetched_count = 0

    def count(line: str) -> None:
        nonlocal fetched_count
        if _FETCHED.match(line):
            fetched_count += 1
            report(f"{fetched_count} of {len(jars)} jars")

    run_ivy(file, "jars", f"{folder}/[artifact]-[revision](-[classifier]).[ext]", ivy_cache, count)


def run_ivy(file: Path, configuration: str, pattern: str, ivy_cache: Path, line: Callable[[str], None]) -> None:
    """Resolve a configuration of an ivy.xml, and write its jars to the paths of a pattern.

    line: receives Ivy's output line by line. Raises `GlassflowError` with the names of missing modules and the reason.
    """
    ivy = next(iter((pyspark_folder() / "jars").glob("ivy-*.jar")), None)
    if ivy is None:
        raise GlassflowError(f"{pyspark_folder()}/jars: has no ivy-*.jar; run: pip install --force-reinstall pyspark")
    settings = ivy_settings()
    command = [
        *(str(find_java().executable), *_TIMEOUTS, "-jar", str(ivy)),
        *(["-settings", settings] if settings else []),
        *("-ivy", str(file), "-cache", str(ivy_cache), "-confs", configuration),
        *("-retrieve", pattern, "-types", "jar", "bundle"),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as process:
        assert process.stdout is not None  # asked for above
        try:
            output = _relay(process.stdout, line)
        except BaseException:
            process.kill()
            raise
    missing = sorted(set(_UNRESOLVED.findall(output)))
    if process.returncode or missing:
        raise GlassflowError(_reason(missing, output))


def _dependency(jar: Jar) -> str:
    """Return the element of ivy.xml that fetches one jar, whatever packaging its module names."""
    classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
    return (
        f"    <dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)} "
        f'transitive="false" conf="jars->default"><artifact name={quoteattr(jar.artifact)} type="jar" '
        f'ext="jar"{classifier} conf="jars"/></dependency>'
    )


def _relay(lines: Iterable[str], line: Callable[[str], None]) -> str:
    """Pass lines on, and return all of them as one text."""
    output: list[str] = []
    for each in lines:
        output.append(each)
        line(each)
    return "".join(output)


def _reason(missing: Sequence[str], output: str) -> str:
    """Return which modules are missing, and why.

    The reason is the first exception in Ivy's output, else that modules were not found, else the output's last line.
    """
    exception = _CAUSE.search(output)
    lines = output.strip().splitlines() or ["no output from Ivy"]
    why = exception[1].strip() if exception else "not found" if missing else lines[-1].strip()
    return f"{', '.join(missing)} ({why})" if missing else why
