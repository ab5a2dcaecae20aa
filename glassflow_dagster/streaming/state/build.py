"""Makes the jar of the Scala sources beside this file, without a JDK: pyspark's wheel carries the Scala compiler.

The jar's name holds a digest of the sources and of Spark's version, so a jar is never older than what it was made
from. `make setup` and the wheel's build make it; where neither did, the first run does.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.local.java import find_java

_HERE = Path(__file__).parent
_COMPILER = "scala.tools.nsc.Main"


def state_jar(report: Callable[[str], None]) -> Path:
    """Give the jar, made from the sources first when there is none yet."""
    jar = _HERE / f"glassflow-state-{_digest()}.jar"
    if not jar.exists():
        report("compiling the state processors (once) ...")
        _compile(jar)
    return jar


def _digest() -> str:
    digest = hashlib.sha256(version("pyspark").encode())
    for source in _sources():
        digest.update(source.read_bytes())
    return digest.hexdigest()[:12]


def _sources() -> list[Path]:
    return sorted(_HERE.glob("*.scala"))


def _compile(jar: Path) -> None:
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise GlassflowError("pyspark is not installed; install glassflow-dagster with its dependencies")
    classpath = str(Path(spec.origin).parent / "jars" / "*")
    if not os.access(_HERE, os.W_OK):
        raise GlassflowError(f"{_HERE}: not writable, and the state processors are not compiled; make it writable once")
    with tempfile.TemporaryDirectory(dir=_HERE) as folder:
        made = Path(folder) / jar.name
        command = [find_java().executable, "-cp", classpath, _COMPILER, "-usejavacp", "-d", made, *_sources()]
        result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            raise GlassflowError(f"the state processors do not compile:\n{result.stdout}{result.stderr}")
        for old in _HERE.glob("glassflow-state-*.jar"):
            old.unlink()
        made.replace(jar)


if __name__ == "__main__":
    print(state_jar(print))  # noqa: T201 - what `make setup` shows
