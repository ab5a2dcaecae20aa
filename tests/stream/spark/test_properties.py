"""Spark settings in a file: what is written is read again, by nobody else."""

import os
from pathlib import Path

import pytest

from glassflow_dagster.runtime.spark_properties import read_properties, submitted_settings, write_properties

SETTINGS = {
    "spark.one": "plain",
    "spark.empty": "",
    "spark.special": " begins with a space, has = : # ! and \\ and ends",
    "spark.lines": "two\nlines\tand more",
    "spark.options": '"-Dfile=/a folder/x" -Dtwo=2',
    "spark.words": "ü €\u2028",
    "spark.key with a space": "value",
}


def test_settings_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "settings"
    write_properties(file, SETTINGS)
    assert read_properties(file) == SETTINGS


def test_only_the_user_may_read_them_even_where_the_file_was_there(tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.touch(0o644)
    write_properties(file, SETTINGS)
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_as_spark_writes_it_is_read(tmp_path: Path) -> None:
    """With comments, and other separators; special characters have a backslash."""
    file = tmp_path / "settings"
    file.write_text(
        "#Java properties\n! comment\n\nspark.master=k8s\\://https\\://host\nspark.a : b c\nspark.d e\\u0041\n"
    )
    assert read_properties(file) == {"spark.master": "k8s://https://host", "spark.a": "b c", "spark.d": "eA"}


def test_pyspark_is_given_the_file_and_not_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    folder = tmp_path / "a folder"
    with submitted_settings(folder, SETTINGS):
        [file] = folder.iterdir()
        assert read_properties(file) == SETTINGS
        arguments = os.environ["PYSPARK_SUBMIT_ARGS"]
        assert arguments == f"--load-spark-defaults --properties-file '{file}' pyspark-shell"
    assert list(folder.iterdir()) == []
    assert "PYSPARK_SUBMIT_ARGS" not in os.environ


def test_what_pyspark_was_given_before_is_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "before")
    with submitted_settings(tmp_path, {}):
        assert os.environ["PYSPARK_SUBMIT_ARGS"] != "before"
    assert os.environ["PYSPARK_SUBMIT_ARGS"] == "before"
