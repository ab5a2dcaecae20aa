"""`state repartition`: the state gets another number of partitions, and the pipeline continues exactly."""

import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.driver import repartition as command
from glassflow_dagster.stream.checkpoint import repartition_files
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.stream.inline_or_job import INLINE_RECORDS_SETTING
from glassflow_dagster.stream.repartition import read_states
from tests.e2e.joins import SECOND, JoinPipeline, recompute
from tests.e2e.support import Finished, Pipeline, begin_large_batch, cli, invoke, kill, start, stop
from tests.e2e.test_event_clock import BATCH
from tests.e2e.test_event_clock import events as events_by_time
from tests.e2e.test_join import CatchUpRuns, event_pair, set_up
from tests.servers.object_store import ObjectStoreServer
from tests.servers.stack import Stack
from tests.support.variants import fault_seed, one_of
from tests.support.waiting import wait_until

AS_JOBS = {INLINE_RECORDS_SETTING: "0"}
DONE = re.compile(r"(?P<name>\w+): the state has (?P<after>\d+) partitions \(before: (?P<before>\d+)\)")


class Died(Exception):
    """The process was killed at this point."""


def events(numbers: range) -> Iterator[dict[str, Any]]:
    return ({"id": f"k{number}", "n": number} for number in numbers)


def checkpoint(pipeline: Pipeline) -> Path:
    return pipeline.state / pipeline.name / "checkpoint"


def partitions(pipeline: Pipeline) -> int:
    """Return the number of partitions in the files of each state, which must be that of the identity and of the log."""
    (count,) = {
        sum(folder.name.isdigit() for folder in state.iterdir()) for state in (checkpoint(pipeline) / "state").iterdir()
    }
    found = Checkpoint(checkpoint(pipeline))
    identity = found.identity()
    assert identity is not None
    assert identity.shuffle_partitions == count
    logged = (checkpoint(pipeline) / "offsets" / str(found.last_begun)).read_text()
    assert f'"spark.sql.shuffle.partitions":"{count}"' in logged.replace('": "', '":"')
    return count


def arguments(pipeline: Pipeline, count: int) -> tuple[str, ...]:
    folders = ("--pipelines", str(pipeline.file.parent), "--state", str(pipeline.state))
    return ("state", "repartition", pipeline.name, "--partitions", str(count), *folders)


def repartition(pipeline: Pipeline, count: int) -> Finished:
    return invoke(*arguments(pipeline, count))


def require_repartitioned(pipeline: Pipeline, count: int) -> None:
    """Repartition the state, and check that it has so many partitions, and nothing of the old checkpoint is left."""
    before = partitions(pipeline)
    done = repartition(pipeline, count)
    assert done.code == 0, done.err
    said = DONE.match(done.out)
    assert said
    assert (said["name"], int(said["after"]), int(said["before"])) == (pipeline.name, count, before)
    assert partitions(pipeline) == count
    assert [folder.name for folder in checkpoint(pipeline).parent.glob("checkpoint*")] == ["checkpoint"]


def require_exact(pipeline: Pipeline) -> None:
    found = cli("verify", pipeline.name, "--exact", "--pipelines", str(pipeline.file.parent))
    assert found.code == 0, found.out + found.err


def known_until(spark: SparkSession, pipeline: Pipeline) -> dict[bytes, int]:
    """Return the keys in the state, and until when each is known."""
    config = load_pipeline(pipeline.file)
    known = read_states(spark, config, Checkpoint(checkpoint(pipeline))).known
    assert known is not None
    return {bytes(row["key"]): row["until"] for row in known.collect()}


@pytest.mark.long
def test_keys_are_known_as_long_as_before_inline_and_in_jobs(pipeline: Pipeline, spark: SparkSession) -> None:
    pipeline.write().create_topic()
    pipeline.send(events(range(300)))
    pipeline.catch_up()
    pipeline.send(events(range(200, 500)))
    pipeline.catch_up(spark=AS_JOBS)
    before = known_until(spark, pipeline)
    assert len(before) == 500
    assert len(set(before.values())) == 2

    known = 500
    for count, settings in ((5, {}), (1, AS_JOBS)):
        require_repartitioned(pipeline, count)
        assert known_until(spark, pipeline).items() >= before.items()
        pipeline.send(events(range(known + 50)))
        totals = pipeline.catch_up(spark=settings)
        assert (totals["written"], totals["duplicates"]) == (50, known)
        known += 50
        assert partitions(pipeline) == count

    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(known, known)]
    require_exact(pipeline)


@pytest.mark.long
def test_accepted_times_timers_and_the_watermark_of_the_event_clock_are_kept(pipeline: Pipeline) -> None:
    """As test_event_clock.py, whose numbers these are, but for the partitions."""
    pipeline.fields = [{"name": "id", "type": "string"}, {"name": "at", "type": "string"}]
    pipeline.columns = {"id": "String", "at": "DateTime64(3)"}
    pipeline.clock = {"clock": "event", "event_time": "at", "allowed_lateness": "30m", "late": "drop"}
    pipeline.sink = {"max_batch_size": 10, "create_table": {"order_by": "tuple()", "partition_by": "toYear(at)"}}
    pipeline.write().create_topic(partitions=1)
    sent = events_by_time()
    found = {"written": 0, "duplicates": 0, "late": 0}
    for batch, count in enumerate((7, 1, None)):
        pipeline.send(sent[batch * BATCH : (batch + 1) * BATCH], lambda _: 0)
        totals = pipeline.catch_up()
        found = {name: number + totals[name] for name, number in found.items()}
        if count:
            require_repartitioned(pipeline, count)
    assert pipeline.query("SELECT count() FROM {db}.glassflow_ledger") == [(3,)]
    assert found == {"written": 1100, "duplicates": 320, "late": 80}
    # The clock passes the windows: the timers remove all keys but the last one, and that of the far future.
    for second in (0, 1):
        pipeline.send([{"id": "last", "at": f"2024-10-29T00:00:0{second}Z"}], lambda _: 0)
        pipeline.catch_up()
    done = repartition(pipeline, 2)
    # The values of two keys, and their timers.
    assert "; 4 entries were written and compared" in done.out, done.out + done.err


@pytest.mark.long
@pytest.mark.usefixtures("shared_session")
@pytest.mark.parametrize("clock", ["processing", "event"])
def test_waiting_events_of_a_join_find_their_matches(stack: Stack, tmp_path: Path, clock: str) -> None:
    """Both sources are deduplicated: the query has two states."""
    pipeline = JoinPipeline(
        tmp_path, stack.kafka, stack.clickhouse_port, match="all", kind="left", event_clock=clock == "event"
    )
    set_up(pipeline)
    sent = [event for seed in range(10) for event in pipeline.seeded(seed, 20, 20)]
    driver = CatchUpRuns(pipeline)
    read = 0
    for part, count in ((sent[0::3], 5), (sent[1::3], 1), (sent[2::3], 3)):
        read += len(part)
        driver.send_and_wait(part, "read", read)
        assert clock == "processing" or pipeline.join_ledger()["waiting"] > 0
        require_repartitioned(pipeline, count)
    last = pipeline.begin + 3 * pipeline.lateness
    late = event_pair(pipeline, "late", "0 of 0", pipeline.begin)
    if clock == "event":
        driver.send_and_wait(event_pair(pipeline, "last", "-", last), "waiting", 1)
        driver.send_and_wait(late, "late", 2)
    else:
        # The timers are due when the windows have passed.
        driver.send_and_wait([], "waiting", 0)
    expected = recompute(
        pipeline, [pipeline.identity(side, event) for side, event in late], (last - pipeline.lateness) * SECOND
    )
    assert pipeline.rows() == expected.rows
    assert pipeline.join_ledger() == expected.counts
    assert min(expected.counts[name] for name in ("matched", "unmatched", "duplicates")) > 0
    assert partitions(pipeline) == 3


def dying(*, before: str = "", after: str = "", call: int = 1) -> Callable[[Any], Any]:
    """Return a patch of a function of `repartition` or `repartition_files`: the process dies at its call."""
    name = before or after
    module = command if hasattr(command, name) else repartition_files
    function, calls = getattr(module, name), [0]

    def die(*arguments: Any) -> Any:
        calls[0] += 1
        if before and calls[0] == call:
            raise Died
        result = function(*arguments)
        if after and calls[0] == call:
            raise Died
        return result

    return patch.object(module, name, die)


POINTS = {
    "after the state was written": ({"after": "write_states"}, 2),
    "before the logs were copied": ({"before": "take_over_logs"}, 2),
    "before the new one was complete": ({"before": "complete"}, 2),
    "when the new one was complete": ({"after": "complete"}, 2),
    "after the old one was renamed": ({"after": "_rename", "call": 1}, 5),
    "before the new one was renamed": ({"before": "_rename", "call": 2}, 5),
    "after the new one was renamed": ({"after": "_rename", "call": 2}, 5),
}


@pytest.mark.long
@pytest.mark.parametrize("point", one_of(list(POINTS)))
@pytest.mark.parametrize("then", one_of(["driver", "again"]))
def test_a_repartitioning_that_dies_leaves_the_old_checkpoint_or_the_new_one(
    pipeline: Pipeline, point: str, then: str
) -> None:
    pipeline.write().create_topic()
    pipeline.send(events(range(100)))
    pipeline.catch_up()
    death, left = POINTS[point]
    with dying(**death), pytest.raises(Died):
        repartition(pipeline, 5)
    if then == "again":
        done = repartition(pipeline, 5)
        assert done.code == 0, done.err
        left = 5
    pipeline.send(events(range(150)))
    totals = pipeline.catch_up()
    assert (totals["written"], totals["duplicates"]) == (50, 100)
    assert partitions(pipeline) == left
    assert [folder.name for folder in checkpoint(pipeline).parent.glob("checkpoint*")] == ["checkpoint"]
    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(150, 150)]


@pytest.mark.long
def test_a_command_that_is_killed_is_repeated_or_forgotten(pipeline: Pipeline) -> None:
    """SIGKILL at seeded moments; its JVM outlives it, until the next one ends it."""
    draw = random.Random(fault_seed())
    pipeline.write().create_topic()
    known = 3000
    pipeline.send(events(range(known)))
    pipeline.catch_up()
    for line in ("writing the state", "comparing the new state"):
        running = subprocess.Popen(
            [sys.executable, "-m", "glassflow_dagster", *arguments(pipeline, 7)], stderr=subprocess.PIPE, text=True
        )
        assert running.stderr
        for said in running.stderr:
            if said.startswith(line):
                break
        try:
            running.wait(draw.random() * 2)
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
        running.stderr.close()
        running.wait()
        assert partitions(pipeline) in {2, 7}
        pipeline.send(events(range(known + 10)))
        totals = pipeline.catch_up()
        assert (totals["written"], totals["duplicates"]) == (10, known)
        known += 10
    if partitions(pipeline) != 7:
        require_repartitioned(pipeline, 7)
    require_exact(pipeline)


@pytest.mark.long
def test_a_running_pipeline_and_one_with_an_open_batch_are_refused_and_go_on(pipeline: Pipeline) -> None:
    begin_large_batch(pipeline, 2000)
    try:
        running = repartition(pipeline, 5)
        kill(pipeline)
        assert pipeline.ledger()["read"] == 0, "the batch was over before: make it larger"
        open_batch = repartition(pipeline, 5)
        assert running.code == open_batch.code == 1
        assert f"error: {pipeline.name} is running already" in running.err
        assert open_batch.err.splitlines()[-1] == (
            f"error: {pipeline.name}: batch 0 is open, and can be repeated with the present partitions only; finish "
            f"it first: glassflow-dagster run FILE --until-caught-up --state {pipeline.state}"
        )
        start(pipeline)
        wait_until(lambda: pipeline.ledger()["read"] == 2000, "the killed driver's batch is repeated")
    finally:
        stop(pipeline)
    require_repartitioned(pipeline, 5)
    pipeline.send(events(range(2100)))
    totals = pipeline.catch_up()
    assert (totals["written"], totals["duplicates"]) == (100, 2000)


def test_what_cannot_be_repartitioned_is_refused_in_a_line(pipeline: Pipeline) -> None:
    def error() -> str:
        done = repartition(pipeline, 5)
        assert done.code == 1
        return done.err.splitlines()[-1]

    pipeline.write()
    assert error() == (
        f"error: {checkpoint(pipeline)}: has no checkpoint of {pipeline.name}; name the state that it runs with "
        "(--state DIR)"
    )
    pipeline.write(dedup=False)
    assert error().startswith(f"error: {pipeline.name}: neither deduplicates nor joins, so it has no state")

    pipeline.write().create_topic()
    pipeline.send(events(range(10)))
    pipeline.catch_up()
    same = repartition(pipeline, 2)
    assert (same.code, same.out) == (0, f"{pipeline.name}: the state has 2 partitions (as before)\n")
    # The ledger and the checkpoint do not belong together.
    pipeline.client().command(f"RENAME TABLE {pipeline.name}.glassflow_ledger TO {pipeline.name}.away")
    assert "batch 0 is done, but" in error()


def test_a_checkpoint_in_an_object_store_is_copied_first(pipeline: Pipeline, object_store: ObjectStoreServer) -> None:
    pipeline.more["state"] = object_store.definition()
    pipeline.write()
    done = repartition(pipeline, 5)
    assert done.code == 1
    assert done.err.splitlines()[-1] == (
        f"error: {pipeline.more['state']['url']}/{pipeline.name}/checkpoint: is no local folder; stop the pipeline, "
        "copy its state to a local folder (glassflow-dagster state copy FROM TO), do this there, and copy it back"
    )


@pytest.mark.long
def test_a_driver_says_that_its_settings_ask_for_more_partitions(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.write().create_topic()
    pipeline.send(events(range(10)))
    pipeline.catch_up()
    pipeline.more["resources"] = {"transform": [{"source_id": "events", "replicas": 4}]}
    pipeline.write().catch_up()
    hint = f"run: glassflow-dagster state repartition {pipeline.name} --partitions 4"
    assert hint in capsys.readouterr().out
    require_repartitioned(pipeline, 4)
    pipeline.catch_up()
    assert hint not in capsys.readouterr().out
