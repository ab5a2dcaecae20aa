"""From fields to ClickHouse columns: converted, and checked for everything that ClickHouse would change in silence.

ClickHouse's Arrow input wraps integers (300 into Int8 becomes 44) and turns NULL into '' or 0 where a column is not
Nullable. So ranges, lengths, names of enums and nulls are checked here, before deduplication: a record that does
not fit is refused, and never claims a key.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from glassflow_dagster.config.model import Mapping as ColumnMapping
from glassflow_dagster.config.types import ColumnType, FieldKind, integer_range
from glassflow_dagster.streaming.decode import goes_on, refuse
from glassflow_dagster.streaming.names import Names

# Spark's type that holds each ClickHouse integer; Arrow's next larger one is converted back by the server, and the
# range is checked before.
_INTEGER_CARRIERS = {
    "Int8": "tinyint",
    "Int16": "smallint",
    "Int32": "int",
    "Int64": "bigint",
    "UInt8": "smallint",
    "UInt16": "int",
    "UInt32": "bigint",
    "UInt64": "decimal(20,0)",
}
_LONG_RANGE = integer_range("Int64")
# Integers up to here are the same number as a float of 64 or 32 bits.
_EXACT_IN_FLOAT = {"Float64": 2**53, "Float32": 2**24}
_FLOAT32_MAX = 3.4028234663852886e38
# \z and not $, which in Java also stands before a last line end.
_UUID = r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\z"
_DATE = r"^\d{4}-\d{2}-\d{2}\z"
# RFC 3339, with a blank for the T and without a zone (then UTC), or a date alone (then midnight).
TIME_TEXT = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})?)?\z"
# First and last second that the types hold. Source: ClickHouse's documentation of its date types.
_DATETIME_RANGE = (0, 2**32 - 1)
_DATETIME64_RANGE = (-2_208_988_800, 10_413_791_999)  # 1900-01-01 .. 2299-12-31
_DATE_RANGES = {"Date": ("1970-01-01", "2149-06-06"), "Date32": ("1900-01-01", "2299-12-31")}
# Spark's timestamps count microseconds.
_MICROSECOND_DIGITS = 6


@dataclass(frozen=True)
class _Converted:
    """A value of the column's type, and the reason why there is none (NULL when there is one)."""

    value: Column
    problem: Column


def map_columns(
    events: DataFrame, mapping: Sequence[ColumnMapping], names: Names, types: Mapping[str, ColumnType]
) -> DataFrame:
    """Convert fields to the target's columns.

    Columns in: those that the names stand for, refusal, dropped. Column added: row STRUCT (a field a mapped column, in
    the mapping's order), NULL for a record that does not go on; refusal is set where a value does not fit its column.

    types: the target table's actual types by column name; they say what may be NULL and which names an Enum has.
    """
    converted = [(m, _convert(names.mappable[m.name], names.kinds[m.name], types[m.column_name])) for m in mapping]
    reasons = [
        F.when(
            c.problem.isNotNull(), F.concat(F.lit(f"column '{m.column_name}' ({types[m.column_name]}): "), c.problem)
        )
        for m, c in converted
    ]
    row = F.struct(*(c.value.alias(m.column_name) for m, c in converted))
    checked = events.withColumn("_reason", F.when(goes_on(), F.coalesce(*reasons)))
    marked = refuse(checked, "mapping", F.col("_reason"))
    return marked.withColumn("row", F.when(goes_on(), row)).drop("_reason")


def _convert(field: Column, kind: FieldKind, column: ColumnType) -> _Converted:
    base = column.base
    converted = _CONVERSIONS[base.name](field, kind, base)
    missing = F.lit(None) if column.nullable else F.when(field.isNull(), F.lit("null, but the column is not Nullable"))
    return _Converted(converted.value, F.coalesce(missing, F.when(field.isNotNull(), converted.problem)))


def _integer(field: Column, kind: FieldKind, base: ColumnType) -> _Converted:
    least, greatest = integer_range(base.name)
    carrier = _INTEGER_CARRIERS[base.name]
    value_range = (0, 2**64 - 1) if kind == "uint" else _LONG_RANGE
    outside = []
    # A bound that no value of the field's type can pass is no bound.
    if least > value_range[0]:
        outside.append(field < F.lit(least))
    if greatest < value_range[1]:
        outside.append(field > F.lit(greatest).cast("decimal(20,0)" if kind == "uint" else "bigint"))
    if not outside:
        return _Converted(field.cast(carrier), F.lit(None).cast("string"))
    wrong = outside[0] if len(outside) == 1 else outside[0] | outside[1]
    problem = F.when(wrong, F.concat(field.cast("string"), F.lit(f" is out of range {least}..{greatest}")))
    return _Converted(F.when(~wrong, field).cast(carrier), problem)


def _float(field: Column, kind: FieldKind, base: ColumnType) -> _Converted:
    carrier = "double" if base.name == "Float64" else "float"
    if kind == "float" and base.name == "Float64":
        return _Converted(field, F.lit(None).cast("string"))
    if kind == "float":
        too_big = F.abs(field) > F.lit(_FLOAT32_MAX)
        problem = F.when(too_big, F.concat(field.cast("string"), F.lit(" is out of range")))
        return _Converted(field.cast(carrier), problem)
    exact = _EXACT_IN_FLOAT[base.name]
    inexact = (field > F.lit(exact)) | (field < F.lit(-exact))
    problem = F.when(inexact, F.concat(field.cast("string"), F.lit(f" has more digits than {base.name} holds")))
    return _Converted(field.cast(carrier), problem)


def _unchanged(field: Column, _kind: FieldKind, _base: ColumnType) -> _Converted:
    return _Converted(field, F.lit(None).cast("string"))


def _fixed_string(field: Column, _kind: FieldKind, base: ColumnType) -> _Converted:
    size = F.octet_length(field)
    problem = F.when(
        size > F.lit(base.arguments[0]), F.concat(size.cast("string"), F.lit(f" bytes are too many for {base}"))
    )
    return _Converted(field, problem)


def _uuid(field: Column, _kind: FieldKind, _base: ColumnType) -> _Converted:
    return _Converted(field, F.when(~field.rlike(_UUID), F.concat(_quoted(field), F.lit(" is no UUID"))))


def _enum(field: Column, _kind: FieldKind, base: ColumnType) -> _Converted:
    names = [argument[0] for argument in base.arguments if isinstance(argument, tuple)]
    problem = F.when(~field.isin(names), F.concat(_quoted(field), F.lit(f" is none of {', '.join(names)}")))
    return _Converted(field, problem)


def _date(field: Column, _kind: FieldKind, base: ColumnType) -> _Converted:
    first, last = _DATE_RANGES[base.name]
    date = F.when(field.rlike(_DATE), field.try_cast("date"))
    fits = date.between(F.lit(first).cast("date"), F.lit(last).cast("date"))
    problem = F.when(
        ~F.coalesce(fits, F.lit(0).cast("boolean")),
        F.concat(_quoted(field), F.lit(f" is no date from {first} to {last}")),
    )
    return _Converted(F.when(fits, date), problem)


def _date_time(field: Column, kind: FieldKind, base: ColumnType) -> _Converted:
    """Texts as RFC 3339 has them, integers as seconds, floats as seconds with a fraction (GlassFlow's rules)."""
    digits = base.arguments[0] if base.name == "DateTime64" and base.arguments else 3
    assert isinstance(digits, int)  # noqa: S101 - the type's own grammar
    first, last = _DATETIME64_RANGE if base.name == "DateTime64" else _DATETIME_RANGE
    # ClickHouse counts a column's own fractions of a second in 64 bits: nanoseconds end in 2262.
    last = min(last, _LONG_RANGE[1] // 10**digits - 1)
    seconds: Column
    if kind == "string":
        time = F.when(field.rlike(TIME_TEXT), field.try_cast("timestamp"))
        seconds = F.unix_seconds(time)
    else:
        seconds = field
        time = F.timestamp_micros(F.round(field.cast("double") * F.lit(1_000_000)).cast("bigint"))
        if kind in ("int", "uint"):
            time = F.timestamp_seconds(field.cast("bigint"))
    fits = F.coalesce(seconds.between(F.lit(first), F.lit(last)), F.lit(0).cast("boolean"))
    reason = F.lit(f" is no time that {base} holds (write 2024-10-28T10:00:05Z, or seconds since 1970)")
    problem = F.when(~fits, F.concat(_quoted(field), reason))
    if kind == "string" and digits > _MICROSECOND_DIGITS:
        finer = field.rlike(r"\.\d{7,9}")
        problem = F.coalesce(problem, F.when(finer, F.concat(_quoted(field), F.lit(" is finer than a microsecond"))))
    # A column of whole seconds keeps whole seconds: that is what choosing it says.
    kept = F.date_trunc("second", time) if base.name == "DateTime" else time
    return _Converted(F.when(fits, kept), problem)


def _quoted(field: Column) -> Column:
    return F.concat(F.lit("'"), F.substring(field.cast("string"), 1, 100), F.lit("'"))


_CONVERSIONS: dict[str, Callable[[Column, FieldKind, ColumnType], _Converted]] = {
    **dict.fromkeys(_INTEGER_CARRIERS, _integer),
    **dict.fromkeys(("Float32", "Float64"), _float),
    **dict.fromkeys(("Bool", "String"), _unchanged),
    "FixedString": _fixed_string,
    "UUID": _uuid,
    **dict.fromkeys(("Enum8", "Enum16"), _enum),
    **dict.fromkeys(("Date", "Date32"), _date),
    **dict.fromkeys(("DateTime", "DateTime64"), _date_time),
}
