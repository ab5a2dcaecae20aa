"""Rows of the dead letter table, from what is known of a refused record; runs in Spark's Python workers.

A record that was refused on its way brings its raw bytes along. Of a row that only the server refused they were
dropped long before: such records are read from Kafka once more, by their place.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from glassflow_dagster.bookkeeping.dead_letters import RAW_SCHEMA, SCHEMA
from glassflow_dagster.clickhouse.inserts.tokens import Token
from glassflow_dagster.kafka.records import Record, RecordPosition
from glassflow_dagster.kafka.replay_headers import Header, read_replay, without_replay


@dataclass(frozen=True)
class Refused:
    """A row that was refused when its record's bytes had gone: where the record is, and what the row was, as JSON."""

    place: RecordPosition
    stage: str
    reason: str
    row: bytes


@dataclass(frozen=True)
class DeadLetterBatch:
    """What all dead letters of a batch have in common. `expires_at` is in seconds since 1970.

    token_prefix: what tells the checkpoint's insert tokens from those of another one.
    """

    pipeline_id: str
    checkpoint_id: str
    token_prefix: str
    batch_id: int
    batch_time_ms: int
    replay_topic: str
    expires_at: int

    def token(self, position: Iterable[int]) -> Token:
        """Return the token of the batch's block whose first record is at a position."""
        return Token.of_block(self.pipeline_id, self.token_prefix, self.batch_id, position)

    def letters(self, raw: pa.Table) -> pa.Table:
        """Make rows of the dead letter table, in the order of the refused records.

        Columns in: topic, partition, offset, timestamp, key, value, headers (LIST<STRUCT<name, value>>), stage,
        reason and passed_dedup. Columns out: those of `DEAD_LETTERS`. A record of the replay topic gets the
        origin and the attempt that its headers tell, and is rid of those headers.
        """
        raw = raw.select(RAW_SCHEMA.names).cast(RAW_SCHEMA)
        count = raw.num_rows
        common = {
            "pipeline_id": self.pipeline_id,
            "checkpoint_id": self.checkpoint_id,
            "batch_id": self.batch_id,
            "batch_time": self.batch_time_ms,
            "expires_at": self.expires_at,
        }
        repeated = {name: pa.repeat(pa.scalar(value, SCHEMA.field(name).type), count) for name, value in common.items()}
        known = {name: raw.column(name) for name in RAW_SCHEMA.names}
        return pa.table({**repeated, **known, **self._origins(raw)}, schema=SCHEMA)

    def _origins(self, raw: pa.Table) -> dict[str, Any]:
        origins: dict[str, Any] = {
            "attempt": pa.repeat(pa.scalar(0, SCHEMA.field("attempt").type), raw.num_rows),
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
            if replay is not None and replay.checkpoint_id == self.checkpoint_id:
                headers = without_replay(headers)
                columns["attempt"][row] = replay.attempt
                columns["origin_topic"][row] = replay.topic
                columns["origin_partition"][row] = replay.partition
                columns["origin_offset"][row] = replay.offset
                columns["passed_dedup"][row] |= replay.passed_dedup
            columns["headers"].append([{"name": name, "value": value} for name, value in headers])
        return {name: pa.array(column, SCHEMA.field(name).type) for name, column in columns.items()}


def dead_letters_of_rows(rows: Sequence[Refused], found: Mapping[RecordPosition, Record]) -> pa.Table:
    """Put together what is known of refused rows; columns as `DeadLetterBatch.letters` takes them.

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
