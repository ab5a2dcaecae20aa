"""A pipeline without Spark: records go to Kafka, rows and ledger to ClickHouse, as the stream would have done it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from glassflow_dagster.bookkeeping.ledger import Outcomes
from glassflow_dagster.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.clickhouse.client import connect
from glassflow_dagster.clickhouse.queries import execute
from glassflow_dagster.clickhouse.target.prepare import prepare_target
from glassflow_dagster.config.load import load_pipeline
from glassflow_dagster.verification import wait_until_stable
from tests.verification.batches import Batches

PIPELINES = Path(__file__).parents[2] / "pipelines"

DEFINITION = """
version: v3
pipeline_id: {name}
sources:
  - type: kafka
    source_id: events
    connection_params: {{brokers: ["127.0.0.1:1"]}}
    topic: {name}
    schema_fields: {fields}
transforms:
  - {{type: dedup, source_id: events, config: {dedup}}}
sink:
  type: clickhouse
  connection_params: {{host: 127.0.0.1, port: 1, database: {name}, username: default}}
  table: events
  mapping: {mapping}
  create_table: {create_table}
"""
FIELDS = "[{name: id, type: string}]"
DEDUP = "{key: id, time_window: 10m}"
BATCH_TIME = "{name: _batch_time, column_name: came, column_type: DateTime64(3)}"


@dataclass
class Pipeline(Batches):
    """A pipeline of one topic."""

    offset: int = 0

    @property
    def table(self) -> str:
        return ".".join(self.config.sink.full_table)

    def send(self, *ids: str) -> None:
        """Put records into Kafka that no batch reads."""
        producer = Producer({"bootstrap.servers": self.config.source.connection_params.brokers[0]})
        for key in ids:
            producer.produce(self.config.source.topic, f'{{"id": "{key}"}}', partition=0)
        assert producer.flush(30) == 0

    def batch(self, *written: str, duplicates: int = 0, ago: float = 0.0, read: int | None = None) -> None:
        """Run a batch that began `ago` seconds ago: send, write rows, write the ledger."""
        records = len(written) + duplicates
        self.send(*written, *(["again"] * duplicates))
        batch_time_ms = round((time.time() - ago) * 1000)
        columns: dict[str, Any] = {"id": list(written)}
        if any(mapping.name == "_batch_time" for mapping in self.config.sink.mapping):
            columns["came"] = pa.array([batch_time_ms] * len(written), pa.timestamp("ms", "UTC"))
        self.insert(*self.config.sink.full_table, pa.table(columns))
        offsets = {self.config.source.topic: {0: (self.offset, self.offset + records)}}
        outcomes = Outcomes(read=records if read is None else read, written=len(written), duplicates=duplicates)
        self.close_batch(batch_time_ms, offsets, outcomes)
        self.offset += records

    def execute(self, statement: str) -> None:
        """Do something to the table by hand; `{table}` stands for its name."""
        execute(self.client, statement.format(table=self.table))


@pytest.fixture
def new_pipeline(stack: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pipeline]:
    """Make a pipeline with a topic and database of its own; its table is plain and has the batch time unless told."""
    # Nothing is under way in these tests: what does not fit at once never will.
    monkeypatch.setattr(wait_until_stable, "STILL_SECONDS", 0.0)

    def create(
        create_table: str = "{order_by: id}", extra: str = BATCH_TIME, dedup: str = DEDUP, fields: str = FIELDS
    ) -> Pipeline:
        name = f"test_{uuid4().hex}"
        mapping = ", ".join(["{name: id, column_name: id, column_type: String}", *([extra] if extra else [])])
        file = tmp_path / f"{name}.yaml"
        file.write_text(
            DEFINITION.format(name=name, mapping=f"[{mapping}]", create_table=create_table, dedup=dedup, fields=fields)
        )
        config = load_pipeline(file, stack.environment)
        admin = AdminClient({"bootstrap.servers": stack.kafka})
        for future in admin.create_topics([NewTopic(name, 1, 1)]).values():
            future.result()
        client = connect(config.sink.connection_params)
        prepare_target(client, config, create=True)
        ensure_bookkeeping(client, name)
        return Pipeline(config, client)

    return create
