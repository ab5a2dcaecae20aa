"""A pipeline without Spark, whose dead letters the tests write as its stream would."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.dead_letter_table import DEAD_LETTERS
from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes
from glassflow_dagster.stores.bookkeeping.schema import NEVER
from glassflow_dagster.stores.dead_letters.store import DeadLetterStore
from glassflow_dagster.stores.kafka.records import Record, read_to_end
from glassflow_dagster.stores.kafka.replay_headers import WHOLE_RECORD
from glassflow_dagster.stream.delivery.dead_letter_rows import DeadLetterBatch
from tests.checks.batches import Batches
from tests.checks.conftest import Pipeline, new_pipeline

__all__ = ["new_pipeline"]

_TIMESTAMP = 1_700_000_000_000  # of all records, in milliseconds since 1970
_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


@dataclass
class DeadLetterPipeline(Batches):
    """A pipeline whose batches consist of dead letters only. open_batches: those that have no row in the ledger."""

    open_batches: int = 0

    @property
    def store(self) -> DeadLetterStore:
        """Open the pipeline's dead letter store."""
        return DeadLetterStore.open(self.config)

    def batch(
        self,
        *values: bytes | None,
        stage: str = "decode",
        expires_at: int = NEVER,
        first: int | None = None,
        partition: int = 0,
        at: int | None = None,
        is_open: bool = False,
        **changes: Any,
    ) -> None:
        """Write a batch with a dead letter for each value; `changes` set columns of all its dead letters.

        first: the offset of the first one; None for one that no batch has had. at: the batch's time, None for now.
        is_open: leave the batch without its row in the ledger.
        """
        first = 100 * self.batches if first is None else first
        topic = self.config.source.topic
        records = [
            Record(topic, partition, offset, _TIMESTAMP, b"k\xff", value, (("h", None),))
            for offset, value in enumerate(values, first)
        ]
        self._write(records, stage, at=at, expires_at=expires_at, is_open=is_open, **changes)

    def batch_of_replays(self, *indexes: int, stage: str = "decode") -> None:
        """Write a batch that reads these records of the replay topic, of which each fails again."""
        records = self.topic()
        self._write([records[index] for index in indexes], stage)

    def _write(
        self,
        records: Sequence[Record],
        stage: str,
        *,
        at: int | None = None,
        expires_at: int = NEVER,
        is_open: bool = False,
        **changes: Any,
    ) -> None:
        """Write a batch with a dead letter for each record; the rest is as for `batch`."""
        count = len(records)
        batch_time_ms = round(time.time() * 1000) + self.batches if at is None else at
        headers = [[{"name": name, "value": value} for name, value in record.headers] for record in records]
        raw: dict[str, Any] = {
            "topic": [record.topic for record in records],
            "partition": [record.partition for record in records],
            "offset": [record.offset for record in records],
            "timestamp": [_TIMESTAMP] * count,
            "key": pa.array([record.key for record in records], pa.binary()),
            "value": pa.array([record.value for record in records], pa.binary()),
            "headers": pa.array(headers, _HEADERS),
            "stage": [stage] * count,
            "reason": [f"invalid JSON: byte {index}" for index in range(count)],
            "item": [WHOLE_RECORD] * count,
            "only_table": [""] * count,
            "passed_dedup": [stage == "insert"] * count,
        }
        names = self.config.pipeline_id, self.checkpoint_id, self.checkpoint_id
        batch = DeadLetterBatch(*names, self.batches, batch_time_ms, self.config.replay_topic, expires_at)
        dead_letters = batch.rows(pa.table(raw))
        for name, value in changes.items():
            field = dead_letters.schema.field(name)
            dead_letters = dead_letters.set_column(
                dead_letters.column_names.index(name), field, pa.array([value] * count, field.type)
            )
        self.insert(self.database, DEAD_LETTERS.name, dead_letters)
        if is_open:
            self.open_batches += 1
            return
        first = records[0]
        offsets = {first.topic: {first.partition: (first.offset, first.offset + 100)}}
        self.close_batch(batch_time_ms, offsets, Outcomes(read=count, records=count, dead_letters=count), expires_at)

    @property
    def _name(self) -> str:
        # A batch that follows one that was given up has its number, but not its tokens.
        return f"{super()._name}/{self.open_batches}"

    def start_new_checkpoint(self) -> None:
        """Continue with a new checkpoint."""
        self.checkpoint_id, self.batches = str(uuid4()), self.batches + 1

    def topic(self, isolation: str = "read_committed") -> list[Record]:
        """Read all records of the replay topic."""
        return list(read_to_end(self.config.source.connection_params, self.config.replay_topic, 0, 0, isolation))

    def with_limit(self, attempts: int) -> PipelineConfig:
        """Return the definition with this limit for the attempts to replay a dead letter."""
        dead_letters = self.config.dead_letters.model_copy(update={"max_attempts": attempts})
        return self.config.model_copy(update={"dead_letters": dead_letters})


@pytest.fixture
def pipeline(new_pipeline: Callable[..., Pipeline]) -> DeadLetterPipeline:
    made = new_pipeline()
    return DeadLetterPipeline(made.config, made.client)
