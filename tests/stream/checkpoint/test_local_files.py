"""The Hadoop file system that Spark writes checkpoints with."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.stream.spark.session import java


@pytest.fixture
def files(spark: SparkSession) -> Any:
    hadoop = java(spark).org.apache.hadoop
    return hadoop.fs.FileSystem.get(hadoop.fs.Path("file:/").toUri(), spark.sparkContext._jsc.hadoopConfiguration())


def _faults_of_children(pid: int) -> int:
    """Return the page faults of a process's ended children, which grow with each child."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[8])


def test_a_file_gets_its_permissions_without_a_process_for_it(spark: SparkSession, files: Any, tmp_path: Path) -> None:
    jvm, hadoop = java(spark), java(spark).org.apache.hadoop
    pid = jvm.ProcessHandle.current().pid()
    before = _faults_of_children(pid)
    for number in range(5):
        file = tmp_path / f"file {number}"
        files.create(hadoop.fs.Path(str(file))).close()
        files.setPermission(hadoop.fs.Path(str(file)), hadoop.fs.permission.FsPermission("640"))
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert _faults_of_children(pid) == before


def test_a_sticky_bit_is_set_all_the_same(spark: SparkSession, files: Any, tmp_path: Path) -> None:
    fs = java(spark).org.apache.hadoop.fs
    files.setPermission(fs.Path(str(tmp_path)), fs.permission.FsPermission("1750"))
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1750


def test_what_spark_writes_is_on_the_disk_before_it_has_its_name(
    spark: SparkSession, files: Any, tmp_path: Path
) -> None:
    """Sync the bytes of a file and its checksums, and the entries of their folders."""
    hadoop = java(spark).org.apache.hadoop
    folder, temporary, name = (hadoop.fs.Path(str(tmp_path / part)) for part in ("new", "new/.7.tmp", "new/7"))
    with _recorded_syncs(spark, tmp_path / "events.jfr") as synced:
        files.mkdirs(folder)
        out = files.create(temporary)
        out.write(b"v1")
        out.close()
        files.rename(temporary, name)
    places = [str(Path(place).relative_to(tmp_path)) for place in synced if place.startswith(str(tmp_path))]
    assert [place for place, _ in groupby(places)] == [".", "new/..7.tmp.crc", "new/.7.tmp", "new"]


@contextmanager
def _recorded_syncs(spark: SparkSession, file: Path) -> Iterator[list[str]]:
    """Yield a list that at the end has the paths that the JVM has synced, in order."""
    jdk, synced = java(spark).jdk.jfr, list[str]()
    recording = jdk.Recording()
    recording.enable("jdk.FileForce").withoutThreshold()
    recording.start()
    try:
        yield synced
    finally:
        recording.stop()
        recording.dump(java(spark).java.io.File(str(file)).toPath())
        recording.close()
    events = jdk.consumer.RecordingFile.readAllEvents(java(spark).java.io.File(str(file)).toPath())
    synced += [event.getString("path") for event in sorted(events, key=lambda event: event.getStartTime().toString())]
