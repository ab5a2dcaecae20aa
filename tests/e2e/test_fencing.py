"""An older driver writes nothing once a newer one has begun, whatever it was doing and however long it slept."""

import os
import signal
import time
from collections.abc import Mapping

from glassflow_dagster.local.process import start_of
from glassflow_dagster.streaming.heartbeat import STALE_AFTER, pipeline_folder, read_heartbeat, write_heartbeat
from glassflow_dagster.streaming.lock import Holder
from glassflow_dagster.streaming.process import take_over
from tests.e2e.support import Pipeline, start, wait_until

# Tokens that the table remembers while it is flooded: fewer than a batch of the test has blocks.
FEW_TOKENS = 5


def rows(pipeline: Pipeline) -> int:
    return int(pipeline.query("SELECT count() FROM {db}.events")[0][0])


def freeze(pipeline: Pipeline) -> dict[int, str]:
    """Stop a driver, its JVM and its Python workers where they are (SIGSTOP); gives pid -> start."""
    folder = pipeline_folder(pipeline.state, pipeline.name)
    beat = read_heartbeat(folder)
    assert beat is not None
    found = {beat.pid: beat.process_started, **Holder.model_validate_json((folder / "lock").read_text()).remains()}
    assert len(found) > 2, "a driver, a JVM and a worker at least"
    for pid in found:
        os.kill(pid, signal.SIGSTOP)
    # What a second driver would see half a minute later.
    write_heartbeat(folder, beat.model_copy(update={"updated_at": time.time() - STALE_AFTER - 1}))
    return found


def living(processes: Mapping[int, str]) -> list[int]:
    return [pid for pid, started in processes.items() if start_of(pid) == started]


def forget_tokens(pipeline: Pipeline) -> None:
    """Push all tokens out of the table's memory by others' blocks; one that was inserted before shows that they are."""
    client = pipeline.client()
    client.command(
        f"ALTER TABLE {pipeline.name}.events MODIFY SETTING non_replicated_deduplication_window = {FEW_TOKENS}"
    )
    for token in ("probe", *(f"other {number}" for number in range(2 * FEW_TOKENS)), "probe"):
        client.command(
            f"INSERT INTO {pipeline.name}.events SETTINGS async_insert = 0, insert_deduplication_token = '{token}' "
            f"VALUES ('{token}', -1)"
        )
    assert pipeline.query("SELECT count() FROM {db}.events WHERE id = 'probe'") == [(2,)]
    client.command(f"DELETE FROM {pipeline.name}.events WHERE n = -1")


def test_a_driver_that_was_stopped_in_its_batch_and_taken_over_is_dead_and_writes_nothing(pipeline: Pipeline) -> None:
    pipeline.sink = {"max_batch_size": 50}
    pipeline.write().create_topic()
    pipeline.send({"id": f"k{index}", "n": index} for index in range(10_000))
    start(pipeline)
    wait_until(lambda: rows(pipeline) > 0, "the first block is in the table")
    older = freeze(pipeline)
    assert pipeline.ledger()["read"] == 0, "the batch was over before the stop: make it larger"

    take_over(pipeline.state, pipeline.name)
    totals = pipeline.catch_up()
    forget_tokens(pipeline)

    assert living(older) == []
    assert totals["written"] == 10_000
    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(10_000, 10_000)]
