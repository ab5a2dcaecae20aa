"""What is kept beside Spark's files, and what is read of them."""

import json
from pathlib import Path

import pytest

from glassflow_dagster.config.load import load_pipeline
from glassflow_dagster.streaming.checkpoint import BatchPlan, Checkpoint, CheckpointError, state_shape

CONFIG = load_pipeline(Path("pipelines/sms_status.yaml"), {})


def spark_files(folder: Path, batches: int, committed: int) -> Checkpoint:
    """A checkpoint as Spark leaves it: each batch reads ten more records of each partition."""
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


def test_old_plans_are_forgotten(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    for batch in range(30):
        checkpoint.record(plan(batch))
    assert checkpoint.plan(0) is None
    assert checkpoint.plan(29) == plan(29)
    assert len(list((tmp_path / "glassflow/plans").iterdir())) == 10


def test_an_incarnation_is_made_once(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path)
    assert checkpoint.incarnation() is None
    made = checkpoint.create(CONFIG, "a.t", 3, 2)
    assert checkpoint.incarnation() == made


def test_a_checkpoint_whose_name_is_lost_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is missing, but the checkpoint has batches"):
        spark_files(tmp_path, batches=1, committed=1).incarnation()


def test_a_file_that_is_cut_off_is_named(tmp_path: Path) -> None:
    checkpoint = spark_files(tmp_path, batches=1, committed=0)
    (tmp_path / "offsets/0").write_text("v1\n")
    with pytest.raises(CheckpointError, match="offsets/0: is cut off"):
        checkpoint.offset_ranges(0)
    checkpoint.create(CONFIG, "a.t", 0, 2)
    (tmp_path / "glassflow/incarnation.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"incarnation\.json: is no JSON"):
        checkpoint.incarnation()


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
