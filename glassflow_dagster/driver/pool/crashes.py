"""Which member of a pool ends its JVM again and again: it is held back, so that the others go on.

Whenever the JVM ends that nobody has stopped, the pool notes which batch of each member was open. The others complete
theirs between two such ends, sooner or later; the batch that ends the JVM stays open. Where several batches were open
at both of the last ends, their pipelines are let in one after the other, so that the next end is of one of them.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

from pydantic import BaseModel, ValidationError

from glassflow_dagster.control.pool_endpoint import CRASHES
from glassflow_dagster.control.pool_launch import more_memory
from glassflow_dagster.driver.options import Report
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint

# Ends of the JVM in succession at which a batch was open, after which its pipeline is let in alone, and not at all.
ALONE_AFTER, HELD_AFTER = 2, 3
# Seconds for which a pipeline waits while another one is let in alone, which may wait for a server. A driver waits
# longer for its answer.
TURN_SECONDS = 60.0
_POLL_SECONDS = 0.5
# The most partitions whose records a message names.
_MOST_NAMED = 3


class PoolBroken(GlassflowError):
    """The pool cannot go on: its JVM does not answer, or a query does not end."""


class Crash(BaseModel):
    """An end of the JVM.

    at: seconds since 1970.
    batches: pipeline -> the batch that was open, see `OpenBatch.name`.
    """

    at: float
    reason: str
    batches: dict[str, str]


class CrashHistory(BaseModel):
    """The last ends of the JVM of a pool, in their order."""

    crashes: list[Crash] = []

    @classmethod
    def read(cls, folder: Path) -> "CrashHistory":
        """Return the history of a pool; an empty one where there is none, or its file is damaged."""
        try:
            return cls.model_validate_json((folder / CRASHES).read_text(encoding="utf-8"))
        except (FileNotFoundError, ValidationError):
            return cls()

    def note(self, folder: Path, crash: Crash) -> None:
        """Add a crash to the file, which has as many as `count` needs."""
        temporary = folder / f"{CRASHES}.new"
        temporary.write_text(CrashHistory(crashes=[*self.crashes, crash][-HELD_AFTER:]).model_dump_json())
        temporary.replace(folder / CRASHES)

    def count(self, pipeline: str, batch: str) -> int:
        """Return at how many of the last crashes, without one in between, the batch was open."""
        return len([*takewhile(lambda crash: crash.batches.get(pipeline) == batch, reversed(self.crashes))])


@dataclass(frozen=True)
class OpenBatch:
    """The batch of a checkpoint that was begun and not committed. name: of no other batch, whatever was repaired."""

    checkpoint: Checkpoint
    number: int
    name: str

    @classmethod
    def of(cls, folder: Path) -> "OpenBatch | None":
        """Return the open batch of a checkpoint in a folder; None without one, and where it cannot be read."""
        checkpoint = Checkpoint(folder)
        try:
            number, identity = checkpoint.open_batch, checkpoint.identity()
        except (GlassflowError, OSError, ValueError):
            return None  # the driver says so
        if number is None or identity is None:
            return None
        return cls(checkpoint, number, f"{identity.token_prefix}/{number}")

    @property
    def is_over(self) -> bool:
        """Whether it is committed by now."""
        return self.checkpoint.is_committed(self.number)

    def __str__(self) -> str:
        """Return its number and its records, for people."""
        try:
            offsets = self.checkpoint.offset_ranges(self.number)
        except (GlassflowError, OSError, ValueError):
            offsets = {}
        ranges = [
            f"offsets {first} to {until - 1} of {topic}/{partition}"
            for topic, partitions in offsets.items()
            for partition, (first, until) in partitions.items()
            if first < until
        ]
        more = [f"{len(ranges) - _MOST_NAMED} more partitions"] if len(ranges) > _MOST_NAMED else []
        records = ", ".join([*ranges[:_MOST_NAMED], *more])
        return f"batch {self.number} ({records})" if records else f"batch {self.number}"


@dataclass(frozen=True)
class Member:
    """A pipeline of a pool. checkpoint: the folder of its checkpoint."""

    pipeline: str
    checkpoint: Path


@dataclass
class Members:
    """The pipelines that use a pool's JVM, and who may. folder: the pool's."""

    folder: Path
    log: Report
    # By pipeline.
    _using: dict[str, Member] = field(default_factory=dict)
    # By pipeline: a batch that may have ended the JVM, of a pipeline that was let in alone.
    _tried: dict[str, OpenBatch] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def why_held(self, member: Member) -> str:
        """Return why a pipeline is held back, and what to do; '' where it is not."""
        batch, history = OpenBatch.of(member.checkpoint), CrashHistory.read(self.folder)
        if batch is None or (count := history.count(member.pipeline, batch.name)) < HELD_AFTER:
            return ""
        pool = self.folder.name
        return (
            f"{member.pipeline} is held back, so that the others of pool {pool} go on: its {batch} was open each of "
            f"the last {count} times that the pool's JVM ended (the last time: {history.crashes[-1].reason}); "
            f"{more_memory(self.folder.parent.parent, pool)}, or give the pipeline a JVM of its own (remove pool from "
            "its definition), then start it again"
        )

    def await_turn(self, member: Member, is_over: Callable[[], bool]) -> None:
        """Wait while another pipeline is let in alone, where this one's batch may have ended the JVM, too.

        is_over: whether the wait ends in any case.
        """
        batch, history = OpenBatch.of(member.checkpoint), CrashHistory.read(self.folder)
        if batch is None or history.count(member.pipeline, batch.name) < ALONE_AFTER:
            return
        deadline = time.monotonic() + TURN_SECONDS
        while not self._has_turn(member.pipeline, batch, is_forced=time.monotonic() > deadline) and not is_over():
            time.sleep(_POLL_SECONDS)

    def _has_turn(self, pipeline: str, batch: OpenBatch, *, is_forced: bool) -> bool:
        """Return whether a pipeline is let in now, and note that it is."""
        with self._lock:
            others = [each for each, tried in self._tried.items() if each != pipeline and not tried.is_over]
            if others and not is_forced:
                return False
            self._tried[pipeline] = batch
        self.log(f"{pipeline}: its {batch} may have ended the JVM; pipelines of which the same is true wait for it")
        return True

    @contextmanager
    def using_jvm(self, member: Member) -> Iterator[None]:
        """Note that a pipeline uses the JVM in the block; after `PoolBroken` it is one of those of the crash."""
        with self._lock:
            self._using[member.pipeline] = member
        try:
            yield
        except PoolBroken:
            raise
        except BaseException:
            self._leave(member.pipeline)
            raise
        self._leave(member.pipeline)

    def _leave(self, pipeline: str) -> None:
        with self._lock:
            del self._using[pipeline]
            self._tried.pop(pipeline, None)

    def note_crash(self, reason: str) -> None:
        """Note which batches are open now that the JVM has ended."""
        with self._lock:
            members = [*self._using.values()]
        found = {member.pipeline: OpenBatch.of(member.checkpoint) for member in members}
        batches = {pipeline: batch.name for pipeline, batch in found.items() if batch}
        CrashHistory.read(self.folder).note(self.folder, Crash(at=time.time(), reason=reason, batches=batches))
        self.log(f"the JVM has ended, with open batches of: {', '.join(sorted(batches)) or 'no pipeline'}")
