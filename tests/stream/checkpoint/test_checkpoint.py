"""Our files beside Spark's in a checkpoint, and what is read from Spark's."""

import json
import os
from pathlib import Path

import pytest

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.stream.checkpoint.checkpoint import BatchPlan, Checkpoint, CheckpointError, state_shape

CONFIG = load_pipeline(Path("pipelines/sms_status.yaml"), {})


def spark_files(folder: Path, batches: int, committed: int) -> Checkpoint:
    """Write a checkpoint as Spark does: each batch reads ten more records of each partition."""
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True)
    (folder / "sources/0/0").write_text('v1\n{"t":{"0":5,"1":0}}')
    for batch in range(batches):
        metadata = json.dumps({"batchTimestampMs": 1000 + batch})
        offsets = json.dumps({"t": {"0": 15 + 10 * batch, "1": 10 + 10 * batch}})
        (folder / f"offsets/{batch}").write_text(f"v1\n{metadata}\n{offsets}")
    for batch in range(committed):
        (folder / f"commits/{batch}").write_text("v1\n{}")
    return Checkpoint(folder)


def plan(batch_id: int) -> BatchPlan:
    return BatchPlan(
        batch_id=batch_id,
        batch_time_ms=1,
        offsets={"t": {0: (0, 1)}},
        definition="d",
        types={"c": "String"},
        table="",
        dead_letters_expire_at=0,
        rows=1,
        bytes=1,
    )


def test_a_batchs_offsets_begin_where_the_last_one_ended(tmp_path: Path) -> None:
    checkpoint = spark_files(tmp_path, batches=2, committed=1)
    assert checkpoint.offset_ranges(0) == {"t": {0: (5, 15), 1: (0, 10)}}
    assert checkpoint.offset_ranges(1) == {"t": {0: (15, 25), 1: (10, 20)}}
    assert checkpoint.batch_time_ms(1) == 1001


def test_a_batch_without_commit_is_pending_only_when_it_has_a_plan(tmp_path: Path) -> None:
    checkpoint = spark_files(tmp_path, batches=2, committed=1)
    assert checkpoint.pending_plan() is None
    checkpoint.record(plan(1))
    assert checkpoint.pending_plan() == plan(1)
    (tmp_path / "commits/1").write_text("v1\n{}")
    assert checkpoint.pending_plan() is None


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power failure the plan is complete or missing: sync the bytes, then rename, then sync the folder."""
    done: list[tuple[str, str]] = []
    sync, rename = os.fsync, Path.replace

    def note_sync(file: int) -> None:
        done.append(("sync", Path(f"/proc/self/fd/{file}").readlink().name))
        sync(file)

    def note_rename(self: Path, target: Path) -> Path:
        done.append(("rename", target.name))
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(Path, "replace", note_rename)
    checkpoint = Checkpoint(tmp_path)
    checkpoint.record(plan(0))
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert done == [("sync", file.with_suffix(".new").name), ("rename", file.name), ("sync", file.parent.name)]


def test_old_plans_are_forgotten(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    for batch in range(30):
        checkpoint.record(plan(batch))
    assert checkpoint.plan(0) is None
    assert checkpoint.plan(29) == plan(29)
    assert len(list((tmp_path / "glassflow/plans").iterdir())) == 10


def test_an_identity_is_made_once(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.identity() is None
    made = checkpoint.create(CONFIG, 3, 2)
    assert checkpoint.identity() == made


def test_a_checkpoint_whose_name_is_lost_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is missing, but the checkpoint has batches"):
        spark_files(tmp_path, batches=1, committed=1).identity()


def test_a_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    checkpoint = spark_files(tmp_path, batches=1, committed=0)
    (tmp_path / "offsets/0").write_text("v1\n")
    with pytest.raises(CheckpointError, match="offsets/0: is truncated"):
        checkpoint.offset_ranges(0)
    checkpoint.create(CONFIG, 0, 2)
    (tmp_path / "glassflow/identity.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"identity\.json: is truncated or was changed; restore"):
        checkpoint.identity()


def test_a_bit_that_flips_in_a_file_of_ours_is_seen(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    checkpoint.record(plan(3))
    file = tmp_path / "glassflow/plans/3.json"
    file.write_bytes(file.read_bytes().replace(b'"rows": 1', b'"rows": 3'))
    with pytest.raises(CheckpointError, match=r"3\.json: is truncated or was changed"):
        checkpoint.plan(3)


def test_a_checkpoint_of_another_version_is_refused_with_the_version_that_reads_it(tmp_path: Path) -> None:
    """Version 3 had no checksums, so its file must not be called damaged."""
    file = tmp_path / "glassflow/identity.json"
    file.parent.mkdir()
    file.write_text('{"format": 3, "checkpoint_id": "i"}')
    with pytest.raises(CheckpointError, match="format 3, but this version reads 6; use the version that wrote it, or"):
        Checkpoint(tmp_path).identity()


def test_the_sums_beside_sparks_files_are_those_of_hadoop(tmp_path: Path) -> None:
    """Compare with a file and its checksums as Spark 4.3 wrote them."""
    checkpoint = spark_files(tmp_path, batches=1, committed=1)
    checkpoint.create(CONFIG, 0, 2)
    metadata = tmp_path / "metadata"
    metadata.write_bytes(b'{"id":"68c87db2-518a-4c9e-870d-b622a0f8f9fe"}')
    (tmp_path / ".metadata.crc").write_bytes(b"crc\x00\x00\x00\x02\x00\x03\x99\xa2\x02")
    checkpoint.inspect()
    metadata.write_bytes(metadata.read_bytes().replace(b"68c8", b"68c9"))
    with pytest.raises(CheckpointError, match="metadata: is truncated or was changed"):
        checkpoint.inspect()


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("offsets/1", "batch 0 is the last one started and batch 1 the last one done"),
        ("commits/1 commits/0", "batch 1 is the last one started and batch none the last one done"),
        ("offsets/0 offsets/1", "batch none is the last one started and batch 1 the last one done"),
        ("metadata", "metadata: is missing"),
        ("sources/0/0", "sources/0/0: is missing"),
        ("glassflow/identity.json", "identity.json: is missing, but the checkpoint has batches"),
    ],
)
def test_a_checkpoint_of_which_files_are_missing_is_refused(tmp_path: Path, lost: str, message: str) -> None:
    checkpoint = spark_files(tmp_path, batches=2, committed=2)
    checkpoint.create(CONFIG, 0, 2)
    (tmp_path / "metadata").write_text('{"id":"x"}')
    checkpoint.inspect()
    for name in lost.split():
        (tmp_path / name).unlink()
    with pytest.raises(CheckpointError, match=f"{message}.*; restore the checkpoint and the table"):
        checkpoint.inspect()


def test_a_crash_in_the_moment_of_the_first_batch_leaves_a_new_checkpoint(tmp_path: Path) -> None:
    checkpoint = spark_files(tmp_path, batches=0, committed=0)
    checkpoint.create(CONFIG, 0, 2)
    (tmp_path / "offsets/.0.5f0c.tmp").write_text("v1")
    assert checkpoint.is_new
    checkpoint.inspect()


def test_what_is_read_next_is_what_no_closed_batch_has_read(tmp_path: Path) -> None:
    assert Checkpoint(tmp_path / "new").next_offsets() == {}
    begun = spark_files(tmp_path / "begun", batches=1, committed=0)
    assert begun.next_offsets() == {"t": {0: 5, 1: 0}}
    later = spark_files(tmp_path / "later", batches=3, committed=2)
    assert later.next_offsets() == {"t": {0: 25, 1: 20}}


def test_key_and_clock_are_the_states_shape_and_windows_and_lateness_are_not() -> None:
    def shape(**settings: object) -> str:
        dedup = CONFIG.transforms[0]
        changed = dedup.config.model_validate({"key": "sms_id", "time_window": "1h", **settings})
        return state_shape(CONFIG.model_copy(update={"transforms": (dedup.model_copy(update={"config": changed}),)}))

    event = {"clock": "event", "event_time": "updated_at"}
    assert shape() == shape(time_window="2h") == "deduplication by sms_id string"
    assert shape(**event) == shape(**event, late="keep", allowed_lateness="1m", time_window="2h")
    assert shape(**event) == "deduplication by sms_id string on the event clock of updated_at (s)"
    assert len({shape(), shape(**event), shape(**event, event_time_unit="ms")}) == 3
