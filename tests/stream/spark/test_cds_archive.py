"""The class data sharing archive with which a driver's JVM starts."""

import os
import shlex
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from glassflow_dagster.runtime.java import find_java
from glassflow_dagster.runtime.spark_home import pyspark_folder
from glassflow_dagster.stream import warmup
from glassflow_dagster.stream.spark import cds_archive
from tests.support.waiting import DEADLINE

_JARS = cds_archive.driver_jars(lambda _: None)

# Starts a session in a process of its own, and prints what its JVM has mapped.
_START = """
import sys
from pathlib import Path
from glassflow_dagster.stream.spark.session import java, start_session, stop_session
spark = start_session("archive", Path(sys.argv[1]), {}, print)
print(Path(f"/proc/{java(spark).ProcessHandle.current().pid()}/maps").read_text())
stop_session(spark)
"""


def test_a_jvm_starts_with_the_archive(tmp_path: Path) -> None:
    # That of `make setup`: waits for its process in the background, or stands in for it.
    cds_archive.make_archive(print)
    started = subprocess.run([sys.executable, "-c", _START, str(tmp_path)], capture_output=True, text=True, check=True)
    assert cds_archive.ARCHIVE in started.stdout


def test_an_archive_that_does_not_fit_is_passed_over_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cds_archive, "archive_folder", lambda *_: tmp_path)
    assert not cds_archive.reading_options(find_java(), _JARS)
    (tmp_path / cds_archive.ARCHIVE).write_bytes(b"of another Java")
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
    before = cds_archive.archive_folder(find_java(), _JARS)
    os.utime(jar, (1, 1))
    assert cds_archive.archive_folder(find_java(), _JARS) != before


def test_archives_of_installations_that_are_gone_are_removed(tmp_path: Path) -> None:
    places = {
        "current": (tmp_path, tmp_path), "another Java": (tmp_path, Path("/")), "installed anew": (tmp_path, tmp_path),
        "Spark is gone": (tmp_path / "removed", tmp_path), "Java is gone": (tmp_path, tmp_path / "removed"),
    }  # fmt: skip
    for name, owners in places.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / cds_archive.OWNERS).write_text("\n".join(map(str, owners)))
        (tmp_path / f"{name}.log").touch()
    cds_archive.remove_orphans(tmp_path / "current")
    left = {"current", "another Java"}
    assert {path.name for path in tmp_path.iterdir()} == left | {f"{name}.log" for name in left}


def test_a_warmup_that_fails_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cds_archive, "archive_folder", lambda *_: tmp_path / "classes")
    # Java rejects so small a stack size; it ignores unknown options here.
    broken = replace(cds_archive.archive_kind(find_java()), silent="-Xss1k")
    monkeypatch.setattr(cds_archive, "archive_kind", lambda _: broken)
    # Other jars of the same Spark and Java have an archive.
    other = tmp_path / "other" / cds_archive.OWNERS
    other.parent.mkdir()
    other.write_text(f"{pyspark_folder()}\n{find_java().executable}")
    said: list[str] = []
    cds_archive.make_archive(said.append)
    assert said[-1].startswith("warning: no class archive was made")
    assert not cds_archive.reading_options(find_java(), _JARS)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"other"}


def test_an_archive_that_java_did_not_write_to_its_end_is_none(tmp_path: Path) -> None:
    archive = tmp_path / "driver.jsa"
    assert not cds_archive.is_complete(archive)
    with archive.open("wb") as file:
        file.truncate(1_000)
    assert not cds_archive.is_complete(archive)
    cds_archive.make_archive(print)
    assert cds_archive.is_complete(cds_archive.archive_folder(find_java(), _JARS) / cds_archive.ARCHIVE)


def test_a_process_in_the_background_makes_the_archive_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cds_archive, "archive_folder", lambda *_: tmp_path / "classes")
    java = find_java()
    monkeypatch.setattr(cds_archive, "find_java", lambda: java)
    started: list[list[str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda command, **_: started.append(command))
    said: list[str] = []
    cds_archive.make_in_background(said.append, "--low-priority")
    assert [command[1:] for command in started] == [["-m", cds_archive.__name__, "--low-priority"]]
    assert str(tmp_path / "classes.log") in said[-1]
    (tmp_path / "classes").mkdir()
    (tmp_path / "classes" / cds_archive.ARCHIVE).touch()
    cds_archive.make_in_background(said.append)
    assert len(started) == len(said) == 1


@pytest.mark.parametrize("writes", [True, False])
def test_a_warmup_waits_for_the_archive_and_goes_on_without_a_jvm_that_does_not_end(
    tmp_path: Path, *, writes: bool
) -> None:
    archive = tmp_path / "driver.jsa"
    # It writes a while after it was told to end, which its end of input tells.
    slow = 'cat; sleep 0.5; printf CDS > "$0"; exec sleep 600' if writes else "exec sleep 600"
    with subprocess.Popen(["sh", "-c", slow, str(archive)], stdin=subprocess.PIPE) as jvm:
        warmup.end_jvm(jvm, archive, archive_seconds=DEADLINE if writes else 0.1, exit_seconds=0.0)
        assert jvm.returncode == -signal.SIGKILL
    assert cds_archive.is_complete(archive) is writes


def test_a_jvm_that_ends_by_itself_is_not_killed(tmp_path: Path) -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as jvm:
        warmup.end_jvm(jvm, tmp_path / "driver.jsa", DEADLINE, DEADLINE)
        assert jvm.returncode == 0
