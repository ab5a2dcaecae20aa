"""The lock file: exact and hashed versions of everything that pyproject.toml requires, independent of the index."""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


@dataclass(frozen=True)
class Locked:
    requirement: Requirement
    hashes: int


@pytest.fixture(scope="module")
def lock(project: Path) -> list[Locked]:
    lines = (project / "requirements.lock").read_text().replace("\\\n", "").splitlines()
    return [Locked(Requirement(line.split(" --hash=")[0]), line.count(" --hash=sha256:")) for line in lines]


@pytest.fixture(scope="module")
def pyproject(project: Path) -> dict[str, Any]:
    return tomllib.loads((project / "pyproject.toml").read_text())


def asked_for(pyproject: dict[str, Any]) -> list[Requirement]:
    """Return the names of all requirements of the project, its extras and its build, without the project itself."""
    project = pyproject["project"]
    texts = [*project["dependencies"], *pyproject["build-system"]["requires"]]
    texts += [text for extra in project["optional-dependencies"].values() for text in extra]
    return [r for r in map(Requirement, texts) if canonicalize_name(r.name) != project["name"]]


def test_no_line_says_where_to_fetch(project: Path) -> None:
    text = (project / "requirements.lock").read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(-i|-f|--(index-url|extra-index-url|find-links|trusted-host))\b", text, re.MULTILINE)


def test_every_package_has_one_version_and_its_hashes(lock: list[Locked]) -> None:
    loose = [str(found.requirement) for found in lock if not str(found.requirement.specifier).startswith("==")]
    assert loose == []
    assert [str(found.requirement) for found in lock if not found.hashes] == []


def test_the_lock_covers_what_pyproject_asks_for(lock: list[Locked], pyproject: dict[str, Any]) -> None:
    versions: dict[str, list[str]] = {}
    for found in lock:
        [pin] = found.requirement.specifier
        versions.setdefault(canonicalize_name(found.requirement.name), []).append(pin.version)
    missing = [
        str(asked)
        for asked in asked_for(pyproject)
        if not any(asked.specifier.contains(version) for version in versions.get(canonicalize_name(asked.name), []))
    ]
    assert missing == []
