"""One checkpoint is replaced by another: at each point there is one that is complete, and no mix of two."""

import json
from pathlib import Path

import pytest

from glassflow_dagster.stream.checkpoint.checkpoint import IDENTITY_FILE, Checkpoint, CheckpointIdentity
from glassflow_dagster.stream.checkpoint.repartition_files import (
    complete,
    finish_replacement,
    new_checkpoint,
    replace_checkpoint,
    take_over_logs,
)

CONF_KEY = "spark.sql.shuffle.partitions"
CONF = {CONF_KEY: "2", "other": "1"}


def identity(partitions: int) -> CheckpointIdentity:
    return CheckpointIdentity(
        checkpoint_id="c", token_prefix="c", pipeline_id="p", topics=("t",), table="t", rows_before=0, created_at=0,
        shuffle_partitions=partitions, state="",
    )  # fmt: skip


@pytest.fixture
def old(tmp_path: Path) -> Checkpoint:
    """Return a checkpoint with two committed batches and two state partitions."""
    folder = tmp_path / "checkpoint"
    (folder / "sources/0").mkdir(parents=True)
    (folder / "sources/0/0").write_text('v1\n{"t":{"0":0}}')
    (folder / "metadata").write_text('{"id":"q"}')
    for log in ("offsets", "commits", "state/0/0", "state/0/1"):
        (folder / log).mkdir(parents=True)
    for batch in range(2):
        metadata = json.dumps({"batchWatermarkMs": 7, "batchTimestampMs": 1000 + batch, "conf": CONF})
        (folder / f"offsets/{batch}").write_text(f'v1\n{metadata}\n{{"t":{{"0":{10 + batch}}}}}')
        (folder / f"commits/{batch}").write_text("v1\n{}")
        (folder / f"state/0/0/{batch + 1}.changelog").write_text("old")
    checkpoint = Checkpoint(folder)
    checkpoint.replace_identity(identity(2))
    return checkpoint


def written(old: Checkpoint) -> Checkpoint:
    """Return a new checkpoint with a state of one version, whose logs are those of the old one."""
    new = new_checkpoint(old.folder)
    for partition in range(3):
        folder = new.folder / f"state/0/{partition}"
        folder.mkdir(parents=True)
        for name in ("1.zip", ".1.zip.crc", "1.changelog", "11.sst"):
            (folder / name).write_text("new")
    take_over_logs(old, new, 3)
    return new


def test_the_new_checkpoint_continues_after_the_last_batch(old: Checkpoint) -> None:
    new = written(old)
    assert not (new.folder / IDENTITY_FILE).exists()
    complete(new, identity(3))
    assert new.identity() == identity(3)
    assert (new.next_batch, new.last_begun) == (2, 1)
    assert new.offset_ranges(1) == old.offset_ranges(1)
    assert new.batch_time_ms(1) == 1001
    logged = json.loads((new.folder / "offsets/1").read_text().splitlines()[1])
    assert logged == {"batchWatermarkMs": 7, "batchTimestampMs": 1001, "conf": {**CONF, CONF_KEY: "3"}}
    assert {file.name for file in (new.folder / "state/0/2").iterdir()} == {
        "2.zip", ".2.zip.crc", "2.changelog", "11.sst",
    }  # fmt: skip
    new.inspect()


def test_it_takes_the_place_of_the_old_one(old: Checkpoint) -> None:
    new = written(old)
    complete(new, identity(3))
    replace_checkpoint(old.folder)
    assert Checkpoint(old.folder).identity() == identity(3)
    assert [path.name for path in old.folder.parent.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize("is_complete", [False, True])
def test_one_that_is_not_in_its_place_is_forgotten_while_the_old_one_is(old: Checkpoint, is_complete: bool) -> None:
    new = written(old)
    if is_complete:
        complete(new, identity(3))
    finish_replacement(old.folder)
    assert Checkpoint(old.folder).identity() == identity(2)
    assert [path.name for path in old.folder.parent.iterdir()] == ["checkpoint"]


@pytest.mark.parametrize(("is_complete", "partitions"), [(False, 2), (True, 3)])
def test_between_the_two_renames_the_complete_one_is_taken(old: Checkpoint, is_complete: bool, partitions: int) -> None:
    new = written(old)
    if is_complete:
        complete(new, identity(3))
    old.folder.rename(old.folder.with_name("checkpoint.before-repartition"))
    finish_replacement(old.folder)
    assert Checkpoint(old.folder).identity() == identity(partitions)
    assert [path.name for path in old.folder.parent.iterdir()] == ["checkpoint"]


def test_nothing_is_made_where_there_is_no_checkpoint(tmp_path: Path) -> None:
    finish_replacement(tmp_path / "p" / "checkpoint")
    assert not list(tmp_path.iterdir())
