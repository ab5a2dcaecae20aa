"""A pipeline without Spark: tests send records to Kafka, and write rows and ledger to ClickHouse as a stream would."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from glassflow_dagster.checks import wait_until_stable
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.queries import execute
from glassflow_dagster.stores.clickhouse.tables.prepare import prepare_target
from tests.checks.batches import Batches
from tests.support import definition as v3
from tests.support.sending import send

PIPELINES = Path(__file__).parents[2] / "pipelines"

FIELDS = v3.fields(id="string")
DEDUP = v3.dedup("events", "id", time_window="10m")
BATCH_TIME = v3.mapping("_batch_time", "DateTime64(3)", "came")


@dataclass
class Pipeline(Batches):
    """A pipeline of one topic."""

    offset: int = 0

    @property
    def table(self) -> str:
        return ".".join(self.config.sink.full_table)

    def send(self, *ids: str) -> None:
        """Send records to Kafka that no batch reads."""
        source = self.config.source
        send(source.connection_params.brokers[0], source.topic, [f'{{"id": "{key}"}}' for key in ids], partition=0)

    def batch(self, *written: str, duplicates: int = 0, ago: float = 0.0, read: int | None = None) -> None:
        """Run a batch that began `ago` seconds ago: send records, write rows and the ledger row."""
        records = len(written) + duplicates
        self.send(*written, *(["again"] * duplicates))
        batch_time_ms = round((time.time() - ago) * 1000)
        columns: dict[str, Any] = {"id": list(written)}
        if any(mapping.name == "_batch_time" for mapping in self.config.sink.mapping):
            columns["came"] = pa.array([batch_time_ms] * len(written), pa.timestamp("ms", "UTC"))
        self.insert(*self.config.sink.full_table, pa.table(columns))
        offsets = {self.config.source.topic: {0: (self.offset, self.offset + records)}}
        count = records if read is None else read
        outcomes = Outcomes(read=count, records=count, written=len(written), duplicates=duplicates)
        self.close_batch(batch_time_ms, offsets, outcomes)
        self.offset += records

    def execute(self, statement: str) -> None:
        """Run a statement; `{table}` stands for the table's name."""
        execute(self.client, statement.format(table=self.table))


@pytest.fixture
def new_pipeline(stack: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pipeline]:
    """Return a function that creates a pipeline with its own topic and database, by default with a plain table."""
    # No batch is in progress in these tests, so figures that differ never become equal.
    monkeypatch.setattr(wait_until_stable, "STILL_SECONDS", 0.0)

    def create(
        table: Mapping[str, Any] = MappingProxyType({"order_by": "id"}),
        extra: dict[str, Any] | None = BATCH_TIME,
        dedup: dict[str, Any] = DEDUP,
        fields: Sequence[dict[str, Any]] = FIELDS,
    ) -> Pipeline:
        name = f"test_{uuid4().hex}"
        columns = [v3.mapping("id", "String"), *([extra] if extra else [])]
        sink = v3.sink(columns, v3.clickhouse(database=name), table="events", create_table=dict(table))
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(v3.definition(name, v3.source("events", fields, topic=name), sink, dedup)))
        config = load_pipeline(file, stack.environment)
        admin = AdminClient({"bootstrap.servers": stack.kafka})
        for future in admin.create_topics([NewTopic(name, 1, 1)]).values():
            future.result()
        client = connect(config.sink.connection_params)
        prepare_target(client, config, create=True)
        ensure_bookkeeping(client, name)
        return Pipeline(config, client)

    return create
