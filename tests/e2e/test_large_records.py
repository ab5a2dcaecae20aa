"""Large records, single and many: a driver's batches are bounded by bytes, not only by records."""

import json
import random
from collections.abc import Iterator

import pytest

from glassflow_dagster.stream.delivery import batch_bound
from glassflow_dagster.stream.delivery.batch_bound import BATCH_BYTES
from tests.e2e.support import Pipeline, cli

_LARGE = 900_000  # bytes; below the brokers' default limit
_LARGEST = 10_000_000
# Events per producer: librdkafka's queue holds a gigabyte.
_SENT_AT_ONCE = 100

# Half of Java's default heap, so that half of the records do.
_HEAP = "512m"
# Five hundred of the large records in one Arrow batch do not fit into it.
_MANY = 650

# A driver that moves more than a gigabyte is slow on a busy machine.
_GIGABYTES_SECONDS = 400.0

# A text that does not compress.
_TEXT = "".join(random.Random(5).choices("abcdefghijklmnopqrstuvwxyz0123456789", k=_LARGEST))


def _events(numbers: range, size: int, text: str = _TEXT) -> Iterator[bytes]:
    for number in numbers:
        start = json.dumps({"id": f"k{number}", "n": number, "text": ""})[:-2]
        yield f'{start}{text[: size - len(start) - 2]}"}}'.encode()


def _with_text(pipeline: Pipeline) -> Pipeline:
    pipeline.fields = [*pipeline.fields, {"name": "text", "type": "string"}]
    pipeline.columns = {**pipeline.columns, "text": "String"}
    return pipeline


def _send(pipeline: Pipeline, events: int, size: int) -> None:
    for first in range(0, events, _SENT_AT_ONCE):
        pipeline.send(_events(range(first, min(events, first + _SENT_AT_ONCE)), size))


def _run(pipeline: Pipeline) -> None:
    """Run as a user does: a separate driver process, here with a small heap."""
    done = cli(
        "run", str(pipeline.file), "--state", str(pipeline.state), "--until-caught-up", "--create-table",
        "--conf", f"spark.driver.memory={_HEAP}", timeout=_GIGABYTES_SECONDS,
    )  # fmt: skip
    assert done.code == 0, done.err


def _require_rows(pipeline: Pipeline, events: int, size: int) -> None:
    found = pipeline.query("SELECT count(), uniqExact(id), sum(n), min(length(text)) FROM {db}.events")
    rows, ids, numbers, shortest = found[0]
    assert (rows, ids, numbers) == (events, events, sum(range(events)))
    assert shortest > size - 100


@pytest.mark.long
def test_an_open_batch_that_is_too_large_is_finished_and_the_backlog_behind_it_comes_in_bounded_bytes(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_text(pipeline).write().create_topic()
    _send(pipeline, _MANY, _LARGE)
    with monkeypatch.context() as patch:
        # Plan the batch as earlier versions did, which bounded a batch by its records alone.
        patch.setattr(batch_bound, "BATCH_BYTES", 2**40)
        pipeline.die_at("write_blocks", create_table=True)
    backlog = 2 * BATCH_BYTES // _LARGE
    # Compressed, all records fit into one fetch of the Kafka client.
    pipeline.send(_events(range(_MANY, _MANY + backlog), _LARGE, "a" * _LARGE), compression="gzip")

    _run(pipeline)

    _require_rows(pipeline, _MANY + backlog, _LARGE)
    assert pipeline.query("SELECT read, written FROM {db}.glassflow_ledger WHERE batch_id = 0") == [(_MANY, _MANY)]
    behind = pipeline.query("SELECT sum(read), max(bytes) FROM {db}.glassflow_ledger WHERE batch_id > 0")
    assert behind[0][0] == backlog
    assert behind[0][1] <= BATCH_BYTES


@pytest.mark.long
def test_records_of_ten_megabytes_become_rows_and_dead_letters(pipeline: Pipeline) -> None:
    _with_text(pipeline).write().create_topic()
    _send(pipeline, 12, _LARGEST)
    broken = _TEXT.encode()
    pipeline.send([broken] * 2)

    _run(pipeline)

    _require_rows(pipeline, 12, _LARGEST)
    dead_letters = pipeline.query(
        "SELECT count(), min(length(value)), max(length(value)) FROM {db}.glassflow_dead_letters"
    )
    assert dead_letters == [(2, _LARGEST, _LARGEST)]
