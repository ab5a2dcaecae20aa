"""Copies of a checkpoint are compared with what was read, and refused where they could mix two."""

from pathlib import Path

import pytest

from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint, CheckpointError
from glassflow_dagster.stream.checkpoint.copy import Copied, CopyError, copy_checkpoint
from glassflow_dagster.stream.checkpoint.storage import LocalStorage


class Quiet:
    def __call__(self, text: str) -> None:
        """Ignore a message of progress."""


def filled(folder: Path) -> LocalStorage:
    storage = LocalStorage(folder)
    for name in ("offsets/0", "offsets/.0.crc", "state/0/0/1.zip", "glassflow/identity.json"):
        storage.replace(name, name.encode())
    return storage


def test_a_copy_has_all_files(tmp_path: Path) -> None:
    source, target = filled(tmp_path / "a"), LocalStorage(tmp_path / "b")
    copied = copy_checkpoint(source, target, Quiet())
    assert copied == Copied(4, sum(len(name) for name in source.walk()))
    assert {name: target.read(name) for name in target.walk()} == {name: source.read(name) for name in source.walk()}


def test_a_filled_place_is_not_overwritten(tmp_path: Path) -> None:
    source, target = filled(tmp_path / "a"), LocalStorage(tmp_path / "b")
    target.replace("offsets/7", b"other")
    with pytest.raises(CopyError, match="is not empty"):
        copy_checkpoint(source, target, Quiet())
    assert list(target.walk()) == ["offsets/7"]


def test_there_must_be_something_to_copy(tmp_path: Path) -> None:
    with pytest.raises(CopyError, match="has no checkpoint"):
        copy_checkpoint(LocalStorage(tmp_path / "a"), LocalStorage(tmp_path / "b"), Quiet())


@pytest.mark.parametrize("name", ["offsets/0", "offsets/1"])
def test_a_file_that_is_written_meanwhile_is_found(tmp_path: Path, name: str) -> None:
    source, target = filled(tmp_path / "a"), LocalStorage(tmp_path / "b")

    def write_when_compared(text: str) -> None:
        if "compare" in text:
            source.replace(name, b"of another batch")

    with pytest.raises(CopyError, match=f"a/{name}: is not what was copied"):
        copy_checkpoint(source, target, write_when_compared)


def test_a_damaged_copy_is_found(tmp_path: Path) -> None:
    source, target = filled(tmp_path / "a"), LocalStorage(tmp_path / "b")

    def damage_when_compared(text: str) -> None:
        if "compare" in text:
            target.replace("state/0/0/1.zip", b"damaged")

    with pytest.raises(CopyError, match=r"b/state/0/0/1\.zip: is not what was copied"):
        copy_checkpoint(source, target, damage_when_compared)


@pytest.mark.parametrize("changed", ["a", "b"])
def test_no_driver_starts_on_a_copy_that_is_not_the_same(tmp_path: Path, changed: str) -> None:
    """Without its identity a checkpoint is refused, also after a copy that was interrupted."""
    source, target = filled(tmp_path / "a"), LocalStorage(tmp_path / "b")

    def change_when_compared(text: str) -> None:
        if "compare" in text:
            assert not target.exists("glassflow/identity.json")
            LocalStorage(tmp_path / changed).replace("offsets/0", b"changed")

    with pytest.raises(CopyError):
        copy_checkpoint(source, target, change_when_compared)
    with pytest.raises(CheckpointError, match=r"identity\.json: is missing, but the checkpoint has batches"):
        Checkpoint(target).identity()
