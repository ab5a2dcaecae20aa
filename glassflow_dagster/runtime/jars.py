"""Provides the jars that no wheel contains: Spark's Kafka connector, RE2/J, the Kafka broker, and others.

`jars.lock` names them with their checksums, by group: a group is fetched into the cache when it is first used. Spark's
own `spark.jars.packages` would contact the registry at every start.
"""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.runtime.cache import cache_folder, exclusive
from glassflow_dagster.runtime.download import download
from glassflow_dagster.runtime.ivy import fetch_by_ivy, ivy_settings
from glassflow_dagster.runtime.jar_lock import JAR_GROUPS, Jar, JarGroup, group_digest, locked_jars

_MAVEN_CENTRAL = "https://repo1.maven.org/maven2"

# What the tests and the formatter alone use.
_OF_DEVELOPERS = ("hdfs", "format")


def ensure_jars(group: JarGroup, report: Callable[[str], None]) -> list[Path]:
    """Return the paths of a group's jars; those that the cache does not have are fetched first.

    `report` gets the progress line by line ("12 of 46 jars").
    Raises GlassflowError with the name of a jar that could not be fetched, and what to do.
    """
    jars = locked_jars(group)
    folder = _folder(group)
    if _missing(jars, folder):
        with exclusive(folder, lambda: report(f"another process is fetching the {group} jars; waiting for it")):
            # The other process may have fetched them meanwhile.
            if missing := _missing(jars, folder):
                report(f"fetching the {group} jars (once)")
                folder.mkdir(exist_ok=True)
                _fetch(group, missing, folder, report)
                report(f"{len(jars)} {group} jars ready")
    return [folder / jar.name for jar in jars]


def _folder(group: JarGroup) -> Path:
    """Return the folder of a group's jars in the cache, another one for another lock."""
    return cache_folder() / "jars" / f"{group}-{group_digest(locked_jars(group))}"


def _missing(jars: Sequence[Jar], folder: Path) -> list[Jar]:
    """Return the jars that are not in a folder. A jar that is there is complete: it was verified, then moved there."""
    return [jar for jar in jars if not (folder / jar.name).is_file()]


def _fetch(group: JarGroup, jars: Sequence[Jar], folder: Path, report: Callable[[str], None]) -> None:
    """Fetch jars into a folder: from a Maven repository, or as an Ivy settings file says."""
    try:
        if ivy_settings():
            _fetch_by_ivy(jars, folder, report)
        else:
            download(jars, os.environ.get("GLASSFLOW_MAVEN_REPOSITORY") or _MAVEN_CENTRAL, folder, report)
    except OSError as error:
        reason = error.strerror
        raise GlassflowError(f"{folder}: cannot be written ({reason}); make room, or make it writable") from error
    except GlassflowError as error:
        raise GlassflowError(
            f"could not fetch {error}; let this machine reach a Maven repository, name a mirror "
            "(GLASSFLOW_MAVEN_REPOSITORY=URL, or GLASSFLOW_IVY_SETTINGS=FILE for one that Ivy knows), or run "
            f"`python -m glassflow_dagster.runtime.jars {group}` on a machine that has access, and copy its {folder}"
        ) from error


def _fetch_by_ivy(jars: Sequence[Jar], folder: Path, report: Callable[[str], None]) -> None:
    """Fetch jars with Ivy, and move those into the folder that have the SHA-256 of the lock."""
    ivy_cache, beside = folder / ".ivy-cache", folder / ".ivy"
    beside.mkdir(exist_ok=True)
    fetch_by_ivy(jars, beside, ivy_cache, report)
    for jar in jars:
        file = beside / jar.name
        if not file.is_file():
            raise GlassflowError(f"{jar.coordinates} (Ivy has not written {jar.name})")
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        if digest != jar.sha256:
            shutil.rmtree(ivy_cache)
            raise GlassflowError(f"{jar.coordinates} (its SHA-256 is {digest}, not {jar.sha256} as in jars.lock)")
        file.replace(folder / jar.name)
    for used in (ivy_cache, beside):
        shutil.rmtree(used)


def main(names: Sequence[str]) -> int:
    """Fetch groups of jars, by default all that a pipeline can need; return 1 after an error."""
    groups = [group for group in JAR_GROUPS if (group in names if names else group not in _OF_DEVELOPERS)]
    if unknown := set(names) - set(groups):
        print(f"error: {', '.join(sorted(unknown))}: is no group of jars; choose from {', '.join(JAR_GROUPS)}")
        return 2
    try:
        for group in groups:
            print(f"{len(ensure_jars(group, print))} {group} jars in {_folder(group)}")
    except GlassflowError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
