"""What ends a query that finds another driver's files in its checkpoint."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.errors import StreamingQueryException

from glassflow_dagster.control.pool_endpoint import pool_folder
from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.driver.failures import spark_failures, stream_failures
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.query.query_failure import CheckpointConflict, query_failure
from glassflow_dagster.errors import Fenced, GlassflowError

CONFLICTS = [
    "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 3.",
    "glassflow_dagster.stream.checkpoint.checkpoint.CheckpointError: s3a://b/p/3.json: was written by another query",
]


def failure(text: str, opened: Mock) -> Exception:
    return query_failure(StreamingQueryException(text), Mock(), opened, Mock(), lambda: "give it more")


@pytest.mark.parametrize("text", CONFLICTS)
def test_the_newest_driver_reads_the_checkpoint_again(text: str) -> None:
    assert isinstance(failure(text, Mock()), CheckpointConflict)


@pytest.mark.parametrize("text", [*CONFLICTS, "glassflow_dagster.errors.Fenced: another driver"])
@pytest.mark.parametrize("place", ["epoch", "claim"])
def test_an_older_driver_ends(text: str, place: str) -> None:
    opened = Mock()
    getattr(opened, place).require_newest.side_effect = Fenced("a newer driver runs on host b")
    found = failure(text, opened)
    assert isinstance(found, Fenced)
    assert str(found) == "a newer driver runs on host b"


@pytest.mark.parametrize(("pool", "has"), [(None, ""), ("small", "1g"), ("damaged", "it has")])
def test_a_jvm_without_memory_says_how_it_gets_more(pool: str | None, has: str, tmp_path: Path) -> None:
    damaged = pool_folder(tmp_path, "damaged") / "settings.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("{")
    config = Mock(pool=pool)
    run = RunContext(config, RunOptions(tmp_path), tmp_path, Mock(), Mock())
    error = StreamingQueryException("java.lang.OutOfMemoryError: Java heap space")
    found = str(query_failure(error, config, Mock(), Mock(), run.more_memory))
    with pytest.raises(GlassflowError) as lost, spark_failures(tmp_path, run.more_memory):
        raise ConnectionError
    for text in (found, str(lost.value)):
        if pool:
            assert f"give its pool more than {has}: " in text
            assert f"glassflow-dagster pool start {pool} --state {tmp_path} --conf spark.driver.memory=2g" in text
        else:
            assert "give it more (spark.driver.memory, 1g by default" in text


def test_how_a_jvm_gets_more_memory_is_found_out_when_it_has_failed_only(tmp_path: Path) -> None:
    asked = Mock()
    with spark_failures(tmp_path, asked), stream_failures(asked):
        pass
    query_failure(StreamingQueryException(CONFLICTS[0]), Mock(), Mock(), Mock(), asked)
    asked.assert_not_called()


def test_another_failure_is_no_conflict() -> None:
    assert not isinstance(failure("java.io.IOException: No space left on device", Mock()), CheckpointConflict)
