"""Totals over all batches of a checkpoint: the ledger's sums with offset ranges, dead letters, purges and losses."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.bookkeeping.dead_letter_marks import PURGES
from glassflow_dagster.stores.bookkeeping.dead_letter_table import DEAD_LETTERS
from glassflow_dagster.stores.bookkeeping.ledger import (
    LEDGER,
    LedgerSums,
    RowsByTable,
    add_later_batches,
    batches_with_dead_letters_query,
    newest_checkpoint,
)
from glassflow_dagster.stores.bookkeeping.losses import LOSSES, Loss, LossReason, read_losses
from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes
from glassflow_dagster.stores.bookkeeping.tables import require_bookkeeping_tables
from glassflow_dagster.stores.clickhouse.queries import fetch


@dataclass(frozen=True)
class ReadRange:
    """The offset range [first, until) of one partition that a checkpoint read, over all its batches.

    covered: the sum of the batches' ranges; less than `until - first` means a gap, more means an overlap.
    gone: the topic that it was read from has been deleted or recreated.
    skipped: offsets lost with `run --accept-loss`.
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
        """The number of offsets from the first batch's start to the last batch's end."""
        return self.until - self.first

    @property
    def gap(self) -> int:
        """The number of offsets that neither a batch covers nor a loss explains; negative where batches overlap."""
        return self.span - self.covered - self.skipped


@dataclass(frozen=True)
class LedgerTotals:
    """The totals over all batches of a pipeline's newest checkpoint.

    The target has no rows of older checkpoints: a new checkpoint is accepted only where the target is empty. Every
    dead letter of the batches must be stored, purged or expired; one that is about to expire counts as expired.
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
    by_table: RowsByTable = field(default_factory=RowsByTable)


# Seconds; longer than any of these counts takes, so that no dead letter expires while it is counted.
_EXPIRES_SOON = 300

# Rows up to the last summed batch, so that all figures of a running pipeline are of the same batches.
_UP_TO_LAST_BATCH = (
    "pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID} "
    "AND toUnixTimestamp64Milli(batch_time) <= {last:Int64}"
)


def read_totals(client: Client, database: str, pipeline_id: str) -> LedgerTotals:
    """Return the totals of a pipeline's newest checkpoint; zero and empty when it has no batch yet.

    All figures are of the same batches, also while new batches are written. Raises `TableProblem` when the bookkeeping
    tables do not exist.
    """
    return complete_totals(client, database, pipeline_id, read_sums(client, database, pipeline_id))


def read_sums(client: Client, database: str, pipeline_id: str) -> LedgerSums:
    """Return the ledger's sums over all batches of a pipeline's newest checkpoint.

    Raises `TableProblem` when the bookkeeping tables do not exist.
    """
    require_bookkeeping_tables(client, database)
    newest = newest_checkpoint(client, database, pipeline_id)
    return add_later_batches(client, database, pipeline_id, LedgerSums(newest))


def complete_totals(client: Client, database: str, pipeline_id: str, sums: LedgerSums) -> LedgerTotals:
    """Return the totals: a checkpoint's sums with the offset ranges, dead letters and losses of the same batches."""
    checkpoint_id = sums.checkpoint_id
    batches = {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id, "last": sums.last_time_ms}
    losses = read_losses(client, database, pipeline_id, checkpoint_id)
    return LedgerTotals(
        batches=sums.batches,
        first_batch_time=_time(sums.first_time_ms) if sums.batches else None,
        last_batch_time=_time(sums.last_time_ms) if sums.batches else None,
        rows_before=sums.rows_before,
        outcomes=sums.outcomes,
        ranges=_ranges(client, database, batches, losses),
        losses=losses,
        by_table=sums.by_table,
        **_dead_letters(client, database, batches),
    )


def _ranges(client: Client, database: str, batches: dict[str, Any], losses: Sequence[Loss]) -> tuple[ReadRange, ...]:
    """Return the range of each partition. batches: the query parameters of `_UP_TO_LAST_BATCH`.

    Batches before a loss of reason `topic` are a range of their own: their offsets are of a topic that is gone. Such a
    range has no skipped offsets; those that retention removed count for the topic that exists.
    """
    topic_losses = (
        f"SELECT topic, partition, max(batch_id) AS since FROM {LOSSES.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID} AND reason = 'topic' "
        "GROUP BY 1, 2"
    )
    read = (
        "SELECT toString(checkpoint_id) AS checkpoint, batch_id, o.1 AS topic, o.2 AS partition, o.3 AS first, "
        f"o.4 AS until FROM {LEDGER.full_name(database)} ARRAY JOIN offsets AS o WHERE {_UP_TO_LAST_BATCH}"
    )
    ranges = fetch(
        client,
        "SELECT r.checkpoint, r.topic, r.partition, min(r.first), max(r.until), sum(r.until - r.first), "
        f"r.batch_id < c.since AS gone FROM ({read}) AS r LEFT JOIN ({topic_losses}) AS c "
        "ON r.topic = c.topic AND r.partition = c.partition GROUP BY ALL ORDER BY ALL",
        batches,
    )
    skipped: Counter[tuple[str, int]] = Counter()
    for loss in losses:
        if loss.reason is LossReason.RETENTION:
            skipped[loss.topic, loss.partition] += loss.until - loss.first
    return tuple(
        ReadRange(
            checkpoint_id=checkpoint_id,
            topic=topic,
            partition=partition,
            first=first,
            until=until,
            covered=covered,
            gone=bool(gone),
            skipped=0 if gone else skipped[topic, partition],
        )
        for checkpoint_id, topic, partition, first, until, covered, gone in ranges
    )


def _dead_letters(client: Client, database: str, batches: dict[str, Any]) -> dict[str, int]:
    """Return the counts of dead letters up to the last summed batch: stored, purged and expired.

    For those that expire soon only the ledger's count is used, as expired: ClickHouse may or may not have deleted their
    rows. A dead letter is purged in two steps (mark, delete): while it has both a mark and a row, it counts as stored.
    batches: the query parameters of `_UP_TO_LAST_BATCH`.
    """
    # A dead letter that expires before this time (seconds since 1970) counts as expired.
    soon = fetch(client, f"SELECT toUnixTimestamp(now()) + {_EXPIRES_SOON}")[0][0]
    unexpired = f"{_UP_TO_LAST_BATCH} AND toUnixTimestamp(expires_at) > {{soon:UInt64}}"
    parameters = {**batches, "soon": soon}
    with_dead_letters = batches_with_dead_letters_query(database)
    dead_letters, purges = DEAD_LETTERS.full_name(database), PURGES.full_name(database)
    # Those of a batch that was given up are of no batch in the ledger.
    stored = f"FROM {dead_letters} WHERE {unexpired} AND (checkpoint_id, batch_time) IN ({with_dead_letters})"
    # Each batch has a time of its own.
    ids = "SELECT DISTINCT batch_time, toString(topic), partition, offset, item, toString(only_table)"
    purged = f"{ids} FROM {purges} WHERE {unexpired} EXCEPT {ids} {stored}"
    expired = f"{_UP_TO_LAST_BATCH} AND toUnixTimestamp(dead_letters_expire_at) <= {{soon:UInt64}}"
    row = fetch(
        client,
        f"SELECT (SELECT count() {stored}), (SELECT count() FROM ({purged})), "
        f"(SELECT sum(dead_letters) FROM {LEDGER.full_name(database)} WHERE {expired})",
        parameters,
    )[0]
    # The sum over no batch may be NULL.
    names = ("dead_letters_stored", "dead_letters_purged", "dead_letters_expired")
    return dict(zip(names, (int(count or 0) for count in row), strict=True))


def _time(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
