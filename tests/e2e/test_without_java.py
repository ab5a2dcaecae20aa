"""A machine without Java: Spark runs on the bundled runtime."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.support import Pipeline


def path_without_java(folder: Path) -> str:
    """Return a folder with links to every program of the PATH except `java`."""
    folder.mkdir()
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        for program in place.iterdir() if place.is_dir() else ():
            link = folder / program.name
            if not program.name.startswith("java") and not link.is_symlink():
                link.symlink_to(program)
    return str(folder)


@pytest.mark.long
def test_a_pipeline_runs_on_the_bundled_runtime(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.write().create_topic()
    pipeline.send([{"id": "a", "n": 1}, {"id": "a", "n": 1}])
    without = {"PATH": path_without_java(tmp_path / "bin"), "JAVA_HOME": ""}
    ask = "from glassflow_dagster.runtime.java import find_java; print(find_java().origin)"
    origin = subprocess.check_output([sys.executable, "-c", ask], env={**os.environ, **without}, text=True)
    assert origin == "bundled\n"
    done = pipeline.run("--until-caught-up", **without)
    assert done.code == 0, done.err
    assert pipeline.query("SELECT * FROM {db}.events") == [("a", 1)]
