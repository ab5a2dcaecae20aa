"""Accepted losses: what a pipeline skipped because the operator allowed it with `run --accept-loss`.

One row for each partition of which offsets were skipped, and one for a discarded state. The ledger continues after
the losses, so that everything else can still be compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.bookkeeping.schema import BATCH, WRITE_EVERYWHERE, BookkeepingTable, Column
from glassflow_dagster.stores.clickhouse.queries import fetch

# A skipped offset range [from, until) of a partition, or a discarded state and its number of waiting events.
LOSSES = BookkeepingTable(
    "glassflow_losses",
    (
        *BATCH,
        Column("reason", "LowCardinality(String)"),
        Column("topic", "LowCardinality(String)"),
        Column("partition", "UInt32"),
        Column("from", "UInt64"),
        Column("until", "UInt64"),
        Column("waiting", "UInt64"),
    ),
    order_by="(pipeline_id, checkpoint_id, batch_id)",
    settings=WRITE_EVERYWHERE,
)


class LossReason(StrEnum):
    """The cause of a loss."""

    RETENTION = "retention"  # the records are gone from the topic
    IN_FLIGHT = "in_flight"  # records of the in-flight batch are gone, so it cannot be repeated as it was
    TOPIC = "topic"  # the topic or a partition was deleted, or deleted and created again
    STATE = "state"  # the checkpoint's state: waiting events of a join, keys of deduplication


@dataclass(frozen=True)
class Loss:
    """A loss that comes after the batches below `batch_id` and before `batch_id`.

    [first, until): skipped offsets of the partition; both are the same number where their number is unknown. waiting:
    left events of a join that were discarded with the state.
    """

    batch_id: int
    reason: LossReason
    topic: str = ""
    partition: int = 0
    first: int = 0
    until: int = 0
    waiting: int = 0

    def __str__(self) -> str:
        """Return a description for people."""
        if self.reason is LossReason.STATE:
            waiting = f", and {self.waiting:,} waiting left events" if self.waiting else ""
            return f"the state is discarded: the keys of the deduplication window{waiting}"
        where = f"{self.topic}, partition {self.partition}"
        if self.reason is LossReason.TOPIC:
            return f"{where}: was recreated after it was read up to offset {self.first}, or ends before that offset"
        if self.reason is LossReason.IN_FLIGHT:
            return f"{where}: offsets {self.first} to {self.until - 1}: the in-flight batch has lost records of them"
        return f"{where}: offsets {self.first} to {self.until - 1}: no longer in Kafka"


def note_losses(client: Client, database: str, pipeline_id: str, checkpoint_id: str, losses: Sequence[Loss]) -> None:
    """Insert a row for each loss; raises what `execute` raises."""
    for loss in losses:
        LOSSES.insert_row(
            client,
            database,
            {
                "pipeline_id": pipeline_id,
                "checkpoint_id": checkpoint_id,
                "batch_id": loss.batch_id,
                "reason": loss.reason.value,
                "topic": loss.topic,
                "partition": loss.partition,
                "from": loss.first,
                "until": loss.until,
                "waiting": loss.waiting,
            },
        )


def read_losses(client: Client, database: str, pipeline_id: str, checkpoint_id: str) -> tuple[Loss, ...]:
    """Return the losses of a checkpoint, ordered by batch; one that a repeated command inserted twice counts once."""
    rows = fetch(
        client,
        "SELECT DISTINCT batch_id, toString(reason), toString(topic), partition, `from`, until, waiting "
        f"FROM {LOSSES.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String} AND checkpoint_id = {checkpoint_id:UUID} ORDER BY ALL",
        {"pipeline": pipeline_id, "checkpoint_id": checkpoint_id},
    )
    # The columns are in the order of the fields of `Loss`.
    return tuple(Loss(batch_id, LossReason(reason), *details) for batch_id, reason, *details in rows)
