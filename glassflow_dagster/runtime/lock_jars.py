"""Writes `jars.lock`: `python -m glassflow_dagster.runtime.lock_jars`, after a change of `ivy.xml`.

Ivy resolves each configuration of `ivy.xml`, which is a group of jars, and fetches it.
"""

import hashlib
import sys
import tempfile
from pathlib import Path

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.ivy import run_ivy
from glassflow_dagster.runtime.jar_lock import IVY_FILE, JAR_GROUPS, LOCK_FILE, Jar, JarGroup, lock_text

_PATTERN = "[organisation]/[module]/[revision]/[artifact]-[revision](-[classifier]).[ext]"


def main() -> int:
    """Resolve all groups and write the lock; return 1, and write nothing, where one does not resolve."""
    try:
        with tempfile.TemporaryDirectory(prefix="lock-jars-") as folder:
            groups = {group: _resolved(group, Path(folder)) for group in JAR_GROUPS}
    except GlassflowError as error:
        print(f"error: could not resolve {error}; the lock is unchanged", file=sys.stderr)
        return 1
    LOCK_FILE.write_text(lock_text(groups, IVY_FILE.read_bytes()))
    return 0


def _resolved(group: JarGroup, folder: Path) -> list[Jar]:
    """Resolve and fetch one group below a folder; return its jars."""
    print(f"resolving {group}")
    jars = folder / group
    run_ivy(IVY_FILE, group, f"{jars}/{_PATTERN}", folder / "ivy-cache", lambda _: None)
    return [_jar(file, jars) for file in sorted(jars.rglob("*.jar"))]


def _jar(file: Path, folder: Path) -> Jar:
    """Return the jar in a file that Ivy has written to `_PATTERN` below a folder."""
    group, artifact, version, name = file.relative_to(folder).parts
    classifier = name.removeprefix(f"{artifact}-{version}").removesuffix(".jar").removeprefix("-")
    return Jar(group, artifact, version, classifier, hashlib.sha256(file.read_bytes()).hexdigest())


if __name__ == "__main__":
    sys.exit(main())
