"""The base class of a definition's parts, and the types of their values."""

import re
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from glassflow_dagster.definition.model.durations import DURATION_PATTERN, format_duration, parse_duration
from glassflow_dagster.definition.model.types import FIELD_KINDS, parse_column_type, unsupported_reason


class Part(BaseModel):
    """The base class of a definition's parts: unknown keys are errors, and instances are immutable."""

    # By alias: a key that is no name in Python, such as `schema`, is dumped as it stands in a definition.
    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, raw: Any) -> Any:
        """Treat an optional key with null as missing: programs write null for what is not set."""
        if not isinstance(raw, dict):
            return raw
        optional = {field.alias or name for name, field in cls.model_fields.items() if not field.is_required()}
        return {key: value for key, value in raw.items() if value is not None or key not in optional}


# The values of `start`, besides a time.
START_WORDS = ("earliest", "latest", "committed")

# A share of records, from 0% to 100%.
SHARE_PATTERN = r"^(?:100|\d{1,2}(?:\.\d+)?)%$"


def _positive(duration: timedelta) -> timedelta:
    if duration <= timedelta():
        raise ValueError("must be greater than zero")
    return duration


def _field_type(name: str) -> str:
    """Return a known field type unchanged; raises ValueError for an unknown one."""
    if name not in FIELD_KINDS:
        raise ValueError(f"unknown field type {name!r}; use one of {', '.join(FIELD_KINDS)}")
    return name


def _column_type(text: str) -> str:
    """Return a ClickHouse type unchanged; raises ValueError when it is invalid, or its columns cannot be written."""
    reason = unsupported_reason(parse_column_type(text))
    if reason:
        raise ValueError(reason)
    return text


def _duration(value: Any) -> timedelta:
    return value if isinstance(value, timedelta) else parse_duration(value)


def _lower(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def empty_means(meaning: str | None) -> BeforeValidator:
    """Return a validator that replaces an empty text, which GlassFlow writes for a missing value, by `meaning`."""
    return BeforeValidator(lambda value: meaning if value == "" else value)


def setting_text(value: object) -> str:
    """Return the value of a setting as Spark and Kafka's clients read it: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _port(value: Any) -> Any:
    """Accept a port as text, as GlassFlow writes it, and as number."""
    return int(value) if isinstance(value, str) and value.isdigit() else value


def _start(value: Any) -> Any:
    """Normalize `start`: one of START_WORDS, or a time in ISO format; UTC unless it has a time zone.

    Without quotes YAML reads a time as `datetime` or `date`.
    """
    time = value
    if isinstance(value, str) and value not in START_WORDS:
        try:
            time = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(
                f"must be one of {', '.join(START_WORDS)}, or a time such as 2026-01-31T00:00:00Z"
            ) from None
    if isinstance(time, date) and not isinstance(time, datetime):
        time = datetime.combine(time, datetime.min.time())
    if isinstance(time, datetime):
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).isoformat()
    return time  # one of START_WORDS, or a value that pydantic rejects


def _limit(value: Any) -> int | str:
    """Check a limit: a number of records from 0, or a share such as `0.5%`."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str) and re.match(SHARE_PATTERN, value):
        return value
    raise ValueError(f"{value!r} is not a limit; write a number such as 100, or a share such as '0.5%'")


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "examples": ["500ms", "30s", "1h30m", "7d"]}),
]
PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
# GlassFlow's default, which also replaces zero.
DELAY = timedelta(seconds=60)
Delay = Annotated[Duration, AfterValidator(lambda delay: delay or DELAY), AfterValidator(_positive)]
FieldType = Annotated[str, AfterValidator(_field_type), WithJsonSchema({"type": "string", "enum": list(FIELD_KINDS)})]
ColumnTypeText = Annotated[str, AfterValidator(_column_type)]
Port = Annotated[
    int,
    BeforeValidator(_port),
    Field(ge=1, le=65535),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": 65535}, {"type": "string", "pattern": r"^\d+$"}]}
    ),
]
Text = Annotated[str, Field(min_length=1)]
TimeUnit = Literal["s", "ms", "us", "ns"]
# For a source's type, whose case GlassFlow ignores.
LOWER_CASE = BeforeValidator(_lower)
Start = Annotated[str, BeforeValidator(_start), WithJsonSchema({"type": "string"})]
Limit = Annotated[
    int | str,
    PlainValidator(_limit),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": SHARE_PATTERN}]}),
]
