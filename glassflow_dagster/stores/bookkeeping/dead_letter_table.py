"""The table of dead letters: records that failed in the pipeline, as they were read from Kafka, and why they failed.

Headers are (name, value) pairs, since Kafka allows a name twice. Keys, values and header values are bytes, and null
where Kafka had null.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from glassflow_dagster.stores.bookkeeping.dead_letter_marks import (
    DEAD_LETTER_ID,
    PURGES,
    purged_ids_query,
    replayed_attempts_query,
)
from glassflow_dagster.stores.bookkeeping.ledger import batches_with_dead_letters_query
from glassflow_dagster.stores.bookkeeping.schema import (
    BATCH,
    BATCH_TIME,
    EXPIRES_AT,
    ITEM,
    ONLY_TABLE,
    ORIGIN_BATCH_TIME,
    POSITION,
    BookkeepingTable,
    Column,
)
from glassflow_dagster.stores.clickhouse.identifiers import quote_text
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.queries import execute, fetch
from glassflow_dagster.stores.kafka.replay_headers import WHOLE_RECORD

# The stage of a dead letter whose row ClickHouse rejected on insert.
INSERT_STAGE = "insert"
# How the reason of a record begins whose schema the registry does not know (stream/scala/decode/SchemaDecoder.scala),
# and that of one with a key whose schema it does not know (stream/scala/decode/KeyFields.scala).
UNKNOWN_SCHEMA = "the schema registry has no schema with the id"
UNKNOWN_SCHEMA_OF_KEY = f"key: {UNKNOWN_SCHEMA}"

# The record and its error; the columns of its origin (before any replay) follow in the table.
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
    ITEM,
    ONLY_TABLE,
)
_PASSED_DEDUP = Column("passed_dedup", "Bool")

# The origin is the batch and position of the record's first read. Rows of versions without replays have none, so the
# position defaults to the record's.
DEAD_LETTERS = BookkeepingTable(
    "glassflow_dead_letters",
    (
        *BATCH,
        BATCH_TIME,
        *_RECORD,
        Column("attempt", "UInt16"),
        ORIGIN_BATCH_TIME,
        Column("origin_topic", "LowCardinality(String)", "topic"),
        Column("origin_partition", "UInt32", "partition"),
        Column("origin_offset", "UInt64", "offset"),
        Column("origin_item", "Int32", "item"),
        _PASSED_DEDUP,
        EXPIRES_AT,
    ),
    order_by="(pipeline_id, batch_time, topic, partition, offset)",
    ttl="expires_at",
)

SCHEMA = DEAD_LETTERS.schema
# Columns of a dead letter before its origin is added.
RAW_SCHEMA = pa.schema([column.field for column in (*_RECORD, _PASSED_DEDUP)])

# SQL expressions by which columns are selected; a column without one is selected by its name.
_READ_AS = {
    "checkpoint_id": "toString(checkpoint_id)",
    "batch_time": "toUnixTimestamp64Milli(batch_time)",
    "origin_batch_time": "toUnixTimestamp64Milli(origin_batch_time)",
    "timestamp": "toUnixTimestamp64Milli(timestamp)",
    "key": "base64Encode(key)",
    "value": "base64Encode(value)",
    "headers": "arrayMap(h -> (base64Encode(h.1), base64Encode(h.2)), headers)",
    "expires_at": "toUnixTimestamp(expires_at)",
}


class RefusedEvent(NamedTuple):
    """The position of an event whose row ClickHouse has rejected, and the time of its batch (ms since 1970).

    only_table: the table that has rejected it, where it could go to several; else ''.
    """

    topic: str
    partition: int
    offset: int
    item: int
    only_table: str
    batch_ms: int


class UndecodedRecord(NamedTuple):
    """The position of a record that had no known schema in its batch."""

    topic: str
    partition: int
    offset: int
    batch_id: int


@dataclass(frozen=True)
class DeadLetter:
    """A failed record as it was read from Kafka, with the failing stage and the reason.

    `item`: the index of the event in the record, whose value is then that event; -1 for a whole record.
    `only_table`: the only table that lacks the event, where others have it; else ''.
    `replayed`: this attempt was sent again.
    `*_ms` are milliseconds since 1970, `expires_at` is in seconds since 1970.
    """

    checkpoint_id: str
    batch_id: int
    batch_time_ms: int
    topic: str
    partition: int
    offset: int
    item: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    stage: str
    reason: str
    only_table: str
    attempt: int
    origin_batch_time_ms: int
    origin_topic: str
    origin_partition: int
    origin_offset: int
    origin_item: int
    passed_dedup: bool
    expires_at: int
    replayed: bool

    @property
    def position(self) -> str:
        """The position as text: topic/partition/offset, and the item of an event."""
        item = "" if self.item == WHOLE_RECORD else f"/{self.item}"
        return f"{self.topic}/{self.partition}/{self.offset}{item}"

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> "DeadLetter":
        """Return the dead letter of a result row whose columns are `DEAD_LETTER_COLUMNS`; bytes come as base64 text."""
        values = dict(zip(cls.__dataclass_fields__, row, strict=True))
        headers = tuple(
            (_decoded(name).decode(errors="replace"), _decoded_or_none(value)) for name, value in values["headers"]
        )
        return cls(**{
            **values, "key": _decoded_or_none(values["key"]), "value": _decoded_or_none(values["value"]),
            "headers": headers,
            "passed_dedup": bool(values["passed_dedup"]), "replayed": bool(values["replayed"]),
        })  # fmt: skip


# What is selected from `dead_letters_query` for a `DeadLetter`, in the order of its fields.
DEAD_LETTER_COLUMNS = tuple(
    _READ_AS.get(name.removesuffix("_ms"), name.removesuffix("_ms")) for name in DeadLetter.__dataclass_fields__
)
_ORDER_IN_BATCH = ("topic", "partition", "offset", "item", "only_table")
# The order of dead letters of several checkpoints, and that of one checkpoint, which is that of its batches also where
# the driver's clock was set back between two of them.
ORDER_BY_TIME = ("batch_time", *_ORDER_IN_BATCH)
ORDER_BY_BATCH = ("batch_id", *_ORDER_IN_BATCH)


def dead_letters_query(database: str) -> str:
    """Return the SELECT of a pipeline's dead letters that have neither expired nor been purged.

    Left out are those of batches that are not in the ledger: of a batch that is being written, whose tasks write them
    in any order, and of one that was given up. Columns out: those of the table, and `replayed`: whether this attempt
    was sent again. Query parameter: `pipeline`.
    """
    # A replay's mark has the attempt that the replay begins. The sum is wider than the column, so it is converted back.
    origin = "origin_batch_time, origin_topic, origin_partition, origin_offset, origin_item, only_table"
    next_attempt = f"(checkpoint_id, {origin}, toUInt16(attempt + 1))"
    return (
        f"SELECT *, {next_attempt} IN ({replayed_attempts_query(database)}) AS replayed "
        f"FROM {DEAD_LETTERS.full_name(database)} WHERE pipeline_id = {{pipeline:String}} AND expires_at > now() "
        f"AND (checkpoint_id, batch_time) IN ({batches_with_dead_letters_query(database)}) "
        f"AND ({DEAD_LETTER_ID}) NOT IN ({purged_ids_query(database, '{pipeline:String}')})"
    )


def insert_dead_letters(inserter: Inserter, database: str, dead_letters: pa.Table, token: Token) -> None:
    """Insert a block of dead letters under its insert token; raises what `Inserter.insert` raises."""
    DEAD_LETTERS.insert(inserter, database, dead_letters, token)


def delete_purged(client: Client, database: str, pipeline_id: str) -> None:
    """Delete the dead letters that are marked as purged, and wait for the mutation.

    Raises `AccessDenied` with the statement to run where the user may not delete.
    """
    # The id is part of the statement, so that somebody else can run it.
    pipeline = quote_text(pipeline_id)
    execute(
        client,
        f"ALTER TABLE {DEAD_LETTERS.full_name(database)} DELETE WHERE pipeline_id = {pipeline} "
        f"AND ({DEAD_LETTER_ID}) IN ({purged_ids_query(database, pipeline)}) SETTINGS mutations_sync = 1",
    )


def read_refused_by_server(client: Client, database: str, pipeline_id: str, checkpoint_id: str) -> list[RefusedEvent]:
    """Return each event whose row ClickHouse may have rejected.

    Of an earlier checkpoint none: where this one has read the same records, their rows are in the table unless it has
    refused them, too. Purged dead letters are included: their stage is no longer known.
    """
    of_pipeline = "WHERE pipeline_id = {pipeline:String} AND toString(checkpoint_id) = {checkpoint:String}"
    names = "toString(topic), partition, offset, item, toString(only_table), toUnixTimestamp64Milli(batch_time)"
    rows = fetch(
        client,
        f"SELECT {names} FROM {DEAD_LETTERS.full_name(database)} {of_pipeline} "
        f"AND stage = {quote_text(INSERT_STAGE)} "
        f"UNION DISTINCT SELECT {names} FROM {PURGES.full_name(database)} {of_pipeline}",
        {"pipeline": pipeline_id, "checkpoint": checkpoint_id},
    )
    return [RefusedEvent(*row) for row in rows]


def read_undecoded(client: Client, database: str, pipeline_id: str, checkpoint_id: str) -> list[UndecodedRecord]:
    """Return each record whose schema, or its key's, the registry did not know then.

    By now the registry may know the schema, but in this checkpoint the record has stayed a dead letter.
    """
    rows = fetch(
        client,
        f"SELECT topic, partition, offset, batch_id FROM {DEAD_LETTERS.full_name(database)} "
        "WHERE pipeline_id = {pipeline:String} AND toString(checkpoint_id) = {checkpoint:String} AND stage = 'decode' "
        "AND (startsWith(reason, {of_value:String}) OR startsWith(reason, {of_key:String}))",
        {
            "pipeline": pipeline_id,
            "checkpoint": checkpoint_id,
            "of_value": UNKNOWN_SCHEMA,
            "of_key": UNKNOWN_SCHEMA_OF_KEY,
        },
    )
    return [UndecodedRecord(*row) for row in rows]


def _decoded_or_none(text: str | None) -> bytes | None:
    return None if text is None else _decoded(text)


def _decoded(text: str) -> bytes:
    """Decode a value that ClickHouse returned as Base64."""
    return base64.b64decode(text)
