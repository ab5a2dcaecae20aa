"""What ends a query that finds another driver's files in its checkpoint."""

from unittest.mock import Mock

import pytest
from pyspark.errors import StreamingQueryException

from glassflow_dagster.driver.query_failure import CheckpointConflict, query_failure
from glassflow_dagster.errors import Fenced

CONFLICTS = [
    "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 3.",
    "glassflow_dagster.streaming.checkpoint.checkpoint.CheckpointError: s3a://b/p/3.json: was written by another query",
]


def failure(text: str, opened: Mock) -> Exception:
    return query_failure(StreamingQueryException(text), Mock(), opened, Mock())


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


def test_another_failure_is_no_conflict() -> None:
    assert not isinstance(failure("java.io.IOException: No space left on device", Mock()), CheckpointConflict)
