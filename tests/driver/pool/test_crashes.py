"""Which pipelines a pool lets in after its JVM has ended, without a JVM."""

import threading
from pathlib import Path

import pytest

from glassflow_dagster.control.pool_endpoint import forget_crashes
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.driver.pool import crashes
from glassflow_dagster.driver.pool.crashes import HELD_AFTER, CrashHistory, Member, Members, PoolBroken
from tests.stream.checkpoint.test_checkpoint import spark_files

CONFIG = load_pipeline(Path("pipelines/sms_status.yaml"), {})


def member(folder: Path, name: str) -> Member:
    """Return a pipeline whose batch 1 is open."""
    checkpoint = spark_files(folder / name, batches=2, committed=1)
    checkpoint.create(CONFIG, 0, 2)
    return Member(name, checkpoint.folder)


def commit(member: Member, batch: int) -> None:
    (member.checkpoint / "commits" / str(batch)).write_text("v1\n{}")


def begin(member: Member, batch: int) -> None:
    (member.checkpoint / "offsets" / str(batch)).write_text('v1\n{"batchTimestampMs": 9}\n{"t": {"0": 99, "1": 99}}')


def crash(folder: Path, *attached: Member) -> None:
    """Let the JVM of a pool end while these pipelines use it."""
    members = Members(folder, print)
    for each in attached:
        with pytest.raises(PoolBroken), members.using_jvm(each):
            raise PoolBroken("it was killed")
    members.note_crash("it was killed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small").mkdir()
    return tmp_path / "small"


def test_a_pipeline_whose_batch_was_open_each_time_is_held_back_and_the_others_are_not(folder: Path) -> None:
    bad, other, idle = (member(folder, name) for name in ("bad", "other", "idle"))
    commit(idle, 1)
    for batch in range(1, 1 + HELD_AFTER):
        assert [Members(folder, print).why_held(each) for each in (bad, other, idle)] == [""] * 3
        crash(folder, bad, other, idle)
        commit(other, batch)
        begin(other, batch + 1)
    members = Members(folder, print)
    reason = members.why_held(bad)
    assert "bad is held back, so that the others of pool small go on: its batch 1 (offsets 15 to 24 of t/0, " in reason
    assert (
        "the last 3 times that the pool's JVM ended (the last time: it was killed); give its pool more than 1g: "
        in reason
    )
    assert (members.why_held(other), members.why_held(idle)) == ("", "")
    # It is over with its batch, by a JVM of its own for instance.
    commit(bad, 1)
    assert Members(folder, print).why_held(bad) == ""


def test_who_starts_the_pool_lets_all_in_again(folder: Path) -> None:
    bad = member(folder, "bad")
    for _ in range(HELD_AFTER):
        crash(folder, bad)
    assert Members(folder, print).why_held(bad)
    forget_crashes(folder)
    assert Members(folder, print).why_held(bad) == ""


def test_a_pipeline_that_was_not_there_at_the_last_end_is_not_the_cause(folder: Path) -> None:
    first, second = member(folder, "first"), member(folder, "second")
    for attached in ((first, second), (first, second), (first,), (second,), (second,)):
        crash(folder, *attached)
        assert not any(Members(folder, print).why_held(each) for each in (second,))
    with Members(folder, print).using_jvm(first):
        pass
    crash(folder, second)
    assert Members(folder, print).why_held(second)
    assert len(CrashHistory.read(folder).crashes) == HELD_AFTER


def test_of_several_open_batches_one_after_the_other_is_let_in(folder: Path) -> None:
    bad, other, new = (member(folder, name) for name in ("bad", "other", "new"))
    for _ in range(HELD_AFTER - 1):
        crash(folder, bad, other)
    members = Members(folder, print)
    # Whoever is not among the suspects, need not wait.
    for each in (other, new):
        members.await_turn(each, lambda: False)
    let_in = threading.Event()
    waiting = threading.Thread(target=lambda: (members.await_turn(bad, lambda: False), let_in.set()))
    waiting.start()
    assert not let_in.wait(0.1)
    commit(other, 1)
    waiting.join(30)
    assert let_in.is_set()
    # Now the next end is of that one alone.
    begin(other, 2)
    crash(folder, bad, other)
    assert (bool(members.why_held(bad)), members.why_held(other)) == (True, "")


def test_a_turn_does_not_last_for_ever(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is let in alone may wait for a server, or may have left."""
    bad, other = member(folder, "bad"), member(folder, "other")
    for _ in range(HELD_AFTER - 1):
        crash(folder, bad, other)
    members = Members(folder, print)
    members.await_turn(bad, lambda: False)
    members.await_turn(other, lambda: True)  # the pool has ended meanwhile
    with members.using_jvm(bad):
        pass
    members.await_turn(other, lambda: False)
    monkeypatch.setattr(crashes, "TURN_SECONDS", 0.0)
    members.await_turn(bad, lambda: False)
    assert [members.why_held(each) for each in (bad, other)] == ["", ""]


def test_a_checkpoint_or_a_history_that_cannot_be_read_holds_nobody_back(folder: Path) -> None:
    bad = member(folder, "bad")
    for _ in range(HELD_AFTER):
        crash(folder, bad)
    (bad.checkpoint / "offsets" / "1").write_text("v1\n")
    assert "its batch 1 was open" in Members(folder, print).why_held(bad)
    (bad.checkpoint / "glassflow" / "identity.json").write_text("{")
    assert Members(folder, print).why_held(bad) == ""
    (folder / "crashes.json").write_text("{")
    assert CrashHistory.read(folder) == CrashHistory()
