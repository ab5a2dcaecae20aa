"""From a field's values to the ClickHouse column that holds them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

from glassflow_dagster.config.model.types import FieldKind, kinds_taken, parse_column_type, unsupported_reason
from glassflow_dagster.inference.fields import Field

# So few different texts, each so often, that a dictionary of them pays; in a smaller sample it is chance.
FEW_VALUES = 50
FEW_VALUES_SHARE = 0.1
FEW_VALUES_SAMPLE = 50
MILLISECOND_DIGITS, MICROSECOND_DIGITS = 3, 6  # after the second; Spark counts microseconds
# Seconds since 1970 from 2001 to 2100: smaller numbers are counts, greater ones milliseconds.
_SECONDS = (1_000_000_000, 4_102_444_800)
_MILLISECONDS = (_SECONDS[0] * 1000, _SECONDS[1] * 1000)
_YEARS = (1900, 2299)  # of DateTime64 and Date32. Source: ClickHouse's documentation of its date types.
_DATE_YEARS = (1970, 2148)  # all of a year that Date holds

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME = re.compile(
    r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:\.(?P<fraction>\d{1,9}))?(?:Z|[+-]\d{2}:\d{2})?", re.ASCII
)
_TIME_NAME = re.compile(r"(?:^|_)(?:at|time|ts|timestamp|date|datetime|created|updated|modified)$")
_WORD_START = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_NUMBER_COLUMNS: dict[FieldKind, str] = {"int": "Int64", "uint": "UInt64", "float": "Float64"}


@dataclass(frozen=True)
class ColumnChoice:
    """A column's type, and what its reader should know of the choice ('' for nothing)."""

    type: str
    remark: str = ""


def snake_case(name: str) -> str:
    """Write a name's last part in small letters with underscores: `user.orderId` -> `order_id`."""
    return re.sub(r"\W", "_", _WORD_START.sub("_", name.rpartition(".")[2])).lower()


def choose_column(field: Field) -> ColumnChoice:
    """Choose the type that takes all values of the field's kind; Nullable where the field is optional."""
    choice = _choose(field)
    return choice if field.required else ColumnChoice(_nullable(choice.type), choice.remark)


def is_time(column_type: str) -> bool:
    """Whether a column holds times or dates."""
    return "Date" in column_type


def _choose(field: Field) -> ColumnChoice:
    kind, values = field.kind, field.fitting
    if kind == "bool":
        return ColumnChoice("Bool")
    if kind == "array":
        return _array(values, required=field.required)
    if kind == "map":
        return _map(values, required=field.required)
    if kind == "string":
        return _text(values)
    return _number(field.name, kind, values)


def _number(name: str, kind: FieldKind, values: Sequence[float]) -> ColumnChoice:
    if _TIME_NAME.search(snake_case(name)):
        least, greatest = min(values), max(values)
        if _SECONDS[0] <= least and greatest <= _SECONDS[1]:
            return ColumnChoice("DateTime64(3)" if kind == "float" else "DateTime", "seconds since 1970")
        if _MILLISECONDS[0] <= least and greatest <= _MILLISECONDS[1]:
            text = "looks like milliseconds since 1970, which no time column takes"
            return ColumnChoice(_NUMBER_COLUMNS[kind], text)
    remark = ""
    if kind == "float" and any(isinstance(value, int) and abs(value) > 2**53 for value in values):
        remark = "some whole numbers are too long for a float and lose digits"
    return ColumnChoice(_number_column(kind, values), remark)


def _number_column(kind: FieldKind, values: Sequence[float]) -> str:
    if kind in _NUMBER_COLUMNS:
        return _NUMBER_COLUMNS[kind]
    signed = kind == "bigint"
    least, greatest = (-(2**127), 2**127) if signed else (0, 2**128)
    bits = 128 if all(least <= value < greatest for value in values) else 256
    return f"{'' if signed else 'U'}Int{bits}"


def _text(values: Sequence[str]) -> ColumnChoice:
    if not values:
        return ColumnChoice("String", "only null was seen")
    if all(_UUID.fullmatch(value) for value in values):
        return ColumnChoice("UUID")
    if all(_is_date(value) for value in values):
        early_or_late = any(not _DATE_YEARS[0] <= int(value[:4]) <= _DATE_YEARS[1] for value in values)
        return ColumnChoice("Date32" if early_or_late else "Date")
    digits = [_fraction_digits(value) for value in values]
    known = [count for count in digits if count is not None]
    return _time(max(known)) if len(known) == len(digits) else _plain_text(values)


def _time(digits: int) -> ColumnChoice:
    if digits > MICROSECOND_DIGITS:
        return ColumnChoice("DateTime64(6)", "finer fractions than microseconds are cut off")
    return ColumnChoice("DateTime64(3)" if digits <= MILLISECOND_DIGITS else "DateTime64(6)")


def _plain_text(values: Sequence[str]) -> ColumnChoice:
    distinct = len(set(values))
    if len(values) >= FEW_VALUES_SAMPLE and distinct <= min(FEW_VALUES, FEW_VALUES_SHARE * len(values)):
        return ColumnChoice("LowCardinality(String)", f"{distinct} different value{'s' if distinct > 1 else ''}")
    return ColumnChoice("String")


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        return _YEARS[0] <= date.fromisoformat(text).year <= _YEARS[1]
    except ValueError:
        return False


def _fraction_digits(text: str) -> int | None:
    """Count the digits after the second of a time that the mapping takes; None for any other text."""
    match = _TIME.fullmatch(text)
    if not match:
        return None
    try:
        # Python 3.11 reads a fraction of any length; the time zone may move a year's first hours out of the range.
        year = datetime.fromisoformat(text).year
    except ValueError:
        return None
    return len(match["fraction"] or "") if _YEARS[0] < year < _YEARS[1] else None


def _array(values: Iterable[list[Any]], *, required: bool) -> ColumnChoice:
    element = _element(inner for value in values for inner in value)
    # ClickHouse has no Nullable array: a missing one can only be told from an empty one as JSON text.
    if required and element and _taken("array", f"Array({element})"):
        return ColumnChoice(f"Array({element})")
    return ColumnChoice("String", "the array's JSON text")


def _map(values: Iterable[dict[str, Any]], *, required: bool) -> ColumnChoice:
    element = _element(inner for value in values for inner in value.values())
    if required and element and _taken("map", f"Map(String, {element})"):
        return ColumnChoice(f"Map(String, {element})")
    return ColumnChoice("String", "the object's JSON text")


def _element(values: Iterable[Any]) -> str | None:
    """Give the type that all elements of arrays or maps have; None where there is none, or they are nested."""
    seen = Field("", 0, list(values))
    present = Field("", 0, [value for value in seen.values if value is not None])
    if len(present.types) != 1 or present.kind in ("array", "map"):
        return None
    column = {"bool": "Bool", "string": "String"}.get(present.kind) or _number_column(present.kind, present.values)
    return column if len(present.values) == len(seen.values) else _nullable(column)


def _taken(kind: FieldKind, column_type: str) -> bool:
    """Whether a field of this kind can fill such a column."""
    column = parse_column_type(column_type)
    return unsupported_reason(column) is None and kind in kinds_taken(column)


def _nullable(column_type: str) -> str:
    if column_type.startswith("LowCardinality("):
        return f"LowCardinality(Nullable({column_type.removeprefix('LowCardinality(')})"
    return f"Nullable({column_type})"
