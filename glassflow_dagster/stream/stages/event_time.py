"""Reads the event time of records, and sets Spark's watermark by it.

The watermark is the newest event time so far, less `allowed_lateness`. It moves between batches and Spark logs it with
each batch, so a replay has the same one.
"""

from collections.abc import Sequence
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.durations import milliseconds
from glassflow_dagster.definition.model.fields import TimeUnit
from glassflow_dagster.definition.model.source import SchemaField
from glassflow_dagster.definition.model.transforms import DedupConfig
from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.stream.stages.dead_letter_column import dead_letter
from glassflow_dagster.stream.stages.error_column import is_active, set_error
from glassflow_dagster.stream.stages.source_index import FIELDS, ONLY_FIELDS, by_source

# RFC 3339 and its variants that scala/types/Instants.scala reads. It ends with \z, as $ in Java also matches before a
# final line break.
_TIME_TEXT = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?( ?Z| UTC| ?[+-]\d{2}(:?\d{2})?)?)?\z"
_DATE_LENGTH, _LONGEST_ZONE = 10, 7
# The years 1 to 9999, in microseconds: the range that Spark parses from text, far from the limits of 64 bits.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999
# How far a producer's clock may be ahead, in microseconds: a local time taken for UTC is ahead by up to 14 hours.
_MAX_AHEAD_US = 86_400_000_000
_MICROSECONDS_PER_UNIT = {"s": 1_000_000, "ms": 1000, "us": 1}
_NANOSECONDS_PER_MICROSECOND = 1000
# The range of a LONG, which is smaller than that of the years 1 to 9999 in nanoseconds.
_LEAST_LONG, _GREATEST_LONG = -(2**63), 2**63 - 1
_QUOTED_CHARACTERS = 100
_UNIT_NAMES = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


class EventTimed(Protocol):
    """A part of a definition (a dedup, or a side of a join) that names the field with the event time."""

    @property
    def event_time(self) -> str | None:
        """The name of the field; None on the processing clock."""

    @property
    def time_unit(self) -> TimeUnit:
        """The unit of a number in the field."""


def read_times(events: DataFrame, sides: Sequence[EventTimed], fields: Sequence[Sequence[SchemaField]]) -> DataFrame:
    """Read the event time of the records of a join's two sources, if the join is on the event clock.

    sides: the join's, left and right.
    fields: those of their sources.
    Columns in: error, drop_reason, batch_time, and those of `decode`. Columns added: time LONG (microseconds since
    1970) and max_event_time LONG (the time to which the event may advance the watermark), both NULL on the processing
    clock. error is set where the field has no valid time.
    """
    if any(side.event_time is None for side in sides):
        no_time = F.lit(None).cast("bigint")
        return events.withColumn("time", no_time).withColumn("max_event_time", no_time)
    times, problems = [], []
    for side, source_fields, column in zip(sides, fields, FIELDS, strict=True):
        field, kind = F.col(column).getField(str(side.event_time)), _kind(side, source_fields)
        times.append(_microseconds(field, kind, side.time_unit))
        problems.append(_problem(side, field, kind))
    read = events.withColumn("time", F.when(is_active(), by_source(times)))
    checked = set_error(read, "join", F.when(F.col("time").isNull(), by_source(problems)))
    return checked.withColumn("max_event_time", _max_event_time(F.col("time"), F.unix_micros("batch_time")))


def read_event_time(events: DataFrame, dedup: DedupConfig, fields: Sequence[SchemaField]) -> DataFrame:
    """Read each record's event time, and set the stream's watermark by it.

    Columns in: batch_time, the decoded fields, error, drop_reason, replayed. error is set where the field has no valid
    time. Column added: timing STRUCT, NULL for a record that is dropped or a dead letter, with

    - event_time LONG: microseconds since 1970;
    - keep_late BOOLEAN: the record passes even if it is late. True with `late: keep`, and for a replayed dead letter,
      which is late only because it had to be fixed;
    - if_late STRUCT: the dead letter that the record becomes if it is late; NULL when late records are dropped or kept.
    """
    assert dedup.event_time is not None
    kind = _kind(dedup, fields)
    field = F.col(ONLY_FIELDS).getField(dedup.event_time)
    read = events.withColumn("_time", F.when(is_active(), _microseconds(field, kind, dedup.time_unit)))
    problem = F.when(F.col("_time").isNull(), _problem(dedup, field, kind))
    checked = set_error(read, "dedup", problem)
    clocked = checked.withColumn(
        "_clock", F.timestamp_micros(_max_event_time(F.col("_time"), F.unix_micros("batch_time")))
    )
    # The watermark stays without its column, `_clock`; with it, Spark would drop late rows before they are counted.
    timed = clocked.withWatermark("_clock", f"{milliseconds(dedup.lateness)} milliseconds").drop("_clock")
    # `late_dead_letter` completes the reason, which begins with the time.
    dead_letter_if_late = dead_letter(F.lit("dedup"), _quoted(dedup, _readable(F.col("_time"))))
    becomes_dead_letter = F.lit(dedup.when_late == "dead_letter")
    timing = F.struct(
        F.col("_time").alias("event_time"),
        (F.col("replayed") | F.lit(dedup.when_late == "keep")).alias("keep_late"),
        F.when(becomes_dead_letter, dead_letter_if_late).alias("if_late"),
    )
    return timed.withColumn("timing", F.when(is_active(), timing)).drop("_time")


def _kind(timed: EventTimed, fields: Sequence[SchemaField]) -> FieldKind:
    """Return the declared kind of the field with the event time."""
    return next(field.kind for field in fields if field.name == timed.event_time)


def _max_event_time(time: Column, present: Column) -> Column:
    """Return the time to which an event may advance the watermark, LONG, microseconds since 1970.

    One event from the future must not advance the watermark past all events still to come. So a time after the present
    counts as the present, and one more than a day ahead, which no wrong clock or time zone explains, counts as 0 (1970,
    so it does not advance the watermark). present: the batch's time, LONG, microseconds.
    """
    return F.when(time <= present + F.lit(_MAX_AHEAD_US), F.least(time, present)).otherwise(0)


def late_dead_letter(if_late: Column, watermark: Column) -> Column:
    """Return the dead letter of a late record, with the watermark in its reason.

    if_late: the field of `timing` that `read_event_time` adds.
    watermark: LONG, milliseconds since 1970.
    """
    watermark_us = watermark * F.lit(1000)
    behind = F.concat(F.lit(" is behind the watermark "), _readable(watermark_us))
    return if_late.withField("reason", F.concat(if_late["reason"], behind))


def _microseconds(field: Column, kind: FieldKind, unit: TimeUnit) -> Column:
    """Return a field's time, LONG, microseconds since 1970; NULL where it is no time within the years 1 to 9999.

    A string is parsed as RFC 3339, a number counted in `unit`. Digits beyond microseconds are cut off, but a float in a
    unit other than nanoseconds is rounded.
    """
    if kind == "string":
        # Spark reads a zone behind seconds only.
        is_whole = (field.substr(17, 1) == ":") | (F.length(field) == _DATE_LENGTH)
        whole = F.when(is_whole, field).otherwise(
            F.concat(field.substr(1, 16), F.lit(":00"), field.substr(17, _LONGEST_ZONE))
        )
        time = F.unix_micros(F.when(field.rlike(_TIME_TEXT), whole.try_cast("timestamp")))
        return F.when(time.between(F.lit(_FIRST_US), F.lit(_LAST_US)), time)
    if unit == "ns":
        first = max(_FIRST_US * _NANOSECONDS_PER_MICROSECOND, _LEAST_LONG)
        last = min(_LAST_US * _NANOSECONDS_PER_MICROSECOND, _GREATEST_LONG)
        in_range = F.when(field.between(F.lit(first), F.lit(last)), field)
        if kind == "float":
            return F.floor(in_range / F.lit(_NANOSECONDS_PER_MICROSECOND))
        return F.call_function("div", in_range.cast("bigint"), F.lit(_NANOSECONDS_PER_MICROSECOND))
    scale = _MICROSECONDS_PER_UNIT[unit]
    in_range = F.when(field.between(F.lit(_FIRST_US // scale), F.lit(_LAST_US // scale)), field)
    if kind == "float":
        return F.round(in_range * F.lit(scale)).cast("bigint")
    return in_range.cast("bigint") * F.lit(scale)


def _problem(timed: EventTimed, field: Column, kind: FieldKind) -> Column:
    """Return the reason, STRING, for a field without a valid time: text that is no time, or a number out of range."""
    if kind == "string":
        return F.concat(_quoted(timed, field), F.lit(" is not a time (write 2024-10-28T10:00:05Z)"))
    unit = _UNIT_NAMES[timed.time_unit]
    return F.concat(
        _quoted(timed, field), F.lit(f" {unit} since 1970 is not within the years 1 to 9999; see event_time_unit")
    )


def _quoted(timed: EventTimed, value: Column) -> Column:
    """Return the beginning of a reason, STRING: the name of the field, and its value, maybe cut off, in quotes."""
    text = F.substring(value.cast("string"), 1, _QUOTED_CHARACTERS)
    return F.concat(F.lit(f"event_time '{timed.event_time}': '"), text, F.lit("'"))


def _readable(microseconds: Column) -> Column:
    """Return a time as text, STRING, such as `2024-10-28T10:00:05.5Z`. microseconds: LONG, since 1970."""
    text = F.timestamp_micros(microseconds).cast("string")
    return F.concat(F.replace(text, F.lit(" "), F.lit("T")), F.lit("Z"))
