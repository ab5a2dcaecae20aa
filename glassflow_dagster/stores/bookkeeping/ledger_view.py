"""The ledger as people look at it: the newest batches, and the last hour in slices."""

from dataclasses import dataclass
from typing import Any

from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.bookkeeping.ledger import LEDGER, newest_checkpoint_query
from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes
from glassflow_dagster.stores.clickhouse.queries import fetch

SLICE_SECONDS = 10
# The outcomes that are shown; a batch has others of a join.
COUNTS = ("read", "written", "duplicates", "filtered", "late", "dead_letters", "matched", "unmatched", "waiting")


@dataclass(frozen=True)
class LedgerBatch:
    """A batch of the newest checkpoint. time_ms: its batch time since 1970. records: the ranges of offsets as text."""

    batch_id: int
    time_ms: int
    counts: dict[str, int]
    blocks: int
    bytes: int
    offsets: tuple[str, ...]


def newest_batches(
    client: Client, database: str, pipeline_id: str, limit: int, before: int | None = None
) -> list[LedgerBatch]:
    """Return the newest batches, the newest first; those below the id `before`, if it is given.

    Empty where no pipeline of this version has run.
    """
    if not _is_there(client, database):
        return []
    rows = fetch(
        client,
        f"SELECT batch_id, toUnixTimestamp64Milli(batch_time), blocks, bytes, offsets, {', '.join(COUNTS)} "
        f"FROM {LEDGER.full_name(database)} WHERE pipeline_id = {{pipeline:String}} "
        f"AND checkpoint_id = ({newest_checkpoint_query(database)}) AND batch_id < {{before:UInt64}} "
        "ORDER BY batch_id DESC LIMIT {limit:UInt32}",
        {"pipeline": pipeline_id, "before": 2**63 if before is None else before, "limit": limit},
    )
    return [_batch(*row) for row in rows]


def last_hour(client: Client, database: str, pipeline_id: str) -> dict[int, Outcomes]:
    """Return the outcomes of the last hour's batches: slice of `SLICE_SECONDS` since 1970 -> their sums.

    Empty as above.
    """
    if not _is_there(client, database):
        return {}
    sums = ", ".join(f"sum({name})" for name in COUNTS[:-1])
    rows = fetch(
        client,
        f"SELECT intDiv(toUnixTimestamp64Milli(batch_time), {SLICE_SECONDS * 1000}) AS slice, {sums} "
        f"FROM {LEDGER.full_name(database)} WHERE pipeline_id = {{pipeline:String}} "
        f"AND checkpoint_id = ({newest_checkpoint_query(database)}) AND batch_time > now() - INTERVAL 1 HOUR "
        "GROUP BY slice",
        {"pipeline": pipeline_id},
    )
    return {int(slice_): Outcomes(**dict(zip(COUNTS, counts, strict=False))) for slice_, *counts in rows}


def _is_there(client: Client, database: str) -> bool:
    """Return whether there is a ledger with all of its columns: no pipeline has run yet, or an earlier version has."""
    query = "SELECT name FROM system.columns WHERE database = {database:String} AND table = {name:String}"
    return {*LEDGER.column_names} <= {
        name for (name,) in fetch(client, query, {"database": database, "name": LEDGER.name})
    }


def _batch(batch_id: int, time_ms: int, blocks: int, size: int, offsets: Any, *counts: int) -> LedgerBatch:
    ranges = tuple(f"{each['topic']}[{each['partition']}] {each['from']:,} to {each['until'] - 1:,}" for each in offsets
                   if each["until"] > each["from"])  # fmt: skip
    return LedgerBatch(batch_id, time_ms, dict(zip(COUNTS, counts, strict=True)), blocks, size, ranges)
