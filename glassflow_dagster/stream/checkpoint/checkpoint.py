"""A pipeline's checkpoint folder: this project's files in it, and the parts of Spark's own files that are read.

`<checkpoint>/glassflow/identity.json`: the checkpoint's id, created once. Batch ids start again at 0 in a new
checkpoint, so insert tokens contain an id of the checkpoint.
`<checkpoint>/glassflow/plans/<batch>.json`: the batch's plan, written before its first insert. A replay must cut the
same blocks: it uses the plan's definition and limits, and stops if the offsets differ from the plan's.
`<checkpoint>/glassflow/there/<batch>.json`: in a rebuilt checkpoint, the records of its first batch whose rows are
already in the table.
`<checkpoint>/glassflow/topics.json`: the brokers' ids of the topics; a recreated topic has another id.

Each of these files ends with a line that has a checksum: a flipped bit in an offset or a limit would silently lose or
duplicate rows. Spark's own files have their checksums beside them in a local folder (`.<name>.crc`).
"""

import json
import re
import time
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from glassflow_dagster.definition.model.join import JoinConfig
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import METADATA_FIELDS, Source
from glassflow_dagster.definition.model.transforms import DedupConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.clickhouse.inserts.batch_begin import BatchBegin
from glassflow_dagster.stores.clickhouse.server_run import ServerRun
from glassflow_dagster.stores.clickhouse.table_identity import TableIdentity
from glassflow_dagster.stream.checkpoint.blocks import BlockLimits
from glassflow_dagster.stream.checkpoint.restore import COPY_FIRST, RESTORE
from glassflow_dagster.stream.checkpoint.storage import LocalStorage, Storage

# Version of these files; a checkpoint of another version is an error.
FORMAT = 6

# Plans kept; a replay goes back one batch, so this is ample.
PLANS_KEPT = 10

# The lines of a file in the offset log: its version, the batch's metadata, then one line per source, Kafka first.
_METADATA_LINE = 1
_SOURCE_LINE = 2
# A checksum file of Hadoop's begins with so many bytes: "crc", a zero byte, and the size of a chunk.
_CHECKSUM_HEADER_BYTES = 8
_CHUNK_SIZE_BYTES = slice(4, 8)

# The absolute path of a state's schema in Spark's state metadata; group 1 is its part below the checkpoint folder.
_SCHEMA_PATH = re.compile(r'"[a-z0-9]+:[^"]*(/state/\d+/_stateSchema/[^"]*)"')

# The setting in a batch's metadata from which a query takes the number of partitions of its state.
_PARTITIONS_SETTING = "spark.sql.shuffle.partitions"

# This project's files.
_OWN = "glassflow"
# Without it a checkpoint with batches is refused.
IDENTITY_FILE = f"{_OWN}/identity.json"
_DEFINITION = f"{_OWN}/definition.json"
_TOPICS = f"{_OWN}/topics.json"
# Spark's file with the start offsets of its first source, Kafka.
_INITIAL = "sources/0/0"

OffsetRanges = dict[str, dict[int, tuple[int, int]]]


class CheckpointError(GlassflowError):
    """The checkpoint cannot be used as it is; the text says what to do."""


class CheckpointIdentity(BaseModel):
    """A checkpoint's id, and what was fixed when it was created.

    token_prefix: tells its insert tokens from those of other checkpoints. It is the checkpoint's id, or a new one after
    the checkpoint was rebuilt, as a batch with the same number may then have other blocks. The last four fields are for
    a checkpoint that continues after a loss (`--accept-loss`): the number of the ledger's batches before it; the first
    batch since; the offsets below which rows may be in the table already; the offsets at which its first batch begins.
    """

    format: int = FORMAT
    checkpoint_id: str
    token_prefix: str
    pipeline_id: str
    topics: tuple[str, ...]
    table: str
    rows_before: int
    created_at: float
    # The number of state partitions, which only `state repartition` changes.
    shuffle_partitions: int
    state: str
    # Of a sink with several tables: database.table -> its rows before the pipeline first wrote to it.
    rows_before_by_table: dict[str, int] = {}
    batches_before: int = 0
    first_batch: int = 0
    look_until: dict[str, dict[int, int]] = {}
    starting: dict[str, dict[int, int]] = {}


class TablePlan(BaseModel):
    """What decides the rows of one table of a batch: the types of its mapped columns, and its columns as DDL."""

    types: dict[str, str]
    table: str


class BatchPlan(BaseModel):
    """Everything that decides which rows are in which block of a batch: a replay with it sends the same inserts.

    offsets: topic -> partition -> [from, until).
    definition: the digest of the pipeline's definition.
    rows, bytes: the limits of a block.
    """

    batch_id: int
    batch_time_ms: int
    offsets: OffsetRanges
    definition: str
    # ClickHouse types of the mapped columns: they decide which values become dead letters.
    types: dict[str, str]
    rows: int
    bytes: int
    # The target's columns and constraints as the server prints them: rows that they refuse are in no table.
    table: str
    # Seconds since 1970; written into the dead letters and into the ledger alike.
    dead_letters_expire_at: int
    # The newest event time of each source of a join before the batch, microseconds since 1970.
    max_event_times: tuple[int, int] | None = None
    # The run of the ClickHouse server when the batch was begun.
    server: ServerRun | None = None
    # The number of records in compacted topics, topic -> partition -> count.
    records: dict[str, dict[int, int]] | None = None
    # The same of the sink's further tables, in the order of `Sink.by_table`.
    further_tables: tuple[TablePlan, ...] = ()
    # The tables that the batch's inserts reach: the sink's and those behind their views (database.table).
    written: tuple[str, ...] | None = None
    # How far ClickHouse's clock was ahead of the driver's, milliseconds.
    server_lead_ms: int | None = None
    # What tells the tables from others of the same names: database.table -> identity, of those in `written`.
    identities: dict[str, TableIdentity] = {}
    # Whether its blocks are cut from all of its rows together, not from those of each partition.
    inline: bool = False

    @property
    def tables(self) -> tuple[TablePlan, ...]:
        """Types and DDL of each of the sink's tables, in the order of `Sink.by_table`."""
        return (TablePlan(types=self.types, table=self.table), *self.further_tables)

    @property
    def begin(self) -> BatchBegin:
        """The server when the batch began."""
        at_ms = None if self.server_lead_ms is None else self.batch_time_ms + self.server_lead_ms
        return BatchBegin(self.server, at_ms, self.identities)

    @property
    def next_offsets(self) -> dict[str, dict[int, int]]:
        """The offsets after the batch: topic -> partition -> the next one to read."""
        return {topic: {p: until for p, (_, until) in spans.items()} for topic, spans in self.offsets.items()}

    @property
    def limits(self) -> BlockLimits:
        """The limits that the batch's blocks are cut with."""
        return BlockLimits(rows=self.rows, bytes=self.bytes)


class Checkpoint:
    """A checkpoint: Spark's files, and this project's in the folder `glassflow` inside.

    root: a local folder, or another storage.
    """

    def __init__(self, root: Path | Storage) -> None:
        self.storage: Storage = LocalStorage(root) if isinstance(root, Path) else root
        # In an object store: the last files of the offset log that were read, as each batch needs them several times.
        self._known_offsets: dict[int, list[str]] = {}

    @property
    def location(self) -> str:
        """The checkpoint's root as errors name it: a path, or a URL."""
        return self.storage.location

    @property
    def folder(self) -> Path:
        """The checkpoint's local folder; raise `CheckpointError` for one in an object store."""
        folder = self.storage.folder
        if folder is None:
            raise CheckpointError(f"{self.location}: is no local folder; {COPY_FIRST}")
        return folder

    def inspect(self) -> None:
        """Check the files that a start reads; raise `CheckpointError` for the first one that is damaged or missing.

        The contents of Spark's state are not read: they may be large, and Spark itself checks what it loads.
        """
        # Reading a file raises the error.
        self.identity()
        self.kept_definition()
        self.topic_ids()
        if self.is_new:
            return
        _read_spark_file(self.storage, "metadata")
        _read_spark_file(self.storage, _INITIAL)
        for file in self._state_metadata():
            _require_sums(self.storage, file, self.storage.read(file))
        last, committed = self.last_begun, self._last("commits")
        # The last batch is committed, or it is open and the one before it is committed; before batch 0 none is (-1).
        last_committed = -1 if committed is None else committed
        if last is None or last_committed not in {last, last - 1}:
            raise CheckpointError(
                f"{self.location}: batch {or_none(last)} is the last one started and batch {or_none(committed)} the "
                f"last one done, so files are missing; {RESTORE}"
            )
        for batch_id in {last, max(last - 1, 0)}:
            self.batch_time_ms(batch_id)
            self.plan(batch_id)
        self.offset_ranges(last)
        if committed is not None:
            _read_spark_file(self.storage, f"commits/{committed}")

    def follow_move(self) -> None:
        """Write the checkpoint's current root into Spark's state metadata, which has absolute paths of state schemas.

        Otherwise a copy of the folder would read the schemas of its original, and a moved folder would find none.
        """
        # As in JSON, without the quotes.
        here = json.dumps(self.spark_location)[1:-1]
        for file in self._state_metadata():
            # The files of these logs are named by numbers.
            _, _, folder, *_, name = file.split("/")
            if folder == "_metadata" and name.isdigit():
                content = self.storage.read(file)
                moved = _SCHEMA_PATH.sub(lambda match: f'"{here}{match[1]}"', content.decode()).encode()
                if moved != content:
                    replace_spark_file(self.storage, file, moved)

    @property
    def spark_location(self) -> str:
        """The checkpoint's root as Spark itself writes it into the metadata of the state."""
        folder = self.storage.folder
        return self.location if folder is None else f"file:{folder.absolute()}"

    def identity(self) -> CheckpointIdentity | None:
        """Read the checkpoint's identity; return None for a new one.

        Raises `CheckpointError` where it is missing beside batches, damaged, or of another format version.
        """
        if not self.storage.exists(IDENTITY_FILE):
            if not self.is_new:
                raise CheckpointError(
                    f"{self.storage.path(IDENTITY_FILE)}: is missing, but the checkpoint has batches; {RESTORE}"
                )
            return None
        _require_format(self.storage, IDENTITY_FILE)
        return CheckpointIdentity.model_validate(_read_json(self.storage, IDENTITY_FILE))

    @property
    def is_new(self) -> bool:
        """Whether Spark has begun no batch yet, so that the start offsets are not fixed.

        A crash while the first batch begins leaves a temporary file in the log, which does not count.
        """
        return self.last_begun is None and self._last("commits") is None

    def create(
        self,
        config: PipelineConfig,
        rows_before: int,
        shuffle_partitions: int,
        rows_before_by_table: Mapping[str, int] | None = None,
        checkpoint_id: str | None = None,
    ) -> CheckpointIdentity:
        """Create the identity of a new checkpoint and return it; raise `CheckpointError` if it has one already.

        rows_before: the rows that the sink's own table has now. The last two are those of a lost checkpoint that this
        one replaces.
        """
        # Unless it replaces a lost one, the checkpoint's id is its token prefix.
        token_prefix = str(uuid.uuid4())
        identity = CheckpointIdentity(
            checkpoint_id=checkpoint_id or token_prefix,
            token_prefix=token_prefix,
            pipeline_id=config.pipeline_id,
            topics=config.topics,
            table=config.sink.table_name,
            rows_before=rows_before,
            rows_before_by_table=dict(rows_before_by_table or {}),
            created_at=time.time(),
            shuffle_partitions=shuffle_partitions,
            state=state_shape(config),
        )
        self._create(IDENTITY_FILE, _as_json(identity.model_dump(mode="json")))
        return identity

    def _create(self, name: str, content: bytes) -> None:
        """Write a new file; raise `CheckpointError` if another driver has written it."""
        try:
            self.storage.create(name, content)
        except FileExistsError:
            raise CheckpointError(
                f"{self.storage.path(name)}: was written by another query, of a driver that uses this checkpoint, too; "
                "start the pipeline again if that driver does not go on"
            ) from None

    def replace_identity(self, identity: CheckpointIdentity) -> None:
        """Replace the checkpoint's identity."""
        _write_json(self.storage, IDENTITY_FILE, identity.model_dump(mode="json"))

    def keep_topics(self, topics: tuple[str, ...]) -> None:
        """Store the topics that are read from the next batch on, if they are not those of the identity."""
        identity = self.identity()
        if identity and identity.topics != topics:
            self.replace_identity(identity.model_copy(update={"topics": topics}))

    def forget_batch(self, batch_id: int) -> None:
        """Remove an open batch from the offset log, with its plan, so that Spark begins it again."""
        self._known_offsets.clear()
        for file in (f"offsets/{batch_id}", f"offsets/.{batch_id}.crc", _plan_file(batch_id)):
            self.storage.delete(file)
        if batch_id == 0:
            # Spark expects no state before its first batch.
            self.storage.delete_folder("state")

    def set_next_offsets(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Rewrite Spark's log so that the next batch begins at these offsets.

        A batch begins where the one before it ended, so the end offsets of the last committed batch are replaced; where
        there is none, the start offsets of the source.
        offsets: topic -> partition -> offset; a partition without one begins at its first record.
        """
        last_committed = self.next_batch - 1
        none_committed = last_committed < 0
        file = _INITIAL if none_committed else f"offsets/{last_committed}"
        lines = _read_spark_file(self.storage, file)
        # The offsets are the last line of the file of start offsets, where a version may stand before the JSON.
        index = -1 if none_committed else _SOURCE_LINE
        line = lines[index]
        version = line[: line.index("{")]
        lines[index] = version + json.dumps({topic: dict(by_partition) for topic, by_partition in offsets.items()})
        self._known_offsets.clear()
        replace_spark_file(self.storage, file, "\n".join(lines).encode())

    def set_logged_partitions(self, partitions: int) -> None:
        """Rewrite Spark's log so that a query has a state of so many partitions."""
        for batch_id in [int(name) for name in self.storage.names("offsets") if name.isdigit()]:
            lines = list(self._offset_lines(batch_id))
            metadata = json.loads(lines[_METADATA_LINE])
            metadata.setdefault("conf", {})[_PARTITIONS_SETTING] = str(partitions)
            lines[_METADATA_LINE] = json.dumps(metadata)
            replace_spark_file(self.storage, f"offsets/{batch_id}", "\n".join(lines).encode())
        self._known_offsets.clear()

    def plan(self, batch_id: int) -> BatchPlan | None:
        """Read the plan of a batch; return None when it has none, so that no block of it was ever sent."""
        content = _find_json(self.storage, _plan_file(batch_id))
        return None if content is None else BatchPlan.model_validate(content)

    def record(self, plan: BatchPlan) -> None:
        """Write a plan, which is durable when this returns, and remove the oldest one.

        In a shared storage, where an older driver may still be about to write its own plan of the same batch, it is
        created: raise `CheckpointError` if there is one. The lock of a local folder keeps other drivers out.
        """
        name, content = _plan_file(plan.batch_id), _as_json(plan.model_dump(mode="json"))
        if self.storage.is_shared:
            self._create(name, content)
        else:
            self.storage.replace(name, content)
        if plan.batch_id >= PLANS_KEPT:
            self.storage.delete(_plan_file(plan.batch_id - PLANS_KEPT))

    def keep_already_written(self, batch_id: int, positions: Iterable[tuple[Any, ...]]) -> None:
        """Store the positions of those events of a batch whose rows are in the table before the batch runs.

        Recovery finds them, so that the batch does not write these rows again. positions: (topic, partition, offset),
        of an OTLP source with the item, and of a sink with several tables with the table's name, `database.table`.
        """
        _write_json(self.storage, _already_written_file(batch_id), sorted(positions))

    def already_written(
        self, batch_id: int, topics: Sequence[str], tables: Sequence[str]
    ) -> frozenset[tuple[int, ...]]:
        """Read what `keep_already_written` stored for a batch: the positions, with ranks for the names.

        topics: of the pipeline.
        tables: of the sink. A name's rank is its index among them.
        """
        positions = _find_json(self.storage, _already_written_file(batch_id)) or ()
        if len(tables) == 1:
            return frozenset((topics.index(topic), *rest) for topic, *rest in positions)
        return frozenset((topics.index(topic), *rest, tables.index(table)) for topic, *rest, table in positions)

    def keep_definition(self, config: PipelineConfig) -> None:
        """Keep the definition of the batches from now on, without its secrets, so that a replay can use it."""
        _write_json(self.storage, _DEFINITION, config.model_dump(mode="json", by_alias=True))

    def kept_definition(self) -> dict[str, Any] | None:
        """Read the definition of the last run, as a dict for `PipelineConfig`; return None where there is none."""
        found: dict[str, Any] | None = _find_json(self.storage, _DEFINITION)
        return found

    @property
    def schemas(self) -> Path | None:
        """The folder for the schemas that were fetched from a registry (scala/registry/SchemaStore.scala).

        None in an object store, where a pipeline with a registry keeps no state (definition/rules/state.py).
        """
        folder = self.storage.folder
        return None if folder is None else folder / _OWN / "schemas"

    def keep_topic_ids(self, ids: Mapping[str, str]) -> None:
        """Keep the brokers' ids of the topics: topic -> id."""
        _write_json(self.storage, _TOPICS, dict(ids))

    def topic_ids(self) -> dict[str, str]:
        """Read the ids that the topics had when they were read: topic -> id; topics without an id are left out."""
        return dict(_find_json(self.storage, _TOPICS) or {})

    def next_offsets(self) -> dict[str, dict[int, int]]:
        """Return the offsets after the last committed batch, topic -> partition -> offset.

        Before the first commit these are the start offsets; empty while Spark has begun no batch, which fixes them.
        """
        if self.is_new:
            return {}
        next_batch = self.next_batch
        if next_batch == 0:
            return self._initial_offsets()
        return _source_offsets(self._offset_lines(next_batch - 1)[_SOURCE_LINE])

    def reached_offsets(self) -> dict[str, dict[int, int]]:
        """Return `next_offsets`; for a new checkpoint its start offsets, or nothing while Spark has not logged them."""
        if self.is_new:
            return self._initial_offsets() if self.storage.exists(_INITIAL) else {}
        return self.next_offsets()

    def pending_plan(self) -> BatchPlan | None:
        """Return the plan of the open batch, some of whose blocks may be in ClickHouse; None without one."""
        batch_id = self.open_batch
        return None if batch_id is None else self.plan(batch_id)

    def forget_unplanned(self) -> None:
        """Remove an open batch without a plan from Spark's log: nothing of it was read or written.

        The next batch then takes the records that the topics have by then, and gets a new batch time. A batch that a
        rebuilt checkpoint begins stays: rows of its records are in the table, and only it leaves them out. So does one
        in a shared storage: a driver on another host, which this one replaces, may be about to write its plan.
        """
        self._known_offsets.clear()
        if self.storage.is_shared:
            return
        batch_id = self.open_batch
        if batch_id is None or self.plan(batch_id) is not None:
            return
        if self.storage.exists(_already_written_file(batch_id)):
            return
        self.forget_batch(batch_id)

    @property
    def open_batch(self) -> int | None:
        """The batch that was begun and not committed; None where there is none."""
        last = self.last_begun
        return None if last == self._last("commits") else last

    def last_committed(self) -> BatchPlan | None:
        """Return the plan of the last committed batch; None before the first."""
        return self.plan(self.next_batch - 1) if self.next_batch else None

    @property
    def last_begun(self) -> int | None:
        """The newest batch in Spark's offset log, committed or not."""
        return self._last("offsets")

    @property
    def next_batch(self) -> int:
        """The id of the batch after the last committed one."""
        last = self._last("commits")
        return 0 if last is None else last + 1

    def is_committed(self, batch_id: int) -> bool:
        """Return whether Spark has committed a batch."""
        return self.storage.exists(f"commits/{batch_id}")

    def batch_time_ms(self, batch_id: int) -> int:
        """Return the batch's time in milliseconds since 1970, as Spark logged it."""
        return int(json.loads(self._offset_lines(batch_id)[_METADATA_LINE])["batchTimestampMs"])

    def offset_ranges(self, batch_id: int) -> OffsetRanges:
        """Return the offset ranges of a batch: topic -> partition -> (from, until).

        It begins where the batch before it ended; the first one at the start offsets.
        """
        start = _source_offsets(self._offset_lines(batch_id - 1)[_SOURCE_LINE]) if batch_id else self._initial_offsets()
        end = _source_offsets(self._offset_lines(batch_id)[_SOURCE_LINE])
        # A partition that was added since begins at its first record.
        return {
            topic: {p: (start.get(topic, {}).get(p, 0), until) for p, until in partitions.items()}
            for topic, partitions in end.items()
        }

    def _initial_offsets(self) -> dict[str, dict[int, int]]:
        """Return the offsets at which the first batch begins: topic -> partition -> offset."""
        return _source_offsets(_read_spark_file(self.storage, _INITIAL)[-1])

    def _state_metadata(self) -> Iterator[str]:
        """Yield the small files with the state's metadata and schemas, where Spark itself reports damage obscurely."""
        for operator in self.storage.names("state"):
            for folder in ("_metadata", "_stateSchema"):
                for file in self.storage.walk(f"state/{operator}/{folder}"):
                    if not file.rpartition("/")[2].startswith("."):
                        yield file

    def _offset_lines(self, batch_id: int) -> list[str]:
        """Return the lines of a batch's file in the offset log: version, metadata, and one line per source."""
        # One look, as threads that watch the query read, too.
        if known_lines := self._known_offsets.get(batch_id):
            return known_lines
        file = f"offsets/{batch_id}"
        lines = _read_spark_file(self.storage, file)
        if len(lines) <= _SOURCE_LINE:
            raise CheckpointError(f"{self.storage.path(file)}: is truncated; {RESTORE}")
        if self.storage.folder is None:
            # A batch reads those of the batch before it, too.
            self._known_offsets = {
                known: kept for known, kept in self._known_offsets.items() if known == batch_id - 1
            } | {batch_id: lines}
        return lines

    def _last(self, log: str) -> int | None:
        """Return the newest batch id in one of Spark's logs ("offsets", "commits"); None while it has none."""
        return max((int(name) for name in self.storage.names(log) if name.isdigit()), default=None)


def _already_written_file(batch_id: int) -> str:
    return f"{_OWN}/there/{batch_id}.json"


def _plan_file(batch_id: int) -> str:
    return f"{_OWN}/plans/{batch_id}.json"


def state_shape(config: PipelineConfig) -> str:
    """Describe the state that a definition needs, as text: keys, clocks and the fields that the state holds of events.

    A checkpoint keeps this text: none of it can be changed while its state is used. Windows and lateness can.
    """
    dedups = [_dedup_shape(config.dedup_of(source), source) for source in config.inputs]
    return "; ".join([*dedups, _join_shape(config.join, config.inputs)] if config.join else dedups)


def _dedup_shape(dedup: DedupConfig | None, source: Source) -> str:
    """Describe in one line what a source's deduplication state was built for: the key, and the clock of its window.

    The text is in the checkpoint; a definition with another one cannot use that state. Windows may change.
    """
    if dedup is None:
        return "no deduplication"
    text = f"deduplication by {_fields_with_kinds(dedup.key_fields, source)}"
    return text if dedup.event_time is None else f"{text} on the event clock of {dedup.event_time} ({dedup.time_unit})"


def _join_shape(join: JoinConfig, inputs: Sequence[Source]) -> str:
    """Describe a join's state, for `state_shape`: match mode, join keys, clock, and the output fields that it buffers.

    Each part lists the left source first, then the right one. inputs: these two sources.
    For example: "join (latest) by id string = user string on the processing clock, holding n int and name string".
    """
    keys = [_fields_with_kinds(side.key_fields, source) for side, source in zip(join.sides, inputs, strict=True)]
    buffered = [
        _fields_with_kinds([output.name for output in join.outputs_of(index)], source)
        for index, source in enumerate(inputs)
    ]
    event_times = [f"{side.event_time} ({side.time_unit})" for side in join.sides if side.event_time]
    clock = f"the event clock of {' and '.join(event_times)}" if event_times else "the processing clock"
    return f"join ({join.match}) by {' = '.join(keys)} on {clock}, holding {' and '.join(buffered)}"


def _fields_with_kinds(names: Sequence[str], source: Source) -> str:
    """Return fields of a source with the kinds of their values, as text: "id string, n int".

    It is part of the description of the state by which a checkpoint detects an edited key. names: of the key's fields.
    """
    kinds = {**METADATA_FIELDS, **{field.name: field.kind for field in source.schema_fields}}
    return ", ".join(f"{name} {kinds[name]}" for name in names)


def _source_offsets(line: str) -> dict[str, dict[int, int]]:
    """Parse a Kafka source's line of Spark's log: topic -> partition -> offset."""
    # In Spark's log of initial offsets the version may stand before the JSON on the same line.
    text = line[line.index("{") :]
    offsets = json.loads(text)
    return {topic: {int(p): offset for p, offset in partitions.items()} for topic, partitions in offsets.items()}


def _require_format(storage: Storage, name: str) -> None:
    """Raise `CheckpointError` if the identity file has another format version.

    This is read before the checksum, which another version may write in another way.
    """
    try:
        version = json.loads(storage.read(name).partition(b"\n")[0])["format"]
    except (ValueError, TypeError, KeyError):
        return  # damaged: reading the file raises the error for that
    if version != FORMAT:
        raise CheckpointError(
            f"{storage.path(name)}: format {version}, but this version reads {FORMAT}; use the version that wrote it, "
            "or rebuild the state (glassflow-dagster run FILE --rebuild-state; where that is not possible, "
            "--accept-loss)"
        )


def _find_json(storage: Storage, name: str) -> Any:
    """Read one of this project's files, as `_read_json` does; return None where there is none."""
    try:
        return _read_json(storage, name)
    except FileNotFoundError:
        return None


def _read_json(storage: Storage, name: str) -> Any:
    """Read one of this project's files: a line of JSON, and a line with its checksum.

    Raises `CheckpointError` where the checksum does not fit, or the file is empty, and `FileNotFoundError`.
    """
    content, _, checksum = storage.read(name).partition(b"\n")
    if not content:
        raise CheckpointError(f"{storage.path(name)}: is empty; {RESTORE}")
    if checksum.strip() != _checksum(content):
        raise CheckpointError(f"{storage.path(name)}: is truncated or was changed; {RESTORE}")
    return json.loads(content)


def _checksum(content: bytes) -> bytes:
    return f"{zlib.crc32(content):08x}".encode()


def _read_spark_file(storage: Storage, name: str) -> list[str]:
    """Return the lines of one of Spark's files; raise `CheckpointError` if it is missing, damaged or has no JSON."""
    try:
        content = storage.read(name)
    except FileNotFoundError:
        raise CheckpointError(f"{storage.path(name)}: is missing; {RESTORE}") from None
    _require_sums(storage, name, content)
    try:
        lines = content.decode().splitlines()
        parsed = [json.loads(line[line.index("{") :]) for line in lines if "{" in line]
    except ValueError:
        parsed = []
    if not parsed:
        raise CheckpointError(f"{storage.path(name)}: is truncated or was changed; {RESTORE}")
    return lines


def replace_spark_file(storage: Storage, name: str, content: bytes) -> None:
    """Replace one of Spark's files and its checksums; a crash leaves the old or the new file, maybe without checksums.

    The old checksums go first, since Spark rejects a file that does not fit its checksums, but reads one without. The
    new ones are for chunks of the same size, which the header has.
    """
    sums = _sums_file(name)
    header = (_read_sums(storage, name) or b"")[:_CHECKSUM_HEADER_BYTES]
    if storage.folder is not None:
        storage.delete(sums)
    storage.replace(name, content)
    if header:
        storage.replace(sums, _sums_of(content, header))


def _require_sums(storage: Storage, name: str, content: bytes) -> None:
    """Raise `CheckpointError` if one of Spark's files is empty, or does not fit the checksums beside it, if any.

    content: the file's.
    """
    if not content:
        raise CheckpointError(f"{storage.path(name)}: is empty; {RESTORE}")
    sums = _read_sums(storage, name)
    if sums is not None and sums != _sums_of(content, sums):
        raise CheckpointError(f"{storage.path(name)}: is truncated or was changed; {RESTORE}")


def _read_sums(storage: Storage, name: str) -> bytes | None:
    """Return Hadoop's checksums of a file, which it keeps in local folders only; None where there are none."""
    if storage.folder is None:
        return None
    try:
        return storage.read(_sums_file(name))
    except FileNotFoundError:
        return None


def _sums_file(name: str) -> str:
    folder, _, file = name.rpartition("/")
    return f"{folder}/.{file}.crc" if folder else f".{file}.crc"


def or_none(batch_id: int | None) -> str:
    """Return a batch id as text, "none" for None."""
    return "none" if batch_id is None else str(batch_id)


def _sums_of(content: bytes, sums: bytes) -> bytes:
    """Return the content of Hadoop's checksum file: "crc" and a zero byte, the chunk size, each chunk's CRC-32.

    sums: an existing checksum file, or its first 8 bytes, from which the size of a chunk is taken.
    """
    # A damaged header may say 0, which is no step for `range`.
    size = int.from_bytes(sums[_CHUNK_SIZE_BYTES], "big") or len(content)
    chunks = (content[start : start + size] for start in range(0, len(content), size))
    return b"crc\0" + sums[_CHUNK_SIZE_BYTES] + b"".join(zlib.crc32(chunk).to_bytes(4, "big") for chunk in chunks)


def _write_json(storage: Storage, name: str, content: Any) -> None:
    """Write one of this project's files, with its checksum; after a crash it has the old or the new content."""
    storage.replace(name, _as_json(content))


def _as_json(content: Any) -> bytes:
    """Return the content of one of this project's files: a line of JSON, and a line with its checksum."""
    line = json.dumps(content).encode()
    return line + b"\n" + _checksum(line) + b"\n"
