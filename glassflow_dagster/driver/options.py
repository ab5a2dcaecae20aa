"""The options of a run, as the command line sets them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from glassflow_dagster.definition.model.pipeline import PipelineConfig

if TYPE_CHECKING:
    # A driver has options before it loads the libraries of its servers and of Spark.
    from clickhouse_connect.driver.client import Client
    from pyspark.sql import SparkSession

    from glassflow_dagster.stores.clickhouse.inserts.interrupted import MutatedRows
    from glassflow_dagster.stores.clickhouse.table import Table
    from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint

Report: TypeAlias = Callable[[str], None]

# Rebuilds the checkpoint of a pipeline that has lost its own.
Rebuild: TypeAlias = "Callable[[SparkSession, PipelineConfig, Sequence[Table], Checkpoint, Report], None]"
# Changes a checkpoint so that the pipeline continues without records or state that are lost.
AcceptLoss: TypeAlias = "Callable[[Client, PipelineConfig, Sequence[Table], Checkpoint, Report], None]"


@dataclass(frozen=True)
class RunOptions:
    """The options of a run; the last five fields are for recovery.

    state: the folder of all pipelines.
    until_caught_up: end when all records are read.
    spark: settings of `--conf`.
    pool: the pool to run in, in place of the definition's; None for that.
    submission: of this driver, where another host has submitted it.
    rebuild: rebuilds a lost or damaged checkpoint (`--rebuild-state`).
    accept: continues without records or a checkpoint that are lost (`--accept-loss`).
    start_over: read the topics again from their beginning, into empty tables (`--start-over`).
    accept_clock: do not compare the machine's clock with earlier batches (`--accept-clock`).
    mutated_rows: what rows of an interrupted insert are that a mutation may have removed (`--mutated-rows`).
    """

    state: Path
    until_caught_up: bool = False
    create_table: bool = False
    timeout_seconds: float = 300.0
    spark: Mapping[str, str] = field(default_factory=dict)
    pool: str | None = None
    submission: str = ""
    rebuild: "Rebuild | None" = None
    accept: "AcceptLoss | None" = None
    start_over: bool = False
    accept_clock: bool = False
    mutated_rows: "MutatedRows | None" = None

    def pool_of(self, config: PipelineConfig) -> str | None:
        """Return the pool whose JVM the run shares; None where it has its own."""
        return self.pool or config.pool
