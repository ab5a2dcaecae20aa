"""Rows of the dead letter table, from what is known of a refused record; runs in Spark's Python workers.

A record that was refused on its way brings its raw bytes along. Of a row that only the server refused they were
dropped long before: such records are read from Kafka once more, by their place.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from glassflow_dagster.kafka.records import Place, Record
from glassflow_dagster.kafka.replays import Header, read_replay, without_replay

INSERT_STAGE = "insert"

_HEADERS_TYPE = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
_TIME_TYPE = pa.timestamp("ms", "UTC")

# What tells a record and its fault: columns that every letter has, before its origin is known.
RAW_SCHEMA = pa.schema([
    ("topic", pa.string()),
    ("partition", pa.uint32()),
    ("offset", pa.uint64()),
    ("timestamp", _TIME_TYPE),
    ("key", pa.binary()),
    ("value", pa.binary()),
    ("headers", _HEADERS_TYPE),
    ("stage", pa.string()),
    ("reason", pa.string()),
    ("passed_dedup", pa.bool_()),
])  # fmt: skip


@dataclass(frozen=True)
class Refused:
    """A row that was refused when its record's bytes had gone: where the record is, and what the row was, as JSON."""

    place: Place
    stage: str
    reason: str
    row: bytes


@dataclass(frozen=True)
class LetterBook:
    """What all dead letters of a batch have in common. `expires_at` is in seconds since 1970.

    tokens: what tells the checkpoint's insert tokens from those of another one.
    """

    pipeline_id: str
    incarnation: str
    tokens: str
    batch_id: int
    batch_time_ms: int
    replay_topic: str
    expires_at: int

    @property
    def token(self) -> str:
        """What the tokens of all the batch's inserts begin with."""
        return f"{self.pipeline_id}/{self.tokens}/{self.batch_id}"

    def letters(self, raw: pa.Table) -> pa.Table:
        """Make rows of the dead letter table, in the order of the refused records.

        Columns in: topic, partition, offset, timestamp, key, value, headers (LIST<STRUCT<name, value>>), stage,
        reason and passed_dedup. Columns out: those of `DEAD_LETTER_COLUMNS`. A record of the replay topic gets the
        origin and the attempt that its headers tell, and is rid of those headers.
        """
        raw = raw.select(RAW_SCHEMA.names).cast(RAW_SCHEMA)
        count = raw.num_rows
        return pa.table({
            "pipeline_id": pa.repeat(self.pipeline_id, count),
            "incarnation": pa.repeat(self.incarnation, count),
            "batch_id": pa.repeat(pa.scalar(self.batch_id, pa.uint64()), count),
            "batch_time": pa.repeat(pa.scalar(self.batch_time_ms, _TIME_TYPE), count),
            **{name: raw.column(name) for name in RAW_SCHEMA.names if name != "passed_dedup"},
            **self._origins(raw),
            "expires_at": pa.repeat(pa.scalar(self.expires_at, pa.uint32()), count),
        })  # fmt: skip

    def _origins(self, raw: pa.Table) -> dict[str, Any]:
        origins: dict[str, Any] = {
            "attempt": pa.repeat(pa.scalar(0, pa.uint16()), raw.num_rows),
            "origin_topic": raw.column("topic"),
            "origin_partition": raw.column("partition"),
            "origin_offset": raw.column("offset"),
            "passed_dedup": raw.column("passed_dedup"),
        }
        if not pc.any(pc.equal(raw.column("topic"), self.replay_topic)).as_py():
            return origins
        # Few records are ever sent again: these are looked at one by one.
        columns = {
            name: pa.chunked_array(found).to_pylist() if isinstance(found, pa.Array) else found.to_pylist()
            for name, found in origins.items()
        }
        columns["headers"] = []
        pairs = zip(raw.column("topic").to_pylist(), raw.column("headers").to_pylist(), strict=True)
        for row, (topic, entries) in enumerate(pairs):
            headers: list[Header] = [(entry["name"], entry["value"]) for entry in entries or ()]
            replay = read_replay(headers) if topic == self.replay_topic else None
            if replay is not None and replay.incarnation == self.incarnation:
                headers = without_replay(headers)
                columns["attempt"][row] = replay.attempt
                columns["origin_topic"][row] = replay.topic
                columns["origin_partition"][row] = replay.partition
                columns["origin_offset"][row] = replay.offset
                columns["passed_dedup"][row] |= replay.passed_dedup
            columns["headers"].append([{"name": name, "value": value} for name, value in headers])
        types = {"attempt": pa.uint16(), "origin_topic": pa.string(), "origin_partition": pa.uint32(),
                 "origin_offset": pa.uint64(), "passed_dedup": pa.bool_(), "headers": _HEADERS_TYPE}  # fmt: skip
        return {name: pa.array(column, types[name]) for name, column in columns.items()}


def letters_of_rows(rows: Sequence[Refused], found: Mapping[Place, Record]) -> pa.Table:
    """Put together what is known of refused rows; columns as `LetterBook.letters` takes them.

    found: the records that Kafka still has; of another one the row stands in the value, and the reason says so.
    """
    letters = []
    for row in rows:
        record = found.get(row.place)
        gone = f"{row.reason}; Kafka no longer has the record: value is the row, as JSON"
        letters.append({
            **row.place._asdict(),
            "timestamp": (record.timestamp_ms if record else None) or 0,
            "key": record.key if record else None,
            "value": record.value if record else row.row,
            "headers": [{"name": name, "value": value} for name, value in record.headers] if record else [],
            "stage": row.stage,
            "reason": row.reason if record else gone,
            "passed_dedup": True,
        })  # fmt: skip
    return pa.Table.from_pylist(letters, schema=RAW_SCHEMA)
