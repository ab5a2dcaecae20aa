"""What all batches of a checkpoint became together, with the tables beside the ledger: losses, dead letters, purges."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from clickhouse_connect.driver.client import Client

from glassflow_dagster.bookkeeping.dead_letters import DEAD_LETTERS
from glassflow_dagster.bookkeeping.ledger import LEDGER, LedgerSums, Outcomes, add_later, newest_checkpoint
from glassflow_dagster.bookkeeping.losses import LOSSES, Loss, LossReason, read_losses
from glassflow_dagster.bookkeeping.purges import PURGES
from glassflow_dagster.bookkeeping.tables import require_bookkeeping_tables
from glassflow_dagster.clickhouse.queries import fetch


@dataclass(frozen=True)
class ReadRange:
    """What a checkpoint read of one partition, over all its batches.

    `covered` is the sum of the batches' spans: less than `until - first` means a gap, more means an overlap. gone: it
    was read of a topic that is another one now. skipped: offsets that somebody has let go (`run --accept-loss`).
    """

    checkpoint_id: str
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

    An older checkpoint's rows are gone: a new checkpoint is accepted only where the target was empty. Every dead
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


# Seconds; no count takes so long that a letter expires while it is looked for.
_EXPIRES_SOON = 300

# Rows up to the last batch that was summed: the figures of a running pipeline then belong together.
_UNTIL_LAST = (
    "pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID} "
    "AND toUnixTimestamp64Milli(batch_time) <= {last:Int64}"
)


def read_totals(client: Client, database: str, pipeline_id: str) -> LedgerTotals:
    """Sum the ledger of a pipeline's newest checkpoint; all is zero and empty when it has no batch yet.

    All figures are those of the same batches, also while new ones are written. Raises `TableProblem` when the
    bookkeeping tables do not exist.
    """
    return complete(client, database, pipeline_id, read_sums(client, database, pipeline_id))


def read_sums(client: Client, database: str, pipeline_id: str) -> LedgerSums:
    """Sum what all batches of a pipeline's newest checkpoint became.

    Raises `TableProblem` when the bookkeeping tables do not exist.
    """
    require_bookkeeping_tables(client, database)
    newest = newest_checkpoint(client, database, pipeline_id)
    return add_later(client, database, pipeline_id, LedgerSums(newest))


def complete(client: Client, database: str, pipeline_id: str, sums: LedgerSums) -> LedgerTotals:
    """Add to a checkpoint's sums what its batches read of each partition, its dead letters and its losses."""
    checkpoint_id = sums.checkpoint_id
    until_last = {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id, "last": sums.last_time_ms}
    losses = read_losses(client, database, pipeline_id, checkpoint_id)
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


def _ranges(client: Client, database: str, until_last: dict[str, Any], losses: Sequence[Loss]) -> tuple[ReadRange, ...]:
    other_topic = (
        f"SELECT topic, partition, max(batch_id) AS since FROM {LOSSES.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID} AND reason = 'topic' "
        "GROUP BY 1, 2"
    )
    read = (
        "SELECT toString(checkpoint_id) AS checkpoint, batch_id, o.1 AS topic, o.2 AS partition, o.3 AS first, "
        f"o.4 AS until FROM {LEDGER.full_name(database)} ARRAY JOIN offsets AS o WHERE {_UNTIL_LAST}"
    )
    found = fetch(
        client,
        "SELECT r.checkpoint, r.topic, r.partition, min(r.first), max(r.until), sum(r.until - r.first), "
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
            checkpoint_id, topic, partition, first, until, covered, bool(gone), 0 if gone else skipped[topic, partition]
        )
        for checkpoint_id, topic, partition, first, until, covered, gone in found
    )


def _dead_letters(client: Client, database: str, until_last: dict[str, Any]) -> dict[str, int]:
    """Count what became of the dead letters; those that are about to expire may be gone or not, so none is looked for.

    A letter is purged in two steps: while it has both a mark and a row, it counts as stored.
    """
    soon = fetch(client, f"SELECT toUnixTimestamp(now()) + {_EXPIRES_SOON}")[0][0]
    stays = f"{_UNTIL_LAST} AND toUnixTimestamp(expires_at) > {{soon:UInt64}}"
    parameters = {**until_last, "soon": soon}
    letters, purges = DEAD_LETTERS.full_name(database), PURGES.full_name(database)
    places = "SELECT DISTINCT toString(topic), partition, offset"
    purged = f"{places} FROM {purges} WHERE {stays} EXCEPT {places} FROM {letters} WHERE {stays}"
    expired = f"{_UNTIL_LAST} AND toUnixTimestamp(dead_letters_expire_at) <= {{soon:UInt64}}"
    row = fetch(
        client,
        f"SELECT (SELECT count() FROM {letters} WHERE {stays}), (SELECT count() FROM ({purged})), "
        f"(SELECT sum(dead_letters) FROM {LEDGER.full_name(database)} WHERE {expired})",
        parameters,
    )[0]
    names = ("dead_letters_stored", "dead_letters_purged", "dead_letters_expired")
    return dict(zip(names, (int(count or 0) for count in row), strict=True))


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
