"""The class data sharing archive with which a driver's JVM starts."""

import os
import shlex
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.runtime.java import find_java
from glassflow_dagster.stream import warmup
from glassflow_dagster.stream.spark import cds_archive
from glassflow_dagster.stream.spark.session import java
from tests.support.waiting import DEADLINE

_JARS = cds_archive.driver_jars(lambda _: None)


def test_a_jvm_starts_with_the_archive_that_setup_made(spark: SparkSession) -> None:
    assert cds_archive.reading_options(find_java(), _JARS), "there is no archive: make setup"
    jvm = java(spark).ProcessHandle.current().pid()
    assert cds_archive._ARCHIVE in Path(f"/proc/{jvm}/maps").read_text()


def test_an_archive_that_does_not_fit_is_passed_over_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cds_archive, "_folder", lambda *_: tmp_path)
    assert not cds_archive.reading_options(find_java(), _JARS)
    (tmp_path / cds_archive._ARCHIVE).write_bytes(b"of another Java")
    command = [str(find_java().executable), *shlex.split(cds_archive.reading_options(find_java(), _JARS)), "-version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "shared" not in done.stdout


def test_spark_installed_anew_in_the_same_place_has_an_archive_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cds_archive, "pyspark_folder", lambda: tmp_path)
    jar = tmp_path / "jars" / "spark.jar"
    jar.parent.mkdir()
    jar.touch()
    before = cds_archive._folder(find_java(), _JARS)
    os.utime(jar, (1, 1))
    assert cds_archive._folder(find_java(), _JARS) != before


def test_archives_of_installations_that_are_gone_are_removed(tmp_path: Path) -> None:
    places = {
        "current": (tmp_path, tmp_path), "another Java": (tmp_path, Path("/")), "installed anew": (tmp_path, tmp_path),
        "Spark is gone": (tmp_path / "removed", tmp_path), "Java is gone": (tmp_path, tmp_path / "removed"),
    }  # fmt: skip
    for name, owners in places.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / cds_archive._OWNERS).write_text("\n".join(map(str, owners)))
    cds_archive._remove_orphans(tmp_path / "current")
    assert {path.name for path in tmp_path.iterdir()} == {"current", "another Java"}


def test_a_warmup_that_fails_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cds_archive, "_folder", lambda *_: tmp_path / "classes")
    # Java rejects so small a stack size; it ignores unknown options here.
    broken = replace(cds_archive._kind(find_java()), silent="-Xss1k")
    monkeypatch.setattr(cds_archive, "_kind", lambda _: broken)
    said: list[str] = []
    cds_archive.make_archive(said.append)
    assert said[-1].startswith("warning: no class archive was made")
    assert not cds_archive.reading_options(find_java(), _JARS)


def test_a_warmup_goes_on_without_a_jvm_that_does_not_end() -> None:
    with subprocess.Popen(["sleep", "600"], stdin=subprocess.PIPE) as jvm:
        warmup.end_jvm(jvm, 0.1)
        assert jvm.returncode == -signal.SIGKILL
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as jvm:
        warmup.end_jvm(jvm, DEADLINE)
        assert jvm.returncode == 0
