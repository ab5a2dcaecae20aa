"""Batches of a checkpoint without Spark: blocks and the ledger's rows, as the stream would have written them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.ddl import NEVER
from glassflow_dagster.clickhouse.inserts import Inserter
from glassflow_dagster.clickhouse.ledger import LedgerRow, Outcomes, insert_ledger_row
from glassflow_dagster.config.model import PipelineConfig

_INSERT_SECONDS = 30


@dataclass
class Batches:
    """What a driver would keep in mind; `batches` is the number of the one that is under way."""

    config: PipelineConfig
    client: Client
    incarnation: str = field(default_factory=lambda: str(uuid4()))
    batches: int = 0

    @property
    def database(self) -> str:
        return self.config.sink.connection_params.database

    def insert(self, database: str, table: str, block: pa.Table) -> None:
        """Write a block of the batch that is under way, its only one in that table."""
        self._inserter.insert(database, table, block, self._token)

    def close_batch(
        self,
        batch_time_ms: int,
        offsets: Mapping[str, Mapping[int, tuple[int, int]]],
        outcomes: Outcomes,
        dead_letters_expire_at: int = NEVER,
    ) -> None:
        """Write the batch's row of the ledger."""
        row = LedgerRow(
            pipeline_id=self.config.pipeline_id,
            incarnation=self.incarnation,
            batch_id=self.batches,
            batch_time_ms=batch_time_ms,
            definition="d",
            offsets=offsets,
            rows_before=0,
            outcomes=outcomes,
            blocks=1,
            bytes=1,
            dead_letters_expire_at=dead_letters_expire_at,
        )
        insert_ledger_row(self._inserter, self.database, row, f"{self._token}/ledger")
        self.batches += 1

    @property
    def _inserter(self) -> Inserter:
        return Inserter(self.client, _INSERT_SECONDS, print)

    @property
    def _token(self) -> str:
        return f"{self.incarnation}/{self.batches}"
