"""What ends a query that finds another driver's files in its checkpoint."""

from pathlib import Path
from unittest.mock import Mock

import pytest
from pyspark.errors import StreamingQueryException

from glassflow_dagster.driver.context import RunContext
from glassflow_dagster.driver.failures import spark_failures
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.query.query_failure import CheckpointConflict, query_failure
from glassflow_dagster.errors import Fenced, GlassflowError

CONFLICTS = [
    "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 3.",
    "glassflow_dagster.stream.checkpoint.checkpoint.CheckpointError: s3a://b/p/3.json: was written by another query",
]


def failure(text: str, opened: Mock) -> Exception:
    return query_failure(StreamingQueryException(text), Mock(), opened, Mock(), "give it more")


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


@pytest.mark.parametrize("pool", [None, "small"])
def test_a_jvm_without_memory_says_how_it_gets_more(pool: str | None, tmp_path: Path) -> None:
    config = Mock(pool=pool)
    run = RunContext(config, RunOptions(tmp_path), tmp_path, Mock(), Mock())
    error = StreamingQueryException("java.lang.OutOfMemoryError: Java heap space")
    found = str(query_failure(error, config, Mock(), Mock(), run.more_memory))
    with pytest.raises(GlassflowError) as lost, spark_failures(tmp_path, run.more_memory):
        raise ConnectionError
    for text in (found, str(lost.value)):
        if pool:
            assert "than 1g" in text
            assert f"glassflow-dagster pool start small --state {tmp_path} --conf spark.driver.memory=2g" in text
        else:
            assert "give it more (spark.driver.memory, 1g by default" in text


def test_another_failure_is_no_conflict() -> None:
    assert not isinstance(failure("java.io.IOException: No space left on device", Mock()), CheckpointConflict)
