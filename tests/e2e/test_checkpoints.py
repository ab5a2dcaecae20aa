"""Damaged checkpoints and changed topics: the pipeline recovers, or stops with an error that says what to do."""

import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint, CheckpointError
from tests.e2e.support import Pipeline
from tests.support.variants import one_of
from tests.support.waiting import wait_until

ANSWER = 30  # seconds that the broker takes to delete or create a topic


def checkpoint(pipeline: Pipeline) -> Path:
    return pipeline.state / pipeline.name / "checkpoint"


def flip(file: Path) -> None:
    """Flip one bit in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def empty(file: Path) -> None:
    file.write_bytes(b"")


DAMAGES = (flip, cut, empty)

# One file of each kind in the state: a snapshot, its table, and the changes after it. Spark rebuilds a snapshot from
# older changes, which still exist.
STATE_FILES = ("2.changelog", "1.zip", "SSTs/*.sst")
STOPPING = {"2.changelog"}
STATE_DAMAGES = one_of([(file, damage) for file in STATE_FILES for damage in (*DAMAGES, Path.unlink)])


def catch_up_error(pipeline: Pipeline) -> str:
    with pytest.raises(GlassflowError) as problem:
        pipeline.catch_up()
    return str(problem.value)


def rows(pipeline: Pipeline) -> list[tuple[int, ...]]:
    return pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events")


def two_batches(pipeline: Pipeline) -> Pipeline:
    pipeline.write().create_topic()
    for first in (0, 100):
        pipeline.send({"id": f"k{index}", "n": index} for index in range(first, first + 150))
        pipeline.catch_up()
    return pipeline


@pytest.mark.long
def test_damaged_files_are_named_a_moved_folder_goes_on_and_an_older_copy_is_refused(pipeline: Pipeline) -> None:
    """Use one pipeline for all cases: each error occurs before Spark changes anything."""
    pipeline.write().create_topic()
    pipeline.send({"id": f"k{index}", "n": index} for index in range(150))
    pipeline.catch_up()
    older = pipeline.folder / "older"
    shutil.copytree(pipeline.state, older)
    pipeline.send({"id": f"k{index}", "n": index} for index in range(100, 250))
    pipeline.catch_up()

    # Spark checks the files of the state when it loads them: see the next test.
    files = [file for file in checkpoint(pipeline).rglob("*") if file.is_file() and not file.name.startswith(".")]
    looked_at = [file for file in files if file.suffix not in {".changelog", ".zip", ".sst"}]
    read = {"metadata", "0", "1", "identity.json", "definition.json", "topics.json", "0.json", "1.json"}
    assert {file.name for file in looked_at} >= read
    # Spark never reads a completed batch again once the next one is completed.
    looked_at.remove(checkpoint(pipeline) / "commits" / "0")
    # Of a driver's claim only the name counts.
    looked_at = [file for file in looked_at if file.parent.name != "writers"]
    for file in looked_at:
        content = file.read_bytes()
        for damage in DAMAGES:
            damage(file)
            with pytest.raises(CheckpointError, match=rf"{re.escape(str(file))}: is .*; restore the checkpoint"):
                Checkpoint(checkpoint(pipeline)).inspect()
        file.write_bytes(content)

    pipeline.client().command(f"RENAME TABLE {pipeline.name}.glassflow_ledger TO {pipeline.name}.away")
    assert "batch 1 is done, but" in catch_up_error(pipeline)
    pipeline.client().command(f"DROP TABLE {pipeline.name}.glassflow_ledger")
    pipeline.client().command(f"RENAME TABLE {pipeline.name}.away TO {pipeline.name}.glassflow_ledger")

    newer = pipeline.folder / "newer"
    pipeline.state.rename(newer)
    older.rename(pipeline.state)
    message = catch_up_error(pipeline)
    assert f"ends with batch 0, but {pipeline.name}.glassflow_ledger has batch 1 of this checkpoint" in message
    shutil.rmtree(pipeline.state)
    moved = replace(pipeline, folder=pipeline.folder / "moved").write()
    newer.rename(moved.state)
    pipeline.send([{"id": "k0", "n": 0}, {"id": "new", "n": 1}])
    assert moved.catch_up()["written"] == 1
    assert rows(pipeline) == [(251, 251)]


@pytest.mark.parametrize(("file", "damage"), STATE_DAMAGES)
def test_a_damaged_file_of_the_state_is_repaired_or_stops_the_pipeline(
    pipeline: Pipeline, file: str, damage: Callable[[Path], None]
) -> None:
    two_batches(pipeline)
    (found,) = checkpoint(pipeline).glob(f"state/0/0/{file}")
    kept = found.read_bytes()
    damage(found)
    pipeline.send({"id": f"k{index}", "n": index} for index in range(200, 300))
    if file in STOPPING:
        # Other tasks may have written before the error: the batch is repeated.
        assert catch_up_error(pipeline).startswith("a state file of the checkpoint is damaged or missing; restore")
        found.write_bytes(kept)
    totals = pipeline.catch_up()
    assert (totals["written"], totals["duplicates"]) == (50, 50)
    assert rows(pipeline) == [(300, 300)]


@pytest.mark.long
def test_a_full_disk_is_said_and_nothing_is_lost_by_it(pipeline: Pipeline) -> None:
    """Simulate the full disk by /dev/full, to which the kernel rejects every write."""
    pipeline.write().create_topic()
    pipeline.send({"id": f"k{index}", "n": index} for index in range(100))
    folder = pipeline.state / pipeline.name
    folder.mkdir(parents=True)
    (folder / "heartbeat.json.new").symlink_to("/dev/full")
    assert "No space left on device; free disk space" in catch_up_error(pipeline)
    (folder / "heartbeat.json.new").unlink()
    plan = checkpoint(pipeline) / "glassflow" / "plans" / "0.new"
    plan.parent.mkdir(parents=True)
    plan.symlink_to("/dev/full")
    assert catch_up_error(pipeline).startswith("the disk is full; free space for the state folder")
    assert rows(pipeline) == [(0, 0)]
    plan.unlink()
    assert pipeline.catch_up()["written"] == 100
    assert rows(pipeline) == [(100, 100)]


@pytest.mark.long
def test_topics_that_lost_records_or_were_recreated_are_rejected_and_new_partitions_are_read(
    pipeline: Pipeline,
) -> None:
    two_batches(pipeline)
    admin = AdminClient({"bootstrap.servers": pipeline.brokers})

    pipeline.add_partition(3)
    pipeline.send(({"id": f"p{index}", "n": index} for index in range(90)), lambda index: index % 3)
    assert pipeline.catch_up()["written"] == 90
    assert rows(pipeline) == [(340, 340)]

    pipeline.send(({"id": f"q{index}", "n": index} for index in range(10)), lambda _: 2)
    gone = TopicPartition(pipeline.name, 2, 34)  # 30 records are read, 40 exist
    admin.delete_records([gone])[gone].result(ANSWER)
    said = catch_up_error(pipeline)
    assert f"topic {pipeline.name}, partition 2: offsets 30 to 33 were not read and are gone" in said
    assert "run it with --accept-loss" in said

    admin.delete_topics([pipeline.name])[pipeline.name].result(ANSWER)
    wait_until(lambda: pipeline.name not in admin.list_topics(timeout=ANSWER).topics, "the topic is gone")
    pipeline.create_topic(3)
    assert "which was read up to" in catch_up_error(pipeline) or "was deleted and recreated" in catch_up_error(pipeline)
    # As many records as before, and more: only the topic's id at the broker reveals the new topic.
    pipeline.send(({"id": f"r{index}", "n": index} for index in range(900)), lambda index: index % 3)
    assert f"topic {pipeline.name} was deleted and recreated since {pipeline.name} read it" in catch_up_error(pipeline)
    assert rows(pipeline) == [(340, 340)]
