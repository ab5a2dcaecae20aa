"""What this project keeps in a checkpoint beside Spark's own files, and what it reads of those.

`<checkpoint>/glassflow/identity.json`: the checkpoint's name, made once. Batch ids start again at 0 in a new
checkpoint, so tokens carry it.
`<checkpoint>/glassflow/plans/<batch>.json`: written before a batch's first insert. A replay must cut the same blocks:
it uses the plan's definition and limits, and stops if the offsets are not the plan's.
`<checkpoint>/glassflow/there/<batch>.json`: of a checkpoint that was lost and rebuilt, the records of its
first batch whose rows are in the table.
`<checkpoint>/glassflow/topics.json`: the brokers' own names of the topics, which a topic that is recreated has not.

A line with a checksum ends each of them: a bit that flips in an offset or a limit would lose or double rows without a
word. Spark's own files have theirs beside them (`.<name>.crc`).
"""

import json
import os
import re
import shutil
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from glassflow_dagster.clickhouse.server_run import ServerRun
from glassflow_dagster.config.model.join import JoinConfig
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.source import METADATA_FIELDS, Source
from glassflow_dagster.config.model.transforms import DedupConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.streaming.checkpoint.blocks import BlockLimits

# Version of these files; a checkpoint of another one is refused.
FORMAT = 6

# Plans kept; a replay goes back one batch, so this is ample.
PLANS_KEPT = 10

# What is left to do about a damaged checkpoint.
RESTORE = (
    "restore the checkpoint and the table from copies of one moment, or remove the state folder, and let it be made "
    "anew (glassflow-dagster run FILE --rebuild-state), or go on without it (--accept-loss), or empty the table to "
    "read the topic anew (--start-over)"
)

# In a line of the offset log: its version, what Spark says of the batch, then one line a source, the topics first.
_SOURCE_LINE = 2

# Where Spark keeps the schema of a state, as it stands in its metadata; below the checkpoint it is always the same.
_SCHEMA_PATH = re.compile(r'"file:[^"]*(/state/\d+/_stateSchema/[^"]*)"')

OffsetRanges = dict[str, dict[int, tuple[int, int]]]


class CheckpointError(GlassflowError):
    """The checkpoint cannot be used as it is; the text says what to do."""


class CheckpointIdentity(BaseModel):
    """A checkpoint's name, and what was so when it was made.

    `token_prefix` tells its insert tokens from those of other checkpoints: the id, or another one after the checkpoint
    was lost and rebuilt, when a batch of the same number may have other blocks. The last four are of a checkpoint that
    went on without what is lost: how many batches the ledger has from before it, the first batch since, the offsets
    below which rows may be in the table already, and where a new one begins.
    """

    format: int = FORMAT
    checkpoint_id: str
    token_prefix: str
    pipeline_id: str
    topics: tuple[str, ...]
    table: str
    rows_before: int
    created_at: float
    # Fixed with the state: Spark cannot change it later.
    shuffle_partitions: int
    state: str
    batches_before: int = 0
    first_batch: int = 0
    look_until: dict[str, dict[int, int]] = {}
    starting: dict[str, dict[int, int]] = {}


class BatchPlan(BaseModel):
    """What decides which rows are in which block of a batch."""

    batch_id: int
    batch_time_ms: int
    offsets: OffsetRanges
    definition: str
    # Of the mapped columns: they decide which values are refused.
    types: dict[str, str]
    rows: int
    bytes: int
    # The target's columns and constraints as the server writes them: what was refused for them is in no table.
    table: str
    # Seconds since 1970; written into the dead letters and into the ledger alike.
    dead_letters_expire_at: int
    # How far the sources of a join had come in event time before the batch, microseconds since 1970.
    leads: tuple[int, int] | None = None
    # The run of the server that the batch began with, and the tables that its inserts reached then (database.table).
    server: ServerRun | None = None
    # Of compacted topics: the records that there were, topic -> partition -> count.
    records: dict[str, dict[int, int]] | None = None
    written: tuple[str, ...] | None = None
    # How far ClickHouse's clock was ahead of the driver's, milliseconds.
    server_lead_ms: int | None = None

    @property
    def limits(self) -> BlockLimits:
        """The limits that the batch's blocks are cut with."""
        return BlockLimits(rows=self.rows, bytes=self.bytes)


class Checkpoint:
    """A checkpoint folder: Spark's, with ours inside."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._own = folder / "glassflow"

    def inspect(self) -> None:
        """Read what a start rests on; raises `CheckpointError` for the first file that is damaged or missing.

        What Spark keeps of the state is not looked at: it may be large, and Spark itself checks what it loads.
        """
        self.identity()
        self.kept_definition()
        self.topic_ids()
        if self.is_new:
            return
        _read_spark_file(self.folder / "metadata")
        _read_spark_file(self._initial)
        for file in self._state_shapes():
            _require_sums(file, file.read_bytes())
        last, committed = self.last_begun, self._last("commits")
        # Between two batches the last one is done; within one, the one before it.
        if last is None or (-1 if committed is None else committed) not in {last, last - 1}:
            raise CheckpointError(
                f"{self.folder}: has batch {or_none(last)} as begun and batch {or_none(committed)} as done, so files "
                f"of it are missing; {RESTORE}"
            )
        for batch_id in {last, max(last - 1, 0)}:
            self.batch_time_ms(batch_id)
            self.plan(batch_id)
        self.offset_ranges(last)
        if committed is not None:
            _read_spark_file(self.folder / "commits" / str(committed))

    def follow_move(self) -> None:
        """Let the state find its schemas where the checkpoint is now: Spark has written where it was.

        A copy would read those of its original, and a folder that was moved would find none.
        """
        here = json.dumps(f"file:{self.folder.absolute()}")[1:-1]
        for file in (self.folder / "state").glob("*/_metadata/*/*"):
            if file.name.isdigit():
                content = file.read_bytes()
                moved = _SCHEMA_PATH.sub(lambda found: f'"{here}{found[1]}"', content.decode()).encode()
                if moved != content:
                    _replace_spark_file(file, moved)

    def identity(self) -> CheckpointIdentity | None:
        """Read the checkpoint's name; None for a new one."""
        file = self._own / "identity.json"
        if not file.exists():
            if not self.is_new:
                raise CheckpointError(f"{file}: is missing, but the checkpoint has batches; {RESTORE}")
            return None
        _require_format(file)
        return CheckpointIdentity.model_validate(_read_json(file))

    @property
    def is_new(self) -> bool:
        """Whether Spark has begun no batch in it yet, so that where to start is still open.

        A crash in the moment of the first one leaves a file beside the log, which is no batch.
        """
        return self.last_begun is None and self._last("commits") is None

    def create(
        self, config: PipelineConfig, table: str, rows_before: int, shuffle_partitions: int,
        checkpoint_id: str | None = None,
    ) -> CheckpointIdentity:  # fmt: skip
        """Name a new checkpoint; `checkpoint_id` is the name of a lost one whose place it takes."""
        token_prefix = str(uuid.uuid4())
        made = CheckpointIdentity(
            checkpoint_id=checkpoint_id or token_prefix,
            token_prefix=token_prefix,
            pipeline_id=config.pipeline_id,
            topics=config.topics,
            table=table,
            rows_before=rows_before,
            created_at=time.time(),
            shuffle_partitions=shuffle_partitions,
            state=state_shape(config),
        )
        _write_json(self._own / "identity.json", made.model_dump(mode="json"))
        return made

    def rename(self, identity: CheckpointIdentity) -> None:
        """Give the checkpoint another name, or its name another content."""
        _write_json(self._own / "identity.json", identity.model_dump(mode="json"))

    def forget_batch(self, batch_id: int) -> None:
        """Remove what is written down of a batch that was begun and not closed."""
        for file in (self.folder / "offsets" / str(batch_id), self.folder / "offsets" / f".{batch_id}.crc"):
            file.unlink(missing_ok=True)
        self._plan_file(batch_id).unlink(missing_ok=True)
        if batch_id == 0:
            # Spark wants no state before its first batch.
            shutil.rmtree(self.folder / "state", ignore_errors=True)

    def move_to(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Let the next batch begin at these offsets; a partition without one begins at its first record."""
        last = self.next_batch - 1
        file = self._initial if last < 0 else self.folder / "offsets" / str(last)
        lines = _read_spark_file(file)
        place = -1 if last < 0 else _SOURCE_LINE
        line = lines[place]
        lines[place] = line[: line.index("{")] + json.dumps({t: dict(found) for t, found in offsets.items()})
        _replace_spark_file(file, "\n".join(lines).encode())

    def plan(self, batch_id: int) -> BatchPlan | None:
        """Read the plan of a batch; None when no block of it was ever sent."""
        file = self._plan_file(batch_id)
        return BatchPlan.model_validate(_read_json(file)) if file.exists() else None

    def record(self, plan: BatchPlan) -> None:
        """Keep a plan, safe on disk when this returns, and forget the old ones."""
        _write_json(self._plan_file(plan.batch_id), plan.model_dump(mode="json"))
        self._plan_file(plan.batch_id - PLANS_KEPT).unlink(missing_ok=True)

    def keep_rows_there(self, batch_id: int, places: Iterable[tuple[int, int, int]]) -> None:
        """Keep which records (topic's rank, partition, offset) of a batch have rows in the table before it runs."""
        _write_json(self._there_file(batch_id), sorted(places))

    def already_written(self, batch_id: int) -> frozenset[tuple[int, int, int]]:
        """Read which records of a batch had rows in the table before it ran: those of `keep_rows_there`."""
        file = self._there_file(batch_id)
        places = _read_json(file) if file.exists() else ()
        return frozenset((rank, partition, offset) for rank, partition, offset in places)

    def keep_definition(self, config: PipelineConfig) -> None:
        """Keep the definition of the running batches, without its secrets, so that a replay can use it."""
        _write_json(self._own / "definition.json", config.model_dump(mode="json", by_alias=True))

    def kept_definition(self) -> dict[str, Any] | None:
        """Read the definition that the last run worked by."""
        file = self._own / "definition.json"
        return _read_json(file) if file.exists() else None

    def keep_topic_ids(self, ids: Mapping[str, str]) -> None:
        """Keep the brokers' names of the topics that are read."""
        _write_json(self._own / "topics.json", dict(ids))

    def topic_ids(self) -> dict[str, str]:
        """Read the brokers' names of the topics as they were when they were read; nothing for those that have none."""
        file = self._own / "topics.json"
        return dict(_read_json(file)) if file.exists() else {}

    def next_offsets(self) -> dict[str, dict[int, int]]:
        """Give what is read next: topic -> partition -> offset; a batch that was begun is read from its start."""
        if self.is_new:
            return {}
        following = self.next_batch
        if following == 0:
            return self._initial_offsets()
        return _source_offsets(self._offset_lines(following - 1)[_SOURCE_LINE])

    def reached_offsets(self) -> dict[str, dict[int, int]]:
        """Do as `next_offsets`; of a new checkpoint, where its first batch begins, nothing until Spark has noted it."""
        if self.is_new:
            return self._initial_offsets() if self._initial.exists() else {}
        return self.next_offsets()

    def pending_plan(self) -> BatchPlan | None:
        """Find the batch that was begun and not committed: its blocks may be in ClickHouse, some or all."""
        batch_id = self._open_batch
        return None if batch_id is None else self.plan(batch_id)

    def forget_unplanned(self) -> None:
        """Remove what Spark noted of a batch that was begun and has no plan: nothing of it was read or written.

        The next batch then has what the topics hold by then, and a time of its own.
        """
        batch_id = self._open_batch
        if batch_id is not None and self.plan(batch_id) is None:
            self.forget_batch(batch_id)

    @property
    def _open_batch(self) -> int | None:
        """The batch that was begun and not closed; None where there is none."""
        last = self.last_begun
        return None if last == self._last("commits") else last

    def last_committed(self) -> BatchPlan | None:
        """Give the plan of the last committed batch; None before the first."""
        return self.plan(self.next_batch - 1) if self.next_batch else None

    @property
    def last_begun(self) -> int | None:
        """The newest batch of which Spark has written down what it reads, done or not."""
        return self._last("offsets")

    @property
    def next_batch(self) -> int:
        """The batch that comes after the last committed one."""
        last = self._last("commits")
        return 0 if last is None else last + 1

    def is_committed(self, batch_id: int) -> bool:
        """Whether Spark has closed a batch."""
        return (self.folder / "commits" / str(batch_id)).exists()

    def batch_time_ms(self, batch_id: int) -> int:
        """Give the batch's own time, milliseconds since 1970, as Spark logged it."""
        return int(json.loads(self._offset_lines(batch_id)[1])["batchTimestampMs"])

    def offset_ranges(self, batch_id: int) -> OffsetRanges:
        """Give what a batch reads: topic -> partition -> (from, until)."""
        start = _source_offsets(self._offset_lines(batch_id - 1)[_SOURCE_LINE]) if batch_id else self._initial_offsets()
        end = _source_offsets(self._offset_lines(batch_id)[_SOURCE_LINE])
        # A partition that was added since begins at its first record.
        return {
            topic: {p: (start.get(topic, {}).get(p, 0), until) for p, until in partitions.items()}
            for topic, partitions in end.items()
        }

    def _initial_offsets(self) -> dict[str, dict[int, int]]:
        return _source_offsets(_read_spark_file(self._initial)[-1])

    def _state_shapes(self) -> Iterator[Path]:
        """Give the small files that say what the state consists of; Spark calls a damaged one a bug of its own."""
        for folder in ("_metadata", "_stateSchema"):
            for file in (self.folder / "state").glob(f"*/{folder}/**/*"):
                if file.is_file() and not file.name.startswith("."):
                    yield file

    @property
    def _initial(self) -> Path:
        return self.folder / "sources" / "0" / "0"

    def _offset_lines(self, batch_id: int) -> list[str]:
        file = self.folder / "offsets" / str(batch_id)
        lines = _read_spark_file(file)
        # version, metadata, one line a source
        if len(lines) < 3:  # noqa: PLR2004
            raise CheckpointError(f"{file}: is cut off; {RESTORE}")
        return lines

    def _last(self, log: str) -> int | None:
        folder = self.folder / log
        return (
            max((int(f.name) for f in folder.iterdir() if f.name.isdigit()), default=None) if folder.is_dir() else None
        )

    def _there_file(self, batch_id: int) -> Path:
        return self._own / "there" / f"{batch_id}.json"

    def _plan_file(self, batch_id: int) -> Path:
        return self._own / "plans" / f"{batch_id}.json"


def state_shape(config: PipelineConfig) -> str:
    """Name what the state was built for: keys, clocks and what it holds of events cannot change under it.

    Windows and lateness can.
    """
    dedups = [_dedup_shape(config.dedup_of(source), source) for source in config.inputs]
    return "; ".join([*dedups, _join_shape(config.join, config.inputs)] if config.join else dedups)


def _dedup_shape(dedup: DedupConfig | None, source: Source) -> str:
    if dedup is None:
        return "no deduplication"
    text = f"deduplication by {_kinds(dedup.key_fields, source)}"
    return text if dedup.event_time is None else f"{text} on the event clock of {dedup.event_time} ({dedup.time_unit})"


def _join_shape(join: JoinConfig, inputs: Sequence[Source]) -> str:
    keys = " = ".join(_kinds(side.key_fields, source) for side, source in zip(join.sides, inputs, strict=True))
    held = " and ".join(_kinds([f.name for f in join.outputs_of(s)], source) for s, source in enumerate(inputs))
    clocks = [f"{side.event_time} ({side.time_unit})" for side in join.sides if side.event_time]
    clock = f"the event clock of {' and '.join(clocks)}" if clocks else "the processing clock"
    return f"join ({join.match}) by {keys} on {clock}, holding {held}"


def _kinds(names: Sequence[str], source: Source) -> str:
    kinds = {**METADATA_FIELDS, **{field.name: field.kind for field in source.schema_fields}}
    return ", ".join(f"{name} {kinds[name]}" for name in names)


def _source_offsets(line: str) -> dict[str, dict[int, int]]:
    # Spark's log of initial offsets may have its version before the JSON on the same line.
    text = line[line.index("{") :]
    return {topic: {int(p): o for p, o in partitions.items()} for topic, partitions in json.loads(text).items()}


def _require_format(file: Path) -> None:
    """Raise when another version wrote a checkpoint; it may have sealed its files in another way, or not at all."""
    try:
        found = json.loads(file.read_text(encoding="utf-8").partition("\n")[0])["format"]
    except (ValueError, TypeError, KeyError):
        return  # damaged, which reading it will say
    if found != FORMAT:
        raise CheckpointError(
            f"{file}: format {found}, but this version reads {FORMAT}; use the version that wrote it, or let the state "
            "be rebuilt (glassflow-dagster run FILE --rebuild-state; where that is not possible, --accept-loss)"
        )


def _read_json(file: Path) -> Any:
    content, _, checksum = file.read_bytes().partition(b"\n")
    if not content:
        raise CheckpointError(f"{file}: is empty; {RESTORE}")
    if checksum.strip() != _checksum(content):
        raise CheckpointError(f"{file}: is cut off, or was changed; {RESTORE}")
    return json.loads(content)


def _checksum(content: bytes) -> bytes:
    return f"{zlib.crc32(content):08x}".encode()


def _read_spark_file(file: Path) -> list[str]:
    """Give the lines of one of Spark's files; raises `CheckpointError` when it is not as Spark wrote it."""
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise CheckpointError(f"{file}: is missing; {RESTORE}") from None
    _require_sums(file, content)
    try:
        lines = content.decode().splitlines()
        said = [json.loads(line[line.index("{") :]) for line in lines if "{" in line]
    except ValueError:
        said = []
    if not said:
        raise CheckpointError(f"{file}: is cut off, or was changed; {RESTORE}")
    return lines


def _replace_spark_file(file: Path, content: bytes) -> None:
    """Write one of Spark's files anew. After a crash in between it is the old or the new one, perhaps without sums."""
    sums = file.with_name(f".{file.name}.crc")
    header = sums.read_bytes()[:8] if sums.exists() else b""
    sums.unlink(missing_ok=True)
    _write(file, content)
    if header:
        _write(sums, _sums_of(content, header))


def _require_sums(file: Path, content: bytes) -> None:
    if not content:
        raise CheckpointError(f"{file}: is empty; {RESTORE}")
    sums = file.with_name(f".{file.name}.crc")
    if sums.exists() and sums.read_bytes() != _sums_of(content, sums.read_bytes()):
        raise CheckpointError(f"{file}: is cut off, or was changed; {RESTORE}")


def or_none(batch_id: int | None) -> str:
    """Name a batch, or say that there is none."""
    return "none" if batch_id is None else str(batch_id)


def _sums_of(content: bytes, sums: bytes) -> bytes:
    """Give what Hadoop's local file system writes beside a file: a mark, the size of a piece, each piece's CRC-32."""
    size = int.from_bytes(sums[4:8], "big") or len(content)
    pieces = (content[start : start + size] for start in range(0, len(content), size))
    return b"crc\0" + sums[4:8] + b"".join(zlib.crc32(piece).to_bytes(4, "big") for piece in pieces)


def _write_json(file: Path, content: Any) -> None:
    """Write a file so that after a crash it is there whole or not at all."""
    line = json.dumps(content).encode()
    _write(file, line + b"\n" + _checksum(line) + b"\n")


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(".new")
    with temporary.open("wb") as out:
        out.write(content)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)
    folder = os.open(file.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
