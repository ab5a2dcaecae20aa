"""What of an event goes into a join, and what comes out of it: keys, times, and the fields of the joined row."""

from collections.abc import Collection, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from glassflow_dagster.config.model.join import JoinConfig
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.types import FieldKind
from glassflow_dagster.streaming.stages.dead_letters import size_and_refused
from glassflow_dagster.streaming.stages.dedup import dedup_key
from glassflow_dagster.streaming.stages.errors import is_active
from glassflow_dagster.streaming.stages.scope import Scope, carrier, joined_scope
from glassflow_dagster.streaming.stages.source import batch_time
from glassflow_dagster.streaming.stages.source_index import FIELDS, by_source

LEFT_RIGHT = (0, 1)
# Holds every integer that a field may be.
_INTEGER = "decimal(20,0)"
# Doubles from here on are compared as doubles: no integer field is equal to one but those past 64 bits.
_LONGS = 2.0**63


def to_sides(events: DataFrame, config: PipelineConfig, join: JoinConfig, names: Sequence[Scope]) -> DataFrame:
    """Trim every record to what the join needs of it.

    names: of each source, left first. Columns in: those of `read_topics`, those that the names stand for, source,
    error, drop_reason, exempt, replayed, and those of `read_times`.
    Columns out: source, topic_rank, partition, offset, dedup_key BINARY, exempt, join_key BINARY (NULL where a part of
    the key is null), time, max_event_time, keep_late BOOLEAN, body BINARY (the output fields of its side, NULL for
    a record that does not go on), size INT, dead_letter STRUCT as in `keep_raw_of_dead_letters`, drop_reason.
    """
    trimmed = events.select(
        "source",
        "topic_rank",
        "partition",
        "offset",
        "exempt",
        by_source(join_keys(join, names)).alias("join_key"),
        "time",
        "max_event_time",
        F.col("replayed").alias("keep_late"),
        F.when(is_active(), by_source([_body(join, side, names[side]) for side in LEFT_RIGHT])).alias("body"),
        *size_and_refused(),
        "drop_reason",
        *FIELDS,
    )
    dedups = [config.dedup_of(source) for source in config.inputs]
    keys = [dedup_key(dedup, fields) for dedup, fields in zip(dedups, FIELDS, strict=True)]
    return trimmed.withColumn("dedup_key", by_source(keys)).drop(*FIELDS)


def as_events(joined: DataFrame) -> DataFrame:
    """Let the rows of a join go on as events do; what is no row goes no further.

    Columns in: those of `join_sides`. Columns added: is_joined BOOLEAN, whether there is a row, batch_time TIMESTAMP,
    and error STRUCT, NULL for a row.
    """
    nothing = F.struct(F.lit("join").alias("stage"), F.lit("no row").alias("reason"))
    is_joined = F.col("left").isNotNull()
    return (
        joined.withColumn("is_joined", is_joined)
        .withColumn("error", F.when(~is_joined, nothing))
        .withColumn("batch_time", batch_time())
    )


def unpack_fields(rows: DataFrame, join: JoinConfig, names: Sequence[Scope]) -> tuple[DataFrame, Scope]:
    """Unpack what the join put together, and give the names of the joined event.

    Columns in: left BINARY, right BINARY, as they come out of the join; batch_time. Columns changed: left STRUCT, right
    STRUCT, NULL where there is none.
    """
    kinds: dict[str, FieldKind] = {}
    columns: dict[str, Column] = {}
    for side, column in zip(LEFT_RIGHT, ("left", "right"), strict=True):
        schema = F.lit(_body_schema(join, side, names[side]).json())
        rows = rows.withColumn(column, F.call_function("glassflow_unpack", F.col(column), schema))
        for index, field in enumerate(join.outputs_of(side)):
            kinds[field.joined_name] = names[side].kinds[field.name]
            columns[field.joined_name] = F.col(column).getField(f"c{index}")
    return rows, joined_scope(kinds, columns)


def _body(join: JoinConfig, side: int, names: Scope) -> Column:
    fields = join.outputs_of(side)
    values = [names.mappable[field.name].cast(carrier(names.kinds[field.name])) for field in fields]
    columns = [value.alias(f"c{index}") for index, value in enumerate(values)]
    # A struct has a field at least, also where the row takes none of this side.
    return F.call_function("glassflow_pack", F.struct(*(columns or [F.lit(0).alias("c0")])))


def _body_schema(join: JoinConfig, side: int, names: Scope) -> StructType:
    """Say what `_body` packed. It lies in checkpoints, so `state_shape` names it."""
    carriers = [carrier(names.kinds[field.name]) for field in join.outputs_of(side)] or ["int"]
    return StructType([StructField(f"c{i}", DataType.fromDDL(kind)) for i, kind in enumerate(carriers)])


def join_keys(join: JoinConfig, names: Sequence[Scope]) -> list[Column]:
    """Give each side's key as bytes: the same for keys that are equal, whatever kinds of numbers they are."""
    sides = [side.key_fields for side in join.sides]
    kinds = [[names[number].kinds[name] for name in key_fields] for number, key_fields in enumerate(sides)]
    both = [set(pair) for pair in zip(*kinds, strict=True)]
    keys = []
    for number, key_fields in enumerate(sides):
        fields = [names[number].mappable[name] for name in key_fields]
        parts = [part for place in zip(fields, kinds[number], both, strict=True) for part in _comparable(*place)]
        there = reduce(and_, (field.isNotNull() for field in fields))
        keys.append(F.when(there, F.call_function("glassflow_key", *parts)))
    return keys


def _comparable(field: Column, kind: FieldKind, kinds: Collection[FieldKind]) -> list[Column]:
    """Give a part of a key so that equal values of the kinds of both sides are equal columns, and of equal types."""
    if len(kinds) == 1:
        return [field]
    if "float" not in kinds:
        return [field.cast(_INTEGER)]
    if kind != "float":
        return [field.cast(_INTEGER), F.lit(None).cast("double")]
    # A float is the integer that it equals; one that equals none is a number that no integer is.
    is_whole = (field >= F.lit(-_LONGS)) & (field < F.lit(_LONGS)) & (field == F.floor(field).cast("double"))
    return [F.when(is_whole, field.cast("bigint").cast(_INTEGER)), F.when(~is_whole, field)]
