"""Batches of a checkpoint without Spark: blocks and ledger rows as the stream would write them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import uuid4

import pyarrow as pa
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.ledger import LedgerRow, insert_ledger_row
from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes
from glassflow_dagster.stores.bookkeeping.schema import NEVER
from glassflow_dagster.stores.clickhouse.inserts.block import ArrowBlock
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token

_INSERT_SECONDS = 30


@dataclass
class Batches:
    """The state that a driver would keep; `batches` is the id of the current batch."""

    config: PipelineConfig
    client: Client
    checkpoint_id: str = field(default_factory=lambda: str(uuid4()))
    batches: int = 0

    @property
    def database(self) -> str:
        return self.config.sink.connection_params.database

    def insert(self, database: str, table: str, block: pa.Table) -> None:
        """Write the current batch's only block of a table."""
        self._inserter.insert(database, table, ArrowBlock(block), Token(self._name))

    def close_batch(
        self,
        batch_time_ms: int,
        offsets: Mapping[str, Mapping[int, tuple[int, int]]],
        outcomes: Outcomes,
        dead_letters_expire_at: int = NEVER,
    ) -> None:
        """Write the current batch's ledger row, and start the next batch."""
        row = LedgerRow(
            pipeline_id=self.config.pipeline_id,
            checkpoint_id=self.checkpoint_id,
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
        insert_ledger_row(self._inserter, self.database, row, Token(f"{self._name}/ledger"))
        self.batches += 1

    @property
    def _inserter(self) -> Inserter:
        return Inserter(self.client, _INSERT_SECONDS, print)

    @property
    def _name(self) -> str:
        return f"{self.checkpoint_id}/{self.batches}"
