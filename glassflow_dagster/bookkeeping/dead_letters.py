"""Dead letters: the records that could not go on, as they were read, and why.

Headers are pairs, since Kafka allows a name twice; keys, values and header values are bytes, and null where Kafka had
null.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from glassflow_dagster.bookkeeping.purges import LETTER_ID, PURGES, purged_letters
from glassflow_dagster.bookkeeping.replays import replayed_letters
from glassflow_dagster.bookkeeping.schema import (
    BATCH,
    BATCH_TIME,
    EXPIRES_AT,
    POSITION,
    BookkeepingTable,
    Column,
)
from glassflow_dagster.clickhouse.identifiers import quote_text
from glassflow_dagster.clickhouse.inserts.insert import Inserter
from glassflow_dagster.clickhouse.inserts.tokens import Token
from glassflow_dagster.clickhouse.queries import execute, fetch

# The stage of a record whose row the server refused.
INSERT_STAGE = "insert"

# What tells a record and its fault, before its origin is known.
_RECORD = (
    *POSITION,
    Column("timestamp", "DateTime64(3, 'UTC')"),
    Column("key", "Nullable(String)", arrow=pa.binary()),
    Column("value", "Nullable(String)", arrow=pa.binary()),
    Column(
        "headers",
        "Array(Tuple(name String, value Nullable(String)))",
        arrow=pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())])),
    ),
    Column("stage", "LowCardinality(String)"),
    Column("reason", "String"),
)
_PASSED_DEDUP = Column("passed_dedup", "Bool")

# Before there were replays, a record's place was its origin.
DEAD_LETTERS = BookkeepingTable(
    "glassflow_dead_letters",
    (
        *BATCH,
        BATCH_TIME,
        *_RECORD,
        Column("attempt", "UInt16"),
        Column("origin_topic", "LowCardinality(String)", "topic"),
        Column("origin_partition", "UInt32", "partition"),
        Column("origin_offset", "UInt64", "offset"),
        _PASSED_DEDUP,
        EXPIRES_AT,
    ),
    order_by="(pipeline_id, batch_time, topic, partition, offset)",
    ttl="expires_at",
)

SCHEMA = DEAD_LETTERS.schema
# Columns that every letter has, before its origin is known.
RAW_SCHEMA = pa.schema([column.field for column in (*_RECORD, _PASSED_DEDUP)])

# How columns are read; the others are read as they are.
_READ_AS = {
    "checkpoint_id": "toString(checkpoint_id)",
    "batch_time": "toUnixTimestamp64Milli(batch_time)",
    "timestamp": "toUnixTimestamp64Milli(timestamp)",
    "key": "base64Encode(key)",
    "value": "base64Encode(value)",
    "headers": "arrayMap(h -> (base64Encode(h.1), base64Encode(h.2)), headers)",
    "expires_at": "toUnixTimestamp(expires_at)",
}


@dataclass(frozen=True)
class DeadLetter:
    """A record that could not go on, as it was read, and why. Times are in milliseconds, expiry in seconds."""

    checkpoint_id: str
    batch_id: int
    batch_time_ms: int
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    stage: str
    reason: str
    attempt: int
    origin_topic: str
    origin_partition: int
    origin_offset: int
    passed_dedup: bool
    expires_at: int
    replayed: bool

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> "DeadLetter":
        """Read a row of `LETTER_COLUMNS`."""
        values = dict(zip(cls.__dataclass_fields__, row, strict=True))
        headers = tuple((_bytes(name).decode(errors="replace"), _maybe(value)) for name, value in values["headers"])
        return cls(**{
            **values, "key": _maybe(values["key"]), "value": _maybe(values["value"]), "headers": headers,
            "passed_dedup": bool(values["passed_dedup"]), "replayed": bool(values["replayed"]),
        })  # fmt: skip


# What is selected from `letters_query` for a `DeadLetter`, in the order of its fields.
LETTER_COLUMNS = tuple(
    _READ_AS.get(name.removesuffix("_ms"), name.removesuffix("_ms")) for name in DeadLetter.__dataclass_fields__
)
# The order in which letters were refused.
LETTER_ORDER = ("batch_time", "topic", "partition", "offset")


def letters_query(database: str) -> str:
    """Write the query for a pipeline's dead letters that have not expired and were not purged.

    Columns out: those of the table, and `replayed`, whether the letter was sent again. Its parameter is `pipeline`.
    """
    sent = "(checkpoint_id, origin_topic, origin_partition, origin_offset, toUInt16(attempt + 1))"
    return (
        f"SELECT *, {sent} IN ({replayed_letters(database)}) AS replayed "
        f"FROM {DEAD_LETTERS.full_name(database)} WHERE pipeline_id = {{pipeline:String}} AND expires_at > now() "
        f"AND ({LETTER_ID}) NOT IN ({purged_letters(database, '{pipeline:String}')})"
    )


def insert_dead_letters(inserter: Inserter, database: str, letters: pa.Table, token: Token) -> None:
    """Write a block of letters under its token; raises what `Inserter.insert` raises."""
    DEAD_LETTERS.insert(inserter, database, letters, token)


def delete_purged(client: Client, database: str, pipeline_id: str) -> None:
    """Delete the letters that are marked as purged.

    Raises `AccessDenied` with the statement to run where the user may not delete.
    """
    # The id is part of the statement, so that somebody else can run it.
    pipeline = quote_text(pipeline_id)
    execute(
        client,
        f"ALTER TABLE {DEAD_LETTERS.full_name(database)} DELETE WHERE pipeline_id = {pipeline} "
        f"AND ({LETTER_ID}) IN ({purged_letters(database, pipeline)}) SETTINGS mutations_sync = 1",
    )


def read_refused_by_server(client: Client, database: str, pipeline_id: str) -> list[tuple[str, int, int]]:
    """List the positions of the records whose rows the server refused; a letter that was purged may have been one."""
    of = "WHERE pipeline_id = {pipeline:String}"
    found = fetch(
        client,
        f"SELECT toString(topic), partition, offset FROM {DEAD_LETTERS.full_name(database)} {of} "
        f"AND stage = {quote_text(INSERT_STAGE)} "
        f"UNION DISTINCT SELECT topic, partition, offset FROM {PURGES.full_name(database)} {of}",
        {"pipeline": pipeline_id},
    )
    return [(topic, partition, offset) for topic, partition, offset in found]


def _maybe(text: str | None) -> bytes | None:
    return None if text is None else _bytes(text)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)
