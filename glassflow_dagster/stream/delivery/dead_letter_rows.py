"""Builds rows of the dead letter table; runs in Spark's Python workers.

A record that a stage made a dead letter still has its raw bytes. A row that only the server refused does not, as a
record's raw bytes are dropped once it is mapped: such records are read from Kafka again, by their position.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from glassflow_dagster.stores.bookkeeping.dead_letter_table import RAW_SCHEMA, SCHEMA
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.kafka.records import Record, RecordPosition
from glassflow_dagster.stores.kafka.replay_headers import WHOLE_RECORD, Header, read_replay, without_replay


@dataclass(frozen=True)
class DeadLetterWithoutRaw:
    """A dead letter whose record's raw bytes are gone, so that the record must be read from Kafka again.

    position: the record's position in Kafka.
    row: the refused row as JSON, used when Kafka no longer has the record.
    item, event: of an event that is one of many in its record, its index and its value, which takes the place of the
        record's.
    only_table: the column of that name.
    """

    position: RecordPosition
    stage: str
    reason: str
    row: bytes
    item: int = WHOLE_RECORD
    event: bytes | None = None
    only_table: str = ""


@dataclass(frozen=True)
class DeadLetterBatch:
    """The values that all dead letters of a batch share; builds their rows.

    token_prefix: the part of insert tokens that identifies the checkpoint.
    expires_at: seconds since 1970.
    """

    pipeline_id: str
    checkpoint_id: str
    token_prefix: str
    batch_id: int
    batch_time_ms: int
    replay_topic: str
    expires_at: int

    def token(self, position: Iterable[int]) -> Token:
        """Return the insert token of the batch's block whose first record is at a position."""
        return Token.of_block(self.pipeline_id, self.token_prefix, self.batch_id, position)

    def rows(self, raw: pa.Table) -> pa.Table:
        """Build rows of the dead letter table, in the order of the records.

        Columns in (`RAW_SCHEMA`): topic, partition, offset, timestamp, key, value, headers (LIST<STRUCT<name, value>>),
        stage, reason, item, only_table and passed_dedup. Columns out: those of `DEAD_LETTERS`. For a record of the
        replay topic, origin and attempt are read from its replay headers, and these headers are removed.
        """
        raw = raw.select(RAW_SCHEMA.names).cast(RAW_SCHEMA)
        count = raw.num_rows
        batch_values = {
            "pipeline_id": self.pipeline_id,
            "checkpoint_id": self.checkpoint_id,
            "batch_id": self.batch_id,
            "batch_time": self.batch_time_ms,
            "expires_at": self.expires_at,
        }
        batch_columns = {
            name: pa.repeat(pa.scalar(value, SCHEMA.field(name).type), count) for name, value in batch_values.items()
        }
        record_columns = {name: raw.column(name) for name in RAW_SCHEMA.names}
        # The last ones win: for replayed records, `_origins` changes headers and passed_dedup.
        return pa.table({**batch_columns, **record_columns, **self._origins(raw)}, schema=SCHEMA)

    def _origins(self, raw: pa.Table) -> dict[str, Any]:
        """Return the columns of the origin (origin_*), attempt, only_table and passed_dedup.

        A record is its own origin, with attempt 0. For a replay of this checkpoint's dead letter, the replay headers
        name both; passed_dedup is then also true if the first reading had passed deduplication. With records of the
        replay topic the column headers is returned, too, without these replay headers. raw: columns of `RAW_SCHEMA`.
        """
        origins: dict[str, Any] = {
            "attempt": pa.repeat(pa.scalar(0, SCHEMA.field("attempt").type), raw.num_rows),
            "origin_batch_time": pa.repeat(
                pa.scalar(self.batch_time_ms, SCHEMA.field("origin_batch_time").type), raw.num_rows
            ),
            "origin_topic": raw.column("topic"),
            "origin_partition": raw.column("partition"),
            "origin_offset": raw.column("offset"),
            "origin_item": raw.column("item"),
            "only_table": raw.column("only_table"),
            "passed_dedup": raw.column("passed_dedup"),
        }
        if not pc.any(pc.equal(raw.column("topic"), self.replay_topic)).as_py():
            return origins
        # Few records are ever replayed, so a loop over rows is fast enough.
        columns = {name: values.to_pylist() for name, values in origins.items()}
        columns["origin_batch_time"] = [self.batch_time_ms] * raw.num_rows
        columns["headers"] = []
        pairs = zip(raw.column("topic").to_pylist(), raw.column("headers").to_pylist(), strict=True)
        for row, (topic, entries) in enumerate(pairs):
            headers: list[Header] = [(entry["name"], entry["value"]) for entry in entries or ()]
            replay = read_replay(headers) if topic == self.replay_topic else None
            if replay is not None and replay.checkpoint_id == self.checkpoint_id:
                headers = without_replay(headers)
                columns["attempt"][row] = replay.attempt
                columns["origin_batch_time"][row] = replay.batch_time_ms
                columns["origin_topic"][row] = replay.topic
                columns["origin_partition"][row] = replay.partition
                columns["origin_offset"][row] = replay.offset
                if replay.item != WHOLE_RECORD:
                    columns["origin_item"][row] = replay.item
                if replay.only_table:
                    columns["only_table"][row] = replay.only_table
                columns["passed_dedup"][row] |= replay.passed_dedup
            columns["headers"].append([{"name": name, "value": value} for name, value in headers])
        return {name: pa.array(column, SCHEMA.field(name).type) for name, column in columns.items()}


def dead_letters_of_rows(rows: Sequence[DeadLetterWithoutRaw], records: Mapping[RecordPosition, Record]) -> pa.Table:
    """Combine rows that could not be written with their records from Kafka; columns out: those of `RAW_SCHEMA`.

    records: the records that Kafka still has, by position. Where a record is gone, the dead letter's value is the row
    as JSON, and its reason says so; one of many events in a record has its value with it. These rows failed after
    deduplication had accepted them, hence `passed_dedup`.
    """
    dead_letters = []
    for row in rows:
        record = records.get(row.position)
        reason_if_gone = f"{row.reason}; Kafka no longer has the record: value is the row, as JSON"
        has_value = record is not None or row.event is not None
        dead_letters.append({
            **row.position._asdict(),
            "item": row.item,
            "only_table": row.only_table,
            # 0, as the column cannot be NULL, where Kafka no longer has the record, or it has no timestamp.
            "timestamp": (record.timestamp_ms if record else None) or 0,
            "key": record.key if record else None,
            "value": row.event if row.event is not None else record.value if record else row.row,
            "headers": [{"name": name, "value": value} for name, value in record.headers] if record else [],
            "stage": row.stage,
            "reason": row.reason if has_value else reason_if_gone,
            "passed_dedup": True,
        })  # fmt: skip
    return pa.Table.from_pylist(dead_letters, schema=RAW_SCHEMA)
