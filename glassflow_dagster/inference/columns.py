"""Choose the type of the ClickHouse column that holds the values of a field."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from glassflow_dagster.definition.model.types import FieldKind, kinds_taken, parse_column_type, unsupported_reason
from glassflow_dagster.inference.fields import Field

# LowCardinality is proposed for at most so many distinct texts, at most this share of the values, and only in a sample
# large enough to tell.
MAX_DICTIONARY_VALUES = 50
MAX_DICTIONARY_SHARE = 0.1
MIN_SAMPLE_FOR_DICTIONARY = 50
MILLISECOND_DIGITS, MICROSECOND_DIGITS = 3, 6  # digits after the second; Spark's timestamps have microseconds
# A number in this range, 2001 to 2100, counts as seconds since 1970; smaller ones are counts, larger ones finer units.
_SECONDS = (1_000_000_000, 4_102_444_800)
# A number in this range, 1980 to 2100, counts as days since 1970; smaller ones are days of a month or year.
_DAYS = (3653, 47_482)
_MEMBERS_SHOWN = 3  # of an object in an array, in a remark
_YEARS = (1900, 2299)  # range of DateTime64 and Date32. Source: ClickHouse's documentation of its date types.
_DATE_YEARS = (1970, 2148)  # the years that Date holds completely

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
# The first two lines of "times as text" (docs/reference/types.md).
_TIME = re.compile(
    r"(?P<local>\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(?::\d{2}(?:\.(?P<fraction>\d{1,9}))?)?)"
    r"(?: ?Z| UTC| ?[+-](?:[01]\d|2[0-4])(?::?[0-5]\d)?)?",
    re.ASCII,
)
_PLAIN = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_PLAIN_PATH = re.compile(rf"{_PLAIN.pattern}(\.{_PLAIN.pattern})*", re.ASCII)
_TIME_NAME = re.compile(
    r"(?:^|_)(?:at|time|ts|timestamp|date|datetime|created|updated|modified)"
    r"(?:_(?P<unit>s|secs?|seconds|ms|millis|milliseconds|us|micros|microseconds|ns|nanos|nanoseconds))?$"
)
_DAY_NAME = re.compile(r"(?:^|_)(?:date|days?)$")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_NUMBER_COLUMNS: dict[FieldKind, str] = {"int": "Int64", "uint": "UInt64", "float": "Float64"}


@dataclass(frozen=True)
class _TimeUnit:
    """A unit of numbers since 1970: how its short names begin, and the function of expressions that reads it."""

    name: str
    per_second: int
    beginnings: tuple[str, ...]
    function: str
    column: str


_TIME_UNITS = (
    _TimeUnit("milliseconds", 10**3, ("ms", "milli"), "fromUnixMilli", "DateTime64(3)"),
    _TimeUnit("microseconds", 10**6, ("us", "micro"), "fromUnixMicro", "DateTime64(6)"),
    _TimeUnit("nanoseconds", 10**9, ("ns", "nano"), "fromUnixNano", "DateTime64(9)"),
)


@dataclass(frozen=True)
class ColumnChoice:
    """The type of a column, and a remark for the reader of the definition ('' for none)."""

    type: str
    remark: str = ""


def snake_case(name: str) -> str:
    """Return the last part of a dotted name in snake case: `user.orderId` -> `order_id`."""
    return re.sub(r"\W", "_", _WORD_START.sub("_", name.rpartition(".")[2])).lower()


def choose_column(field: Field) -> ColumnChoice:
    """Return a column type that takes all values of the field's kind; Nullable when the field is optional."""
    choice = _declared_column(field) or _column_of_values(field)
    return choice if field.required else ColumnChoice(_nullable(choice.type), choice.remark)


def is_time_column(column_type: str) -> bool:
    """Return whether a column type is a date or time."""
    return "Date" in column_type


def _declared_column(field: Field) -> ColumnChoice | None:
    """Return the column of a schema's field; None without a schema. Texts that repeat make a LowCardinality."""
    if field.declared is None:
        return None
    if field.declared.column == "String" and not field.declared.remark and field.values:
        return _plain_text(field.values)
    return ColumnChoice(field.declared.column, field.declared.remark)


def _column_of_values(field: Field) -> ColumnChoice:
    """Choose the column type for a field's values, before `choose_column` makes it Nullable."""
    kind, values = field.kind, field.fitting
    if kind == "bool":
        return ColumnChoice("Bool")
    if kind == "array":
        return _array(field.name, values, required=field.required)
    if kind == "map":
        return _map(values, required=field.required)
    if kind == "string":
        return _text(values)
    return _number(field, values)


def _number(field: Field, values: Sequence[float]) -> ColumnChoice:
    """Choose the type of a number column for values of this kind, with a remark where digits or a unit may be lost.

    A name and values that look like a time in seconds since 1970 give a DateTime; in another unit, only a remark.
    """
    kind, least, greatest = field.kind, min(values), max(values)
    name = snake_case(field.name)
    time_name = _TIME_NAME.search(name)
    if time_name and (time_name["unit"] or "s").startswith("s") and _SECONDS[0] <= least and greatest <= _SECONDS[1]:
        return ColumnChoice("DateTime64(3)" if kind == "float" else "DateTime", "seconds since 1970")
    if time_name and (unit := _time_unit(time_name["unit"] or "", least, greatest)):
        return ColumnChoice(_NUMBER_COLUMNS[kind], _since_1970(field, unit.name, unit.function, unit.column))
    if kind == "int" and _DAY_NAME.search(name) and _DAYS[0] <= least and greatest <= _DAYS[1]:
        return ColumnChoice("Int64", _since_1970(field, "days", "fromUnixDay", "Date"))
    remark = ""
    if kind == "float" and any(isinstance(value, int) and not _is_exact(value) for value in values):
        remark = (
            "some whole numbers have too many digits for a float and become dead letters; a decimal keeps 76 digits"
        )
    return ColumnChoice(_number_column(kind, values), remark)


def _time_unit(word: str, least: float, greatest: float) -> _TimeUnit | None:
    """Return the unit in which numbers can be times of 2001 to 2100. word: the unit in the field's name, or ''."""
    for unit in _TIME_UNITS:
        first, last = (seconds * unit.per_second for seconds in _SECONDS)
        if first <= least and greatest <= last and (not word or word.startswith(unit.beginnings)):
            return unit
    return None


def _since_1970(field: Field, unit: str, function: str, column: str) -> str:
    """Return a remark on numbers since 1970: the output of a transform that a column of times takes."""
    is_plain = field.kind != "float" and _PLAIN_PATH.fullmatch(field.name)
    call = f"{function}({field.name})" if is_plain else f"{function} of a whole number"
    return f"{unit} since 1970; {column} takes {call}, an output of a transform"


def _is_exact(number: int) -> bool:
    """Return whether a float holds a whole number."""
    try:
        return int(float(number)) == number
    except OverflowError:
        return False


def _number_column(kind: FieldKind, values: Sequence[float]) -> str:
    """Return the number type of a kind; integers beyond 64 bits get 128 or 256 bits by their values."""
    if kind in _NUMBER_COLUMNS:
        return _NUMBER_COLUMNS[kind]
    signed = kind == "bigint"
    least, greatest = (-(2**127), 2**127) if signed else (0, 2**128)
    bits = 128 if all(least <= value < greatest for value in values) else 256
    return f"{'' if signed else 'U'}Int{bits}"


def _text(values: Sequence[str]) -> ColumnChoice:
    """Choose UUID, a date or a time when all texts have its format, else a type of text.

    An empty list means that every value is null.
    """
    if not values:
        return ColumnChoice("String", "only null was seen")
    if all(_UUID.fullmatch(value) for value in values):
        return ColumnChoice("UUID")
    if all(_is_date(value) for value in values):
        # Beyond the years that Date holds, Date32 is needed.
        early_or_late = any(not _DATE_YEARS[0] <= int(value[:4]) <= _DATE_YEARS[1] for value in values)
        return ColumnChoice("Date32" if early_or_late else "Date")
    fraction_digits = [_fraction_digits(value) for value in values]
    # Without the None of a text that is no time.
    digits_of_times = [count for count in fraction_digits if count is not None]
    return _time(max(digits_of_times)) if len(digits_of_times) == len(fraction_digits) else _plain_text(values)


def _time(digits: int) -> ColumnChoice:
    """Choose the DateTime64 that holds this number of digits after the second: of milliseconds or microseconds."""
    if digits > MICROSECOND_DIGITS:
        return ColumnChoice("DateTime64(6)", "finer fractions than microseconds are cut off")
    return ColumnChoice("DateTime64(3)" if digits <= MILLISECOND_DIGITS else "DateTime64(6)")


def _plain_text(values: Sequence[str]) -> ColumnChoice:
    """Choose LowCardinality(String) when a large sample has few distinct texts, else String."""
    distinct = len(set(values))
    if len(values) >= MIN_SAMPLE_FOR_DICTIONARY and distinct <= min(
        MAX_DICTIONARY_VALUES, MAX_DICTIONARY_SHARE * len(values)
    ):
        return ColumnChoice("LowCardinality(String)", f"{distinct} different value{'s' if distinct > 1 else ''}")
    return ColumnChoice("String")


def _is_date(text: str) -> bool:
    """Return whether a text is a valid date, YYYY-MM-DD, in the years that Date32 holds."""
    if not _DATE.fullmatch(text):
        return False
    try:
        return _YEARS[0] <= date.fromisoformat(text).year <= _YEARS[1]
    except ValueError:
        return False


def _fraction_digits(text: str) -> int | None:
    """Return the number of digits after the second of a time that a DateTime64 holds; None for any other text."""
    match = _TIME.fullmatch(text)
    if not match:
        return None
    try:
        # Python 3.11 reads a fraction of any length; the time zone may move a year's first hours out of the range.
        year = datetime.fromisoformat(match["local"]).year
    except ValueError:
        return None
    return len(match["fraction"] or "") if _YEARS[0] < year < _YEARS[1] else None


def _array(name: str, values: Sequence[list[Any]], *, required: bool) -> ColumnChoice:
    """Choose Array of the common type of all elements; String with JSON text for mixed types and an optional field."""
    element = _element_type(item for value in values for item in value)
    # ClickHouse has no Nullable array: only JSON text can tell a missing array from an empty one.
    if required and element and _is_valid_column("array", f"Array({element})"):
        return ColumnChoice(f"Array({element})")
    return ColumnChoice("String", f"the array's JSON text{_as_nested(name, values)}")


def _as_nested(name: str, values: Iterable[list[Any]]) -> str:
    """Return how a table with a flattened Nested takes an array of objects, to follow a remark; '' for other arrays.

    Only of names that stand in an expression, and in a comment, as they are.
    """
    elements = [element for value in values for element in value]
    if not elements or not all(isinstance(element, dict) for element in elements) or not _PLAIN_PATH.fullmatch(name):
        return ""
    members = list(dict.fromkeys(member for element in elements for member in element if _PLAIN.fullmatch(member)))
    types = [_element_type(element.get(member) for element in elements) for member in members]
    columns = [
        f"{name}.{member} Array({kind}) from map({name}, .{member})"
        for member, kind in zip(members, types, strict=True)
        if kind
    ]
    more = " ..." if len(columns) > _MEMBERS_SHOWN else ""
    return f"; a flattened Nested takes {', '.join(columns[:_MEMBERS_SHOWN])}{more}" if columns else ""


def _map(values: Iterable[dict[str, Any]], *, required: bool) -> ColumnChoice:
    """Choose Map of the common type of all values; String with JSON text for mixed types and an optional field."""
    element = _element_type(item for value in values for item in value.values())
    # ClickHouse has no Nullable map: only JSON text can tell a missing object from an empty one.
    if required and element and _is_valid_column("map", f"Map(String, {element})"):
        return ColumnChoice(f"Map(String, {element})")
    return ColumnChoice("String", "the object's JSON text")


def _element_type(values: Iterable[Any]) -> str | None:
    """Return the common type of all elements of arrays or maps, Nullable when some are null.

    None when they have no common type, are nested, or are all null.
    """
    elements = list(values)
    present = [element for element in elements if element is not None]
    # As a field of their own, which tells their types; name and number of events are not used.
    present_field = Field(name="", events=0, values=present)
    if len(present_field.types) != 1 or present_field.kind in ("array", "map"):
        return None
    kind = present_field.kind
    column = {"bool": "Bool", "string": "String"}.get(kind) or _number_column(kind, present)
    return column if len(present) == len(elements) else _nullable(column)


def _is_valid_column(kind: FieldKind, column_type: str) -> bool:
    """Return whether the column type is supported and takes fields of this kind."""
    column = parse_column_type(column_type)
    return unsupported_reason(column) is None and kind in kinds_taken(column)


def _nullable(column_type: str) -> str:
    """Return the type as Nullable; LowCardinality goes around Nullable."""
    if column_type.startswith("LowCardinality("):
        return f"LowCardinality(Nullable({column_type.removeprefix('LowCardinality(')})"
    return f"Nullable({column_type})"
