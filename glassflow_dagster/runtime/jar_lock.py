"""The lock of the jars that no wheel contains: `jars.lock`, with the coordinates and the SHA-256 of every jar.

`lock_jars.py` writes it from `ivy.xml`; nothing else resolves versions.
"""

import hashlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

JarGroup = Literal["spark", "broker", "msk", "s3", "gs", "abfs", "hdfs", "format"]
JAR_GROUPS: tuple[JarGroup, ...] = get_args(JarGroup)

# Resolved once by Ivy, when a maintainer changes it.
IVY_FILE = Path(__file__).with_name("ivy.xml")
LOCK_FILE = Path(__file__).with_name("jars.lock")

_HEAD = """\
# Maven coordinates and SHA-256 of every jar, by group. To change it, edit ivy.xml, then run:
# python -m glassflow_dagster.runtime.lock_jars
"""


@dataclass(frozen=True)
class Jar:
    """A jar in a Maven repository.

    classifier: empty for the main jar of its version.
    sha256: in hexadecimal.
    """

    group: str
    artifact: str
    version: str
    classifier: str
    sha256: str

    @property
    def coordinates(self) -> str:
        """group:artifact:version, with `:classifier` if it has one."""
        return ":".join(part for part in (self.group, self.artifact, self.version, self.classifier) if part)

    @property
    def name(self) -> str:
        """The file's name, as in every Maven repository."""
        return f"{'-'.join(part for part in (self.artifact, self.version, self.classifier) if part)}.jar"

    @property
    def path(self) -> str:
        """The path below the address of a Maven repository."""
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.name}"


def locked_jars(group: JarGroup) -> Sequence[Jar]:
    """Return the jars of a group, in the order of the lock."""
    return _lock()[group]


def group_digest(jars: Sequence[Jar]) -> str:
    """Return a short digest of jars: other versions, or other files, have another one."""
    return hashlib.sha256("\n".join(f"{jar.coordinates} {jar.sha256}" for jar in jars).encode()).hexdigest()[:16]


def lock_text(groups: Mapping[JarGroup, Sequence[Jar]], ivy: bytes) -> str:
    """Return the text of the lock. ivy: the content of `ivy.xml`, from which the jars were resolved."""
    parts = [_HEAD, f'ivy = "{hashlib.sha256(ivy).hexdigest()}"\n']
    for group, jars in groups.items():
        lines = sorted(f'"{jar.coordinates}" = "{jar.sha256}"\n' for jar in jars)
        parts.append(f"\n[{group}]\n{''.join(lines)}")
    return "".join(parts)


@cache
def _lock() -> Mapping[JarGroup, Sequence[Jar]]:
    content = tomllib.loads(LOCK_FILE.read_text())
    return {group: [_jar(*entry) for entry in content[group].items()] for group in JAR_GROUPS}


def _jar(coordinates: str, sha256: str) -> Jar:
    group, artifact, version, *classifier = coordinates.split(":")
    return Jar(group, artifact, version, "".join(classifier), sha256)
