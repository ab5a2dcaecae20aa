"""Joins end to end: the table is what the topics' contents make by definition, through kills and silence."""

import os
import signal
import time
from pathlib import Path

import pytest

from glassflow_dagster.streaming.heartbeat import pipeline_folder, read_heartbeat
from tests.conftest import Stack
from tests.e2e.joins import LEFT, RIGHT, JoinPipeline, recompute, seeded
from tests.e2e.support import cli, wait_until

# Of each clock one: `make test-joins` runs all.
ALL = [
    (clock, match, kind, kills)
    for kills, (clock, match, kind) in enumerate(
        (clock, match, kind)
        for clock in ("processing", "event")
        for match in ("latest", "all")
        for kind in ("inner", "left")
    )
]
DRAWN = [("processing", "latest", "left", 1), ("event", "all", "inner", 1)]
CASES = ALL if os.environ.get("GLASSFLOW_TEST_JOINS") == "all" else DRAWN
SEEDS = 20
FAR_FUTURE = 4_070_908_800  # 2099


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def make(stack: Stack, folder: Path, **how: object) -> JoinPipeline:
    pipeline = JoinPipeline(folder, stack.kafka, stack.clickhouse_port, **how)  # type: ignore[arg-type]
    pipeline.client().command(f"CREATE DATABASE IF NOT EXISTS {pipeline.name}")
    return pipeline


def start(pipeline: JoinPipeline) -> None:
    done = cli("start", str(pipeline.file), "--state", str(pipeline.state))
    assert done.code == 0, done.err


def stop(pipeline: JoinPipeline) -> None:
    done = cli("stop", pipeline.name, "--state", str(pipeline.state))
    assert done.code == 0, done.err


def kill(pipeline: JoinPipeline) -> None:
    beat = read_heartbeat(pipeline_folder(pipeline.state, pipeline.name))
    assert beat is not None
    os.kill(beat.pid, signal.SIGKILL)


def verified(pipeline: JoinPipeline) -> str:
    done = cli("verify", pipeline.name, "--pipelines", str(pipeline.file.parent))
    assert done.code == 0, done.out + done.err
    return done.out


@pytest.mark.servers
@pytest.mark.parametrize(("clock", "match", "kind", "kills"), CASES)
def test_the_rows_are_those_that_the_topics_make(  # noqa: PLR0913, PLR0917 - a case's parts
    stack: Stack, folder: Path, clock: str, match: str, kind: str, kills: int
) -> None:
    pipeline = make(stack, folder, match=match, kind=kind, event_clock=clock == "event")
    pipeline.write().create_topic()
    begin = int(time.time()) - 86_400
    events = [event for seed in range(SEEDS) for event in seeded(seed, 20, 20, begin, 600)]
    thirds = [events[i::3] for i in range(3)]
    thirds[1] += [(LEFT, b"{not json"), (RIGHT, {"id": "future", "owner": "0 of 0", "at": FAR_FUTURE})]
    last = begin + 86_000
    flush = [
        (LEFT, {"id": "last left", "user": "last", "at": last}),
        (RIGHT, {"id": "last right", "owner": "-", "at": last}),
    ]
    late = [
        (LEFT, {"id": "late left", "user": "0 of 0", "at": begin}),
        (RIGHT, {"id": "late right", "owner": "0 of 0", "at": begin}),
    ]
    start(pipeline)
    try:
        sent = 0
        for third in thirds:
            pipeline.send_sides(third)
            sent += len(third)
            if kills % 2:
                kill(pipeline)
                start(pipeline)
            wait_until(lambda sent=sent: pipeline.join_ledger()["read"] == sent, "all is read")
        if clock == "event":
            pipeline.send_sides(flush)
            wait_until(lambda: pipeline.join_ledger()["waiting"] == 1, "the clock has passed all but the last event")
            pipeline.send_sides(late)
            wait_until(lambda: pipeline.join_ledger()["late"] == 2, "the late ones are counted")
        else:
            wait_until(lambda: pipeline.join_ledger()["waiting"] == 0, "those that waited are decided in silence")
    finally:
        stop(pipeline)
    expected = recompute(pipeline, ("late left", "late right") if clock == "event" else (), (last - 600) * 1_000_000)
    assert pipeline.rows() == expected.rows
    assert pipeline.join_ledger() == expected.counts
    assert "counts_agree" in verified(pipeline)
