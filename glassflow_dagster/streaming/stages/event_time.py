"""The event clock: when a record's event happened, and how far the stream has come in event time.

How far it has come is Spark's watermark: the newest event time so far less `allowed_lateness`. It moves between batches
and is logged with each, so a replay has the same one.
"""

from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.config.model.durations import milliseconds
from glassflow_dagster.config.model.fields import TimeUnit
from glassflow_dagster.config.model.source import SchemaField
from glassflow_dagster.config.model.transforms import DedupConfig
from glassflow_dagster.config.model.types import FieldKind
from glassflow_dagster.streaming.stages.dead_letters import dead_letter
from glassflow_dagster.streaming.stages.errors import is_active, set_error
from glassflow_dagster.streaming.stages.source_index import FIELDS, by_source

# RFC 3339, with a blank for the T and without a zone (then UTC), or a date alone (then midnight). \z and not $, which
# in Java also stands before a last line end.
_TIME_TEXT = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})?)?\z"
# The years 1 to 9999, in microseconds: what Spark reads as a text, and far from the ends of 64 bits.
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
# How far a producer's clock may be ahead: a local time that is taken for UTC is, by up to 14 hours.
_AHEAD = 86_400_000_000
_MICROSECONDS = {"s": 1_000_000, "ms": 1000, "us": 1}
_NANOSECONDS = 1000  # in a microsecond
_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


class EventTimed(Protocol):
    """A part of a definition that names the event time of its events."""

    @property
    def event_time(self) -> str | None:
        """The field."""

    @property
    def time_unit(self) -> TimeUnit:
        """What a number in it counts."""


def read_times(events: DataFrame, sides: Sequence[EventTimed], fields: Sequence[Sequence[SchemaField]]) -> DataFrame:
    """Read the event time of two sources' records, where their sides name one.

    Columns in: error, drop_reason, batch_time, and those of `decode`. Columns added: time LONG (microseconds since
    1970) and max_event_time LONG (how far the event shows that its source has come), NULL without an event time. error
    is set where the field says no time.
    """
    if any(side.event_time is None for side in sides):
        nothing = F.lit(None).cast("bigint")
        return events.withColumn("time", nothing).withColumn("max_event_time", nothing)
    times, problems = [], []
    for side, declared, column in zip(sides, fields, FIELDS, strict=True):
        field, kind = F.col(column).getField(str(side.event_time)), _kind(side, declared)
        times.append(_microseconds(field, kind, side.time_unit))
        problems.append(_problem(side, field, kind))
    read = events.withColumn("time", F.when(is_active(), by_source(times)))
    checked = set_error(read, "join", F.when(F.col("time").isNull(), by_source(problems)))
    return checked.withColumn("max_event_time", _max_event_time(F.col("time"), F.unix_micros("batch_time")))


def read_event_time(events: DataFrame, dedup: DedupConfig, fields: Sequence[SchemaField]) -> DataFrame:
    """Read each record's event time, and let the watermark follow it.

    Columns in: those of `read_topics`, fields, error, drop_reason, replayed. Column added: timing STRUCT<event_time
    LONG (microseconds since 1970), keep_late BOOLEAN (whether it passes also when it is late: a replay does, since what
    kept it back was fixed), letter STRUCT (the dead letter to be made of the record if it is late, see `dead_letter`;
    NULL unless the definition wants that)>, NULL for a record that does not go on. error is set where the field says no
    time.
    """
    assert dedup.event_time is not None
    kind = _kind(dedup, fields)
    field = F.col(FIELDS[0]).getField(dedup.event_time)
    read = events.withColumn("_time", F.when(is_active(), _microseconds(field, kind, dedup.time_unit)))
    problem = F.when(F.col("_time").isNull(), _problem(dedup, field, kind))
    checked = set_error(read, "dedup", problem)
    clocked = checked.withColumn(
        "_clock", F.timestamp_micros(_max_event_time(F.col("_time"), F.unix_micros("batch_time")))
    )
    # Spark drops late rows of a stream that still has this column.
    timed = clocked.withWatermark("_clock", f"{milliseconds(dedup.lateness)} milliseconds").drop("_clock")
    letter = dead_letter(F.lit("dedup"), _quoted(dedup, _readable(F.col("_time"))))
    wanted = F.lit(dedup.when_late == "dead_letter")
    timing = F.struct(
        F.col("_time").alias("event_time"),
        (F.col("replayed") | F.lit(dedup.when_late == "keep")).alias("keep_late"),
        F.when(wanted, letter).alias("letter"),
    )
    return timed.withColumn("timing", F.when(is_active(), timing)).drop("_time")


def _kind(timed: EventTimed, fields: Sequence[SchemaField]) -> FieldKind:
    return next(field.kind for field in fields if field.name == timed.event_time)


def _max_event_time(time: Column, present: Column) -> Column:
    """Say how far an event shows that the stream has come.

    One event from the future would let the watermark pass everything that is still to come. A clock that is ahead shows
    the present at most; a time that no clock and no time zone explains shows nothing.
    """
    return F.when(time <= present + F.lit(_AHEAD), F.least(time, present)).otherwise(0)


def late_letter(letter: Column, watermark: Column) -> Column:
    """Complete the dead letter of a late record. letter: as in `read_event_time`; watermark: LONG, milliseconds."""
    behind = F.concat(F.lit(" is behind the watermark "), _readable(watermark * F.lit(1000)))
    return letter.withField("reason", F.concat(letter["reason"], behind))


def _microseconds(field: Column, kind: FieldKind, unit: TimeUnit) -> Column:
    """Give microseconds since 1970, NULL where the field says no time; finer digits are cut off."""
    if kind == "string":
        time = F.unix_micros(F.when(field.rlike(_TIME_TEXT), field.try_cast("timestamp")))
        return F.when(time.between(F.lit(_FIRST), F.lit(_LAST)), time)
    if unit == "ns":
        first, last = max(_FIRST * _NANOSECONDS, -(2**63)), min(_LAST * _NANOSECONDS, 2**63 - 1)
        within = F.when(field.between(F.lit(first), F.lit(last)), field)
        if kind == "float":
            return F.floor(within / F.lit(_NANOSECONDS))
        return F.call_function("div", within.cast("bigint"), F.lit(_NANOSECONDS))
    scale = _MICROSECONDS[unit]
    within = F.when(field.between(F.lit(_FIRST // scale), F.lit(_LAST // scale)), field)
    if kind == "float":
        return F.round(within * F.lit(scale)).cast("bigint")
    return within.cast("bigint") * F.lit(scale)


def _problem(timed: EventTimed, field: Column, kind: FieldKind) -> Column:
    if kind == "string":
        return F.concat(_quoted(timed, field), F.lit(" is no time (write 2024-10-28T10:00:05Z)"))
    unit = _UNIT_NAMES[timed.time_unit]
    return F.concat(
        _quoted(timed, field), F.lit(f" {unit} since 1970 is not within the years 1 to 9999; see event_time_unit")
    )


def _quoted(timed: EventTimed, value: Column) -> Column:
    text = F.substring(value.cast("string"), 1, 100)
    return F.concat(F.lit(f"event_time '{timed.event_time}': '"), text, F.lit("'"))


def _readable(microseconds: Column) -> Column:
    """Write a time as `2024-10-28T10:00:05.5Z`."""
    text = F.timestamp_micros(microseconds).cast("string")
    return F.concat(F.replace(text, F.lit(" "), F.lit("T")), F.lit("Z"))
