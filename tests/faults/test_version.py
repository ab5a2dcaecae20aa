"""Of which files the fault matrix's figures are."""

from pathlib import Path

from tests.faults.version import driver_files

PROJECT = Path(__file__).parents[2]


def test_the_version_is_of_what_a_driver_runs() -> None:
    files = driver_files()
    assert all((PROJECT / file).is_file() for file in files)
    package = {file.removeprefix("glassflow_dagster/") for file in files}
    assert {"__init__.py", "errors.py", "driver/run.py", "stores/kafka/topics.py"} <= package
    # What imports do not show: the JVM's code, and Spark's Python processes.
    assert {"stream/scala/spark/LocalFiles.scala", "stream/delivery/partition_writer.py"} <= package
    others = ("server/", "cli/", "orchestration/", "control/runners/", "local/")
    assert not [file for file in package if file.startswith(others)]
