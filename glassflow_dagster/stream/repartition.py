"""Writes the state of a checkpoint anew, with another number of partitions.

Spark's own repartitioning (`StreamingCheckpointManager`) cannot be used. It keeps the keys by which the operators group
their rows, and deduplication on the processing clock groups by shards, which follow from the number of partitions
(scala/state/Shards.scala). It works in the checkpoint itself, where it adds a batch that the ledger does not know, and
that a driver would repeat after a crash. So the state is read by Spark's data source for states, and written by
processors that have the same states as those of the query.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.transforms import DedupConfig
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.stream.spark.session import java
from glassflow_dagster.stream.stages.dedup_in_scala import put_known

# The names of the states in scala/state: of deduplication on the processing clock (for each source), on the event
# clock, and of the join.
_KNOWN = "ends{source}"
_ACCEPTED = "accepted"
_HELD = "held"

_KNOWN_COLUMNS = "key BINARY, source INT, until LONG"


@dataclass(frozen=True)
class States:
    """What the states of a checkpoint hold, as rows; None for a state that the pipeline does not have.

    known: the keys of deduplication on the processing clock. Columns: key BINARY, source INT, until LONG.
    stored: the state `name`, which has one value for each key, and its timers. Columns: key BINARY, and value BINARY or
    expiry LONG, milliseconds since 1970.
    """

    known: DataFrame | None
    stored: DataFrame | None
    name: str = ""

    def sums(self) -> list[tuple[int, int]]:
        """Return the number of rows of each state, and a sum of their hashes, which does not depend on their order."""
        return [_sum(rows) for rows in (self.known, self.stored) if rows is not None]


def read_states(spark: SparkSession, config: PipelineConfig, checkpoint: Checkpoint) -> States:
    """Return what the states hold after the last committed batch, in a local folder.

    The rows are read when they are used. Spark's metadata must name the folder (`Checkpoint.follow_move`).
    """
    reader = _Reader(spark, checkpoint)
    if config.join:
        return States(reader.known(_dedups(config)), reader.stored(_HELD), _HELD)
    if _is_on_event_clock(config):
        return States(None, reader.stored(_ACCEPTED), _ACCEPTED)
    return States(reader.known(_dedups(config)), None)


def write_states(states: States, config: PipelineConfig, folder: str, time_ms: int) -> None:
    """Write the first version of the states of a new checkpoint.

    It has the session's number of shuffle partitions.

    folder: its root, as `Checkpoint.spark_location`.
    time_ms: the time of the last batch: all timers are later.
    """
    writer = java(_session(states)).org.apache.spark.sql.inline.StateWriter
    rows: DataFrame | None = None
    if states.known is not None:
        rows = put_known(_as_stream(states.known), _dedups(config))
    if states.stored is not None:
        stored = _as_stream(states.stored)
        if rows is not None:
            # As in the query of a join, where deduplication comes first: Spark numbers the states by their order. The
            # rows of the first processor, of which there are none, have these types.
            nothing = rows.select(F.col("payload").alias("key"), F.col("payload").alias("value"), "offset")
            stored = nothing.withColumnRenamed("offset", "expiry").unionByName(stored)
        rows = _put(stored, states.name, on_event_clock=_is_on_event_clock(config))
    assert rows is not None
    writer.write(rows._jdf, folder, time_ms)


@dataclass(frozen=True)
class _Reader:
    """Reads the states of a checkpoint, after its last committed batch, by Spark's data sources for them."""

    spark: SparkSession
    checkpoint: Checkpoint

    def known(self, dedups: Sequence[DedupConfig | None]) -> DataFrame:
        """Return the known keys of all sources that are deduplicated; see `States`."""
        sources = [source for source, dedup in enumerate(dedups) if dedup]
        parts = [self._known_of(source) for source in sources]
        nothing = self.spark.createDataFrame([], _KNOWN_COLUMNS)
        return reduce(DataFrame.unionByName, parts, nothing)

    def _known_of(self, source: int) -> DataFrame:
        entries = self._entries(_KNOWN.format(source=source))
        return entries.select(
            _field(entries, "user_map_key").alias("key"),
            F.lit(source).alias("source"),
            _field(entries, "user_map_value").alias("until"),
        )

    def stored(self, name: str) -> DataFrame:
        """Return the values of a state and its timers; see `States`."""
        entries = self._entries(name)
        values = entries.select(
            _field(entries, "key").alias("key"),
            _field(entries, "value").alias("value"),
            F.lit(None).cast("bigint").alias("expiry"),
        )
        timers = self._state(name).option("readRegisteredTimers", "true").load()
        due = timers.select(
            _field(timers, "key").alias("key"),
            F.lit(None).cast("binary").alias("value"),
            F.col("expiration_timestamp_ms").alias("expiry"),
        )
        return values.unionByName(due)

    def _entries(self, name: str) -> DataFrame:
        return self._state(name).option("stateVarName", name).load()

    def _state(self, name: str) -> DataFrameReader:
        state = self.spark.read.format("statestore").option("path", self.checkpoint.location)
        return state.option("operatorId", str(self._operator_of(name)))

    def _operator_of(self, name: str) -> int:
        """Return the number of the stateful operator that has a state of this name."""
        operators = self.spark.read.format("state-metadata").load(self.checkpoint.location).collect()
        return next(int(row["operatorId"]) for row in operators if name in _names_in(row["operatorProperties"]))


def _field(entries: DataFrame, column: str) -> Column:
    """Return the only field of a struct, as a state's keys and values are; its name depends on the operator."""
    (name,) = entries.schema[column].dataType.fieldNames()  # type: ignore[attr-defined]
    return F.col(column).getField(name)


def _names_in(properties: str) -> Iterator[str]:
    """Yield the names of the states in an operator's properties, which are JSON."""
    variables = json.loads(properties or "{}").get("stateVariables", [])
    for variable in json.loads(variables) if isinstance(variables, str) else variables:
        yield variable["stateName"]


def _dedups(config: PipelineConfig) -> list[DedupConfig | None]:
    return [config.dedup_of(source) for source in config.inputs]


def _is_on_event_clock(config: PipelineConfig) -> bool:
    """Return whether the last stateful operator uses the event clock."""
    if config.join:
        return config.join.clock == "event"
    return config.dedup is not None and config.dedup.clock == "event"


def _put(rows: DataFrame, name: str, *, on_event_clock: bool) -> DataFrame:
    """Write values and timers into the state `name`; the stream out has no rows. Columns in: those of `States`."""
    spark = rows.sparkSession
    return DataFrame(java(spark).glassflow.PutState.apply(rows._jdf, name, on_event_clock), spark)


def _as_stream(rows: DataFrame) -> DataFrame:
    spark = rows.sparkSession
    return DataFrame(java(spark).org.apache.spark.sql.inline.StateWriter.asStream(rows._jdf), spark)


def _session(states: States) -> SparkSession:
    rows = states.stored if states.known is None else states.known
    assert rows is not None
    return rows.sparkSession


def _sum(rows: DataFrame) -> tuple[int, int]:
    hashed = F.xxhash64(*rows.columns)
    found = rows.agg(F.count(F.lit(1)).alias("rows"), F.bit_xor(hashed).alias("hash")).first()
    assert found is not None
    return found["rows"], found["hash"] or 0
