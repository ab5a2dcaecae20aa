"""The ledger: what each batch read, and what became of every record of it.

A row is written before the batch commits, under a token of its own, so a replayed batch has one row. What is read
back is summed by the server.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.ddl import BOOKS, DEAD_LETTERS, LEDGER, LOSSES, NEVER, PURGES
from glassflow_dagster.clickhouse.errors import TableProblem
from glassflow_dagster.clickhouse.identifiers import full_name
from glassflow_dagster.clickhouse.inserts import Inserter
from glassflow_dagster.clickhouse.losses import Loss, LossReason, read_losses
from glassflow_dagster.clickhouse.queries import fetch


@dataclass
class Outcomes:
    """What became of records; each is counted from the records themselves.

    Of a join: `taken` are the events that came to it in time, of which the right ones are `accepted` and the left ones
    `matched`, `unmatched` or `waiting`, which is a level and no flow: as many as wait at the end. `null_keys` are those
    of them whose key matches nothing. `joined` are the rows that it gave, of which `joined_filtered` and
    `joined_dead_letters` did not reach the table; `filtered` and `dead_letters` count them, too.
    """

    read: int = 0
    written: int = 0
    duplicates: int = 0
    filtered: int = 0
    late: int = 0
    unmatched: int = 0
    matched: int = 0
    waiting: int = 0
    dead_letters: int = 0
    taken: int = 0
    accepted: int = 0
    null_keys: int = 0
    joined: int = 0
    joined_filtered: int = 0
    joined_dead_letters: int = 0


@dataclass(frozen=True)
class LedgerRow:
    """One batch.

    `offsets` gives topic -> partition -> what was read of it, from the first up to, not including, the second.
    `rows_before` is the target's row count before the incarnation's first batch, the same in all of its rows.
    """

    pipeline_id: str
    incarnation: str
    batch_id: int
    batch_time_ms: int
    definition: str
    offsets: Mapping[str, Mapping[int, tuple[int, int]]]
    rows_before: int
    outcomes: Outcomes
    blocks: int
    bytes: int
    dead_letters_expire_at: int = NEVER


@dataclass(frozen=True)
class ReadRange:
    """What an incarnation of a checkpoint read of one partition, over all its batches.

    `covered` is the sum of the batches' spans: less than `until - first` means a gap, more means an overlap. gone: it
    was read of a topic that is another one now. skipped: offsets that somebody has let go (`run --accept-loss`).
    """

    incarnation: str
    topic: str
    partition: int
    first: int
    until: int
    covered: int
    gone: bool = False
    skipped: int = 0

    @property
    def span(self) -> int:
        """Offsets from the first batch's start to the last one's end."""
        return self.until - self.first

    @property
    def gap(self) -> int:
        """Offsets that no batch covers and nobody let go; negative where batches overlap."""
        return self.span - self.covered - self.skipped


@dataclass(frozen=True)
class LedgerTotals:
    """All batches of a pipeline's newest checkpoint together.

    An older incarnation's rows are gone: a new checkpoint is accepted only where the target was empty. Every dead
    letter of the batches must be stored, purged, or expired; one that is about to expire counts as expired.
    """

    batches: int
    first_batch_time: datetime | None
    last_batch_time: datetime | None
    rows_before: int
    outcomes: Outcomes
    dead_letters_stored: int
    ranges: tuple[ReadRange, ...]
    dead_letters_purged: int = 0
    dead_letters_expired: int = 0
    losses: tuple[Loss, ...] = ()


@dataclass(frozen=True)
class LedgerSums:
    """What all batches of one checkpoint became, up to `last_batch`, which is -1 when it has none.

    Times are in milliseconds since 1970.
    """

    incarnation: str
    batches: int = 0
    last_batch: int = -1
    first_time_ms: int = 0
    last_time_ms: int = 0
    rows_before: int = 0
    outcomes: Outcomes = field(default_factory=Outcomes)


# Seconds; no count takes so long that a letter expires while it is looked for.
_EXPIRES_SOON = 300

_OUTCOMES = tuple(found.name for found in fields(Outcomes))
# Waiting is a level and not a flow: the last batch's word counts.
_SUMS = ", ".join("argMax(waiting, batch_id)" if name == "waiting" else f"sum({name})" for name in _OUTCOMES)

# Rows up to the last batch that was summed: the figures of a running pipeline then belong together.
_UNTIL_LAST = (
    "pipeline_id = {pipeline:String} AND incarnation = {incarnation:UUID} "
    "AND toUnixTimestamp64Milli(batch_time) <= {last:Int64}"
)

_OFFSETS_TYPE = pa.list_(
    pa.struct([
        ("topic", pa.string()),
        ("partition", pa.uint32()),
        ("from", pa.uint64()),
        ("until", pa.uint64()),
    ])
)  # fmt: skip

_SCHEMA = pa.schema([
    ("pipeline_id", pa.string()),
    ("incarnation", pa.string()),
    ("batch_id", pa.uint64()),
    ("batch_time", pa.timestamp("ms", "UTC")),
    ("definition", pa.string()),
    ("offsets", _OFFSETS_TYPE),
    ("rows_before", pa.uint64()),
    *((name, pa.uint64()) for name in _OUTCOMES),
    ("dead_letters_expire_at", pa.uint32()),
    ("blocks", pa.uint32()),
    ("bytes", pa.uint64()),
])  # fmt: skip


def insert_ledger_row(inserter: Inserter, database: str, row: LedgerRow, token: str) -> None:
    """Write a batch's row under its token; raises what `Inserter.insert` raises."""
    inserter.insert(database, LEDGER, _block(row), token)


def read_totals(client: Client, database: str, pipeline_id: str) -> LedgerTotals:
    """Sum the ledger of a pipeline's newest checkpoint; all is zero and empty when it has no batch yet.

    All figures are those of the same batches, also while new ones are written. Raises `TableProblem` when the books do
    not exist.
    """
    return complete(client, database, pipeline_id, read_sums(client, database, pipeline_id))


def read_sums(client: Client, database: str, pipeline_id: str) -> LedgerSums:
    """Sum what all batches of a pipeline's newest checkpoint became.

    Raises `TableProblem` when the books do not exist.
    """
    require_books(client, database)
    newest = _newest_incarnation(client, full_name(database, LEDGER), pipeline_id)
    return add_later(client, database, pipeline_id, LedgerSums(newest))


def add_later(client: Client, database: str, pipeline_id: str, sums: LedgerSums) -> LedgerSums:
    """Add the batches of the same checkpoint that came since; only these are read, by the ledger's primary key."""
    row = fetch(
        client,
        "SELECT count(), max(batch_id), toUnixTimestamp64Milli(min(batch_time)), "  # noqa: S608 - quoted
        f"toUnixTimestamp64Milli(max(batch_time)), argMin(rows_before, batch_time), {_SUMS} "
        f"FROM {full_name(database, LEDGER)} WHERE pipeline_id = {{pipeline:String}} "
        "AND incarnation = {incarnation:UUID} AND batch_id >= {first:UInt64}",
        {"pipeline": pipeline_id, "incarnation": sums.incarnation, "first": sums.last_batch + 1},
    )[0]
    batches, last_batch, first, last, rows_before, *counted = row
    if not batches:
        return sums
    later = LedgerSums(
        incarnation=sums.incarnation,
        batches=batches,
        last_batch=last_batch,
        first_time_ms=first,
        last_time_ms=last,
        rows_before=rows_before,
        outcomes=Outcomes(**dict(zip(_OUTCOMES, counted, strict=True))),
    )
    return _added(sums, later) if sums.batches else later


def complete(client: Client, database: str, pipeline_id: str, sums: LedgerSums) -> LedgerTotals:
    """Add to a checkpoint's sums what its batches read of each partition, its dead letters and its losses."""
    incarnation = sums.incarnation
    until_last = {"pipeline": pipeline_id, "incarnation": incarnation, "last": sums.last_time_ms}
    losses = read_losses(client, database, pipeline_id, incarnation)
    return LedgerTotals(
        batches=sums.batches,
        first_batch_time=_time(sums.first_time_ms) if sums.batches else None,
        last_batch_time=_time(sums.last_time_ms) if sums.batches else None,
        rows_before=sums.rows_before,
        outcomes=sums.outcomes,
        ranges=_ranges(client, database, until_last, losses),
        losses=losses,
        **_dead_letters(client, database, until_last),
    )


def read_outcomes(client: Client, database: str, pipeline_id: str, incarnation: str, before_batch: int) -> Outcomes:
    """Sum what one incarnation's batches before a batch id became; the books must exist."""
    row = fetch(
        client,
        f"SELECT {_SUMS} FROM {full_name(database, LEDGER)} "  # noqa: S608 - quoted
        "WHERE pipeline_id = {pipeline:String} AND incarnation = {incarnation:UUID} AND batch_id < {before:UInt64}",
        {"pipeline": pipeline_id, "incarnation": incarnation, "before": before_batch},
    )[0]
    return Outcomes(**dict(zip(_OUTCOMES, row, strict=True)))


def last_batch(client: Client, database: str, pipeline_id: str, incarnation: str) -> int | None:
    """Give the newest batch that the ledger has of an incarnation; the books must exist."""
    # In the order of the primary key, so that the end of it is read and not all of it.
    found = fetch(
        client,
        f"SELECT batch_id FROM {full_name(database, LEDGER)} "  # noqa: S608 - quoted
        "WHERE pipeline_id = {pipeline:String} AND incarnation = {incarnation:UUID} "
        "ORDER BY pipeline_id DESC, incarnation DESC, batch_id DESC LIMIT 1",
        {"pipeline": pipeline_id, "incarnation": incarnation},
    )
    return int(found[0][0]) if found else None


def read_offsets(
    client: Client, database: str, pipeline_id: str, incarnation: str, from_batch: int
) -> dict[int, dict[str, dict[int, tuple[int, int]]]]:
    """Give what the batches from a batch id on have read: batch -> topic -> partition -> (from, until)."""
    found = fetch(
        client,
        "SELECT batch_id, o.1, o.2, o.3, o.4 "  # noqa: S608 - quoted
        f"FROM {full_name(database, LEDGER)} ARRAY JOIN offsets AS o "
        "WHERE pipeline_id = {pipeline:String} AND incarnation = {incarnation:UUID} AND batch_id >= {batch:UInt64}",
        {"pipeline": pipeline_id, "incarnation": incarnation, "batch": from_batch},
    )
    batches: dict[int, dict[str, dict[int, tuple[int, int]]]] = {}
    for batch_id, topic, partition, first, until in found:
        batches.setdefault(batch_id, {}).setdefault(topic, {})[partition] = (first, until)
    return batches


@dataclass(frozen=True)
class BatchRange:
    """What one batch read of one partition: [first, until), and the batch's time in milliseconds since 1970."""

    batch_id: int
    batch_time_ms: int
    topic: str
    partition: int
    first: int
    until: int


@dataclass(frozen=True)
class BatchEntry:
    """What the ledger says of one batch: its time in milliseconds since 1970, the digest of its definition."""

    batch_id: int
    batch_time_ms: int
    definition: str
    duplicates: int
    ranges: tuple[BatchRange, ...]


@dataclass(frozen=True)
class BatchHistory:
    """All batches of a pipeline's newest checkpoint, in their order."""

    incarnation: str
    batches: tuple[BatchEntry, ...]

    @property
    def last_batch(self) -> int | None:
        """The newest batch; None before the first."""
        return self.batches[-1].batch_id if self.batches else None

    @property
    def definitions(self) -> frozenset[str]:
        """The digests of the definitions that batches went by."""
        return frozenset(batch.definition for batch in self.batches)

    @property
    def ranges(self) -> tuple[BatchRange, ...]:
        """What all batches read."""
        return tuple(found for batch in self.batches for found in batch.ranges)


def read_history(client: Client, database: str, pipeline_id: str) -> BatchHistory:
    """Read every batch of a pipeline's newest checkpoint; the books must exist."""
    ledger = full_name(database, LEDGER)
    incarnation = _newest_incarnation(client, ledger, pipeline_id)
    where = "WHERE pipeline_id = {pipeline:String} AND incarnation = {incarnation:UUID}"
    rows = fetch(
        client,
        "SELECT batch_id, toUnixTimestamp64Milli(batch_time), definition, duplicates, offsets "  # noqa: S608 - quoted
        f"FROM {ledger} {where} ORDER BY batch_id",
        {"pipeline": pipeline_id, "incarnation": incarnation},
    )
    return BatchHistory(incarnation, tuple(_entry(*row) for row in rows))


def require_books(client: Client, database: str) -> None:
    """Raise `TableProblem` when the books do not exist, or are those of an earlier version."""
    columns = fetch(client, "SELECT table, name FROM system.columns WHERE database = {d:String}", {"d": database})
    tables = {table for table, _ in columns}
    for book in BOOKS:
        if book.name not in tables:
            raise TableProblem(
                f"{database}.{book.name} does not exist: no pipeline of this version has run against this server and "
                "database yet; start one"
            )
        if any((book.name, name) not in columns for name in book.columns):
            raise TableProblem(
                f"{database}.{book.name} was made by an earlier version and lacks columns; start the pipeline, which "
                "adds them"
            )


def _newest_incarnation(client: Client, ledger: str, pipeline_id: str) -> str:
    """Name a pipeline's newest checkpoint; zeroes when it has no batch yet."""
    newest = f"SELECT toString(argMax(incarnation, batch_time)) FROM {ledger} WHERE pipeline_id = {{pipeline:String}}"  # noqa: S608 - quoted
    return str(fetch(client, newest, {"pipeline": pipeline_id})[0][0])


def _added(sums: LedgerSums, later: LedgerSums) -> LedgerSums:
    """Add sums of later batches; waiting is a level and not a flow: the later word counts."""
    counted = {name: getattr(sums.outcomes, name) + getattr(later.outcomes, name) for name in _OUTCOMES}
    return replace(
        later,
        batches=sums.batches + later.batches,
        first_time_ms=sums.first_time_ms,
        rows_before=sums.rows_before,
        outcomes=Outcomes(**counted | {"waiting": later.outcomes.waiting}),
    )


def _entry(
    batch_id: int, time_ms: int, definition: str, duplicates: int, offsets: Sequence[Mapping[str, Any]]
) -> BatchEntry:
    ranges = (BatchRange(batch_id, time_ms, o["topic"], o["partition"], o["from"], o["until"]) for o in offsets)
    return BatchEntry(batch_id, time_ms, definition, duplicates, tuple(ranges))


def _block(row: LedgerRow) -> pa.Table:
    offsets = [
        {"topic": topic, "partition": partition, "from": first, "until": until}
        for topic, partitions in sorted(row.offsets.items())
        for partition, (first, until) in sorted(partitions.items())
    ]
    counted = {name: getattr(row.outcomes, name) for name in _OUTCOMES}
    others = {f.name: getattr(row, f.name) for f in fields(row) if f.name in _SCHEMA.names}
    values = {**others, **counted, "batch_time": row.batch_time_ms, "offsets": offsets}
    return pa.Table.from_pylist([values], schema=_SCHEMA)


def _ranges(client: Client, database: str, until_last: dict[str, Any], losses: Sequence[Loss]) -> tuple[ReadRange, ...]:
    book = full_name(database, LOSSES)
    other_topic = (
        f"SELECT topic, partition, max(batch_id) AS since FROM {book} "  # noqa: S608 - quoted
        "WHERE pipeline_id = {pipeline:String} AND incarnation = {incarnation:UUID} AND reason = 'topic' GROUP BY 1, 2"
    )
    read = (
        "SELECT toString(incarnation) AS checkpoint, batch_id, o.1 AS topic, o.2 AS partition, o.3 AS first, "  # noqa: S608
        f"o.4 AS until FROM {full_name(database, LEDGER)} ARRAY JOIN offsets AS o WHERE {_UNTIL_LAST}"
    )
    found = fetch(
        client,
        "SELECT r.checkpoint, r.topic, r.partition, min(r.first), max(r.until), sum(r.until - r.first), "  # noqa: S608
        f"r.batch_id < c.since AS gone FROM ({read}) AS r LEFT JOIN ({other_topic}) AS c "
        "ON r.topic = c.topic AND r.partition = c.partition GROUP BY ALL ORDER BY ALL",
        until_last,
    )
    skipped: Counter[tuple[str, int]] = Counter()
    for loss in losses:
        if loss.reason is LossReason.RETENTION:
            skipped[loss.topic, loss.partition] += loss.until - loss.first
    return tuple(
        ReadRange(
            incarnation, topic, partition, first, until, covered, bool(gone), 0 if gone else skipped[topic, partition]
        )
        for incarnation, topic, partition, first, until, covered, gone in found
    )


def _dead_letters(client: Client, database: str, until_last: dict[str, Any]) -> dict[str, int]:
    """Count what became of the dead letters; those that are about to expire may be gone or not, so none is looked for.

    A letter is purged in two steps: while it has both a mark and a row, it counts as stored.
    """
    soon = fetch(client, f"SELECT toUnixTimestamp(now()) + {_EXPIRES_SOON}")[0][0]
    stays = f"{_UNTIL_LAST} AND toUnixTimestamp(expires_at) > {{soon:UInt64}}"
    parameters = {**until_last, "soon": soon}
    letters, purges = full_name(database, DEAD_LETTERS), full_name(database, PURGES)
    places = "SELECT DISTINCT toString(topic), partition, offset"
    purged = f"{places} FROM {purges} WHERE {stays} EXCEPT {places} FROM {letters} WHERE {stays}"
    expired = f"{_UNTIL_LAST} AND toUnixTimestamp(dead_letters_expire_at) <= {{soon:UInt64}}"
    row = fetch(
        client,
        f"SELECT (SELECT count() FROM {letters} WHERE {stays}), (SELECT count() FROM ({purged})), "  # noqa: S608 - quoted
        f"(SELECT sum(dead_letters) FROM {full_name(database, LEDGER)} WHERE {expired})",
        parameters,
    )[0]
    names = ("dead_letters_stored", "dead_letters_purged", "dead_letters_expired")
    return dict(zip(names, (int(count or 0) for count in row), strict=True))


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
