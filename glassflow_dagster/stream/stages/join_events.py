"""Prepares events for a join (keys, times, packed output fields), and unpacks the joined rows."""

from collections.abc import Collection, Sequence
from functools import reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructField, StructType

from glassflow_dagster.definition.model.join import JoinConfig
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.stream.stages.dead_letter_column import size_and_dead_letter
from glassflow_dagster.stream.stages.dedup_in_scala import dedup_key
from glassflow_dagster.stream.stages.error_column import is_active
from glassflow_dagster.stream.stages.scope import FIELD_TYPES, Scope, joined_scope
from glassflow_dagster.stream.stages.source import batch_time
from glassflow_dagster.stream.stages.source_index import FIELDS, by_source

LEFT_RIGHT = (0, 1)
# Holds every integer that a field may be.
_INTEGER = "decimal(20,0)"
# The doubles that a BIGINT holds end here, and those that an unsigned integer of 64 bits holds.
_LONG_END, _UNSIGNED_END = 2.0**63, 2.0**64


def to_join_inputs(events: DataFrame, config: PipelineConfig, join: JoinConfig, scopes: Sequence[Scope]) -> DataFrame:
    """Reduce records of both sources to the one form in which they enter the join.

    `by_source` picks, of two columns, the one for the record's source. exempt: the record was deduplicated before it
    became a dead letter, and is not deduplicated again. A replayed record is kept even if it is late (keep_late).
    scopes: of the left and the right source. Columns in: those of `read_records`, source, `FIELDS` (the decoded fields
    of the left and of the right source, two STRUCT columns), error, drop_reason, exempt, replayed, and those of
    `read_times`.
    Columns out: source, topic_rank, partition, offset, dedup_key BINARY, exempt, join_key BINARY (NULL where a part of
    the key is null), time, max_event_time, keep_late BOOLEAN, body BINARY (the output fields of the event's side,
    packed; NULL for a record that is dropped or a dead letter), size INT, dead_letter STRUCT as in
    `keep_raw_of_dead_letters`, drop_reason.
    """
    trimmed = events.select(
        "source",
        "topic_rank",
        "partition",
        "offset",
        "exempt",
        by_source(join_keys(join, scopes)).alias("join_key"),
        "time",
        "max_event_time",
        F.col("replayed").alias("keep_late"),
        F.when(is_active(), by_source([_body(join, side, scopes[side]) for side in LEFT_RIGHT])).alias("body"),
        *size_and_dead_letter(),
        "drop_reason",
        *FIELDS,
    )
    # Added last: `dedup_key` reads dead_letter and drop_reason, since such records take no part in deduplication.
    dedups = [config.dedup_of(source) for source in config.inputs]
    keys = [dedup_key(dedup, fields) for dedup, fields in zip(dedups, FIELDS, strict=True)]
    return trimmed.withColumn("dedup_key", by_source(keys)).drop(*FIELDS)


def as_events(joined: DataFrame) -> DataFrame:
    """Add the columns that the stages after the join expect of an event; records that are no joined row are inactive.

    Columns in: those of `join_inputs`. Columns added: is_joined BOOLEAN, true for a joined row; batch_time TIMESTAMP;
    error STRUCT, NULL for a joined row, and set for other records, so that no stage changes them.
    """
    no_row = F.struct(F.lit("join").alias("stage"), F.lit("no row").alias("reason"))
    is_joined = F.col("left").isNotNull()
    return (
        joined.withColumn("is_joined", is_joined)
        .withColumn("error", F.when(~is_joined, no_row))
        .withColumn("batch_time", batch_time())
    )


def unpack_fields(rows: DataFrame, join: JoinConfig, scopes: Sequence[Scope]) -> tuple[DataFrame, Scope]:
    """Unpack the output fields of joined rows; return the rows, and the scope of the joined event.

    scopes: of the left and the right source, before the join. Columns in: left BINARY and right BINARY, the events'
    packed output fields, right is NULL without a match; batch_time. Columns changed: left and right, which become
    STRUCT<c0, c1, ...>, with the fields in the join's order; NULL stays.
    """
    kinds: dict[str, FieldKind] = {}
    columns: dict[str, Column] = {}
    for side, column in zip(LEFT_RIGHT, ("left", "right"), strict=True):
        schema = F.lit(_body_schema(join, side, scopes[side]).json())
        rows = rows.withColumn(column, F.call_function("glassflow_unpack", F.col(column), schema))
        for index, field in enumerate(join.outputs_of(side)):
            kinds[field.joined_name] = scopes[side].kinds[field.name]
            columns[field.joined_name] = F.col(column).getField(f"c{index}")
    return rows, joined_scope(kinds, columns)


def _body(join: JoinConfig, side: int, scope: Scope) -> Column:
    """Return the output fields of one side, packed to BINARY: both sides pass the join's state in the same column.

    The fields are c0, c1, ... in the join's order, cast to the Spark type that carries their kind.
    """
    fields = join.outputs_of(side)
    values = [scope.mappable[field.name].cast(FIELD_TYPES[scope.kinds[field.name]]) for field in fields]
    columns = [value.alias(f"c{index}") for index, value in enumerate(values)]
    # A struct needs a field, also where no output field is of this side.
    return F.call_function("glassflow_pack", F.struct(*(columns or [F.lit(0).alias("c0")])))


def _body_schema(join: JoinConfig, side: int, scope: Scope) -> StructType:
    """Return the schema of the packed output fields of one side: c0, c1, ... in the join's order.

    Packed fields are kept in checkpoints, so `state_shape` describes this schema, and a checkpoint is bound to it.
    """
    # Without an output field of this side, `_body` packs one INT.
    carriers = [FIELD_TYPES[scope.kinds[field.name]] for field in join.outputs_of(side)] or ["int"]
    return StructType([StructField(f"c{i}", DataType.fromDDL(kind)) for i, kind in enumerate(carriers)])


def join_keys(join: JoinConfig, scopes: Sequence[Scope]) -> list[Column]:
    """Return the join key of each side, BINARY, NULL where a part of the key is null.

    glassflow_key (Scala) packs the parts of a key into bytes. Equal keys have equal bytes, even if a part is an integer
    on one side and a float on the other.
    """
    sides = [side.key_fields for side in join.sides]
    kinds = [[scopes[side].kinds[name] for name in key_fields] for side, key_fields in enumerate(sides)]
    kinds_on_both_sides = [set(pair) for pair in zip(*kinds, strict=True)]
    keys = []
    for side, key_fields in enumerate(sides):
        fields = [scopes[side].mappable[name] for name in key_fields]
        parts = [
            part
            for field, kind, both_kinds in zip(fields, kinds[side], kinds_on_both_sides, strict=True)
            for part in _comparable(field, kind, both_kinds)
        ]
        is_complete = reduce(and_, (field.isNotNull() for field in fields))
        keys.append(F.when(is_complete, F.call_function("glassflow_key", *parts)))
    return keys


def _comparable(field: Column, kind: FieldKind, kinds: Collection[FieldKind]) -> list[Column]:
    """Return a part of a join key as columns that are equal, and of equal types, for equal values on both sides.

    Fields of one kind are compared as they are, integers of two kinds as DECIMAL. Where one side is a float, each side
    has two columns: the value as an integer, and as a float; one of them is NULL.
    kind: the field's on this side.
    kinds: those of the field on both sides.
    """
    if len(kinds) == 1:
        return [field]
    if "float" not in kinds:
        return [field.cast(_INTEGER)]
    if kind != "float":
        return [field.cast(_INTEGER), F.lit(None).cast("double")]
    # A float that is a whole number is compared as an integer, any other one as a float, with NULL for the integer.
    is_long = (field >= F.lit(-_LONG_END)) & (field < F.lit(_LONG_END))
    is_whole = is_long & (field == F.floor(field).cast("double"))
    integer = F.when(is_whole, _exact(field))
    # Else the float keeps the key that it has in the state of a join of int and float.
    if "uint" in kinds:
        is_beyond = (field >= F.lit(_LONG_END)) & (field < F.lit(_UNSIGNED_END))
        above = _exact(field - F.lit(_LONG_END)) + F.lit(str(int(_LONG_END))).cast(_INTEGER)
        integer = integer.when(is_beyond, above.cast(_INTEGER))
    return [integer, F.when(integer.isNull(), field)]


def _exact(number: Column) -> Column:
    """Cast a DOUBLE that a BIGINT holds; Spark's cast from DOUBLE to DECIMAL would take its shortest text."""
    return number.cast("bigint").cast(_INTEGER)
