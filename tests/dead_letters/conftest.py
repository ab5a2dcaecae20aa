"""A pipeline without Spark, whose dead letters the tests write as its stream would."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from glassflow_dagster.bookkeeping.dead_letters import DEAD_LETTERS
from glassflow_dagster.bookkeeping.ledger import Outcomes
from glassflow_dagster.bookkeeping.schema import NEVER
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.dead_letters.store import DeadLetterStore
from glassflow_dagster.kafka.records import Record, read_to_end
from glassflow_dagster.kafka.replay_headers import WHOLE_RECORD
from glassflow_dagster.streaming.delivery.dead_letter_rows import DeadLetterBatch
from tests.verification.batches import Batches
from tests.verification.conftest import Pipeline, new_pipeline

__all__ = ["new_pipeline"]

_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


@dataclass
class DeadLetterPipeline(Batches):
    """A pipeline whose batches consist of dead letters only."""

    @property
    def store(self) -> DeadLetterStore:
        """Open the pipeline's dead letter store."""
        return DeadLetterStore.open(self.config)

    def batch(self, *values: bytes | None, stage: str = "decode", expires_at: int = NEVER, **changes: Any) -> None:
        """Write a batch with a dead letter for each value; `changes` set columns of all its dead letters."""
        count, topic = len(values), self.config.source.topic
        batch_time_ms = round(time.time() * 1000) + self.batches
        raw: dict[str, Any] = {
            "topic": [topic] * count,
            "partition": [0] * count,
            "offset": list(range(100 * self.batches, 100 * self.batches + count)),
            "timestamp": pa.array([1_700_000_000_000] * count, pa.timestamp("ms", "UTC")),
            "key": pa.array([b"k\xff"] * count),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array([[{"name": "h", "value": None}]] * count, _HEADERS),
            "stage": [stage] * count,
            "reason": [f"invalid JSON: byte {index}" for index in range(count)],
            "item": [WHOLE_RECORD] * count,
            "only_table": [""] * count,
            "passed_dedup": [stage == "insert"] * count,
        }
        names = self.config.pipeline_id, self.checkpoint_id, self.checkpoint_id
        batch = DeadLetterBatch(*names, self.batches, batch_time_ms, "-", expires_at)
        dead_letters = batch.rows(pa.table(raw))
        for name, value in changes.items():
            dead_letters = dead_letters.set_column(
                dead_letters.column_names.index(name), name, pa.array([value] * count)
            )
        self.insert(self.database, DEAD_LETTERS.name, dead_letters)
        offsets = {topic: {0: (100 * self.batches, 100 * (self.batches + 1))}}
        self.close_batch(batch_time_ms, offsets, Outcomes(read=count, records=count, dead_letters=count), expires_at)

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
