"""How a pipeline is run, as the command line and tests say it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from clickhouse_connect.driver.client import Client
from pyspark.sql import SparkSession

from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.streaming.checkpoint.checkpoint import Checkpoint

Report = Callable[[str], None]

# Rebuilds the checkpoint of a pipeline that has lost its own.
Rebuild = Callable[[SparkSession, PipelineConfig, Table, Checkpoint, Report], None]
# Lets a checkpoint go on without what is lost.
AcceptLoss = Callable[[Client, PipelineConfig, Table, Checkpoint, Report], None]


@dataclass(frozen=True)
class RunOptions:
    """How a pipeline is run.

    rebuild: what to do when its checkpoint is lost or damaged, where something is to be done. accept: what to do about
    records or a checkpoint that are lost for good, where the pipeline is to go on without them. start_over: whether the
    topics are read from their beginning again, into tables that are empty. accept_clock: whether the machine's clock is
    believed whatever earlier batches say.
    """

    state: Path
    until_caught_up: bool = False
    create_table: bool = False
    timeout_seconds: float = 300.0
    spark: Mapping[str, str] = field(default_factory=dict)
    rebuild: Rebuild | None = None
    accept: AcceptLoss | None = None
    start_over: bool = False
    accept_clock: bool = False
