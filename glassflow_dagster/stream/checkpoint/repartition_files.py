"""Replaces a checkpoint in a local folder by one whose state has another number of partitions.

The new checkpoint is written beside the old one, which nothing changes, and is complete once it has its identity. Then
two renames exchange them. A crash leaves the old one in its place, or none: then `finish_replacement`, which a driver
calls before it reads its checkpoint, does the second rename. So there is one checkpoint at a time, and no mix of two.
"""

import os
import shutil
from pathlib import Path

from glassflow_dagster.runtime.durable import sync
from glassflow_dagster.stream.checkpoint.checkpoint import IDENTITY_FILE, Checkpoint, CheckpointIdentity
from glassflow_dagster.stream.checkpoint.state_files import number_first_version

# Beside the checkpoint's folder: the new checkpoint until it is in its place, and the old one once it is not.
_NEW = "checkpoint.repartitioned"
_OLD = "checkpoint.before-repartition"

_STATE = "state/"
_OFFSETS = "offsets"


def new_checkpoint(folder: Path) -> Checkpoint:
    """Return the checkpoint that will replace the one in a folder; Spark can write its state as that of a batch 0."""
    new = Checkpoint(folder.with_name(_NEW))
    shutil.rmtree(new.folder, ignore_errors=True)
    # Spark looks whether the batch whose state it writes is in the log, but not at what the log has of it.
    new.storage.replace(f"{_OFFSETS}/0", b"v1\n{}\n{}")
    return new


def take_over_logs(old: Checkpoint, new: Checkpoint, partitions: int) -> None:
    """Copy all but the state from the old checkpoint to the new one, which has the first version of its state.

    Its state then continues after the last batch of the old one. partitions: of the new state. The identity, without
    which the new checkpoint is not complete, is written by `complete`.
    """
    new.storage.delete_folder(_OFFSETS)
    for name in old.storage.walk():
        if name != IDENTITY_FILE and not name.startswith(_STATE):
            new.storage.replace(name, old.storage.read(name))
    # The version of a state after batch N is N + 1, which is the next batch.
    number_first_version(new.folder, old.next_batch)
    new.set_logged_partitions(partitions)


def complete(new: Checkpoint, identity: CheckpointIdentity) -> None:
    """Write all files of a new checkpoint to the disk, then its identity, which makes it complete."""
    for folder, _, files in os.walk(new.folder):
        for file in files:
            sync(Path(folder, file))
        sync(Path(folder))
    new.replace_identity(identity)


def replace_checkpoint(folder: Path) -> None:
    """Replace the checkpoint in a folder by the new one, which must be complete, and remove the old one."""
    _rename(folder, folder.with_name(_OLD))
    finish_replacement(folder)


def finish_replacement(folder: Path) -> None:
    """Finish what a repartitioning that was killed has left, if one was; only the holder of the lock may call this.

    folder: of the checkpoint. Where none of the two is in its place, this is the new one if it is complete.
    """
    new, old = folder.with_name(_NEW), folder.with_name(_OLD)
    if not folder.exists() and old.exists():
        _rename(new if (new / IDENTITY_FILE).exists() else old, folder)
    # A new one that is still here belongs to a batch that the driver may have left behind by now.
    shutil.rmtree(new, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def _rename(folder: Path, name: Path) -> None:
    """Rename a folder; the new name is on the disk when this returns."""
    folder.rename(name)
    sync(name.parent)
