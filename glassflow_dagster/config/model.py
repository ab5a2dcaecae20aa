"""What a pipeline is: GlassFlow's v3 format and this project's extensions to it, as pydantic models.

Extensions are optional, so that a definition written for GlassFlow means what it meant: `sources[].start`,
`.consumer_group` and `.isolation`, `schema_fields[].required` and `.default`, `dedup.config.keys`, several filters and
stateless transforms, Kafka's own columns in `sink.mapping` (`_topic`, `_partition`, `_offset`, `_timestamp`, `_key`,
and `_batch_time`), `sink.create_table`, `checks`.
What needs more than one field to judge is judged in `rules.py`; reading files is `load.py`'s affair.
"""

import hashlib
import json
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    SecretStr,
    WithJsonSchema,
    field_validator,
)

from glassflow_dagster.config.durations import DURATION_PATTERN, format_duration, parse_duration
from glassflow_dagster.config.types import FIELD_KINDS, ColumnType, FieldKind, parse_column_type, unsupported_reason

# Where the first start may begin, beside a time.
START_WORDS = ("earliest", "latest", "committed")


def _positive(duration: timedelta) -> timedelta:
    if duration <= timedelta():
        raise ValueError("must be greater than zero")
    return duration


def _field_type(name: str) -> str:
    if name not in FIELD_KINDS:
        raise ValueError(f"unknown field type {name!r}; use one of {', '.join(FIELD_KINDS)}")
    return name


def _column_type(text: str) -> str:
    reason = unsupported_reason(parse_column_type(text))
    if reason:
        raise ValueError(reason)
    return text


def _duration(value: Any) -> timedelta:
    return value if isinstance(value, timedelta) else parse_duration(value)


def _port(value: Any) -> Any:
    """GlassFlow writes ports as texts, its article as a number."""
    return int(value) if isinstance(value, str) and value.isdigit() else value


def _start(value: Any) -> Any:
    """YAML reads a time without quotes as one."""
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
    return time


Duration = Annotated[
    timedelta,
    BeforeValidator(_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN, "examples": ["500ms", "30s", "1h30m", "7d"]}),
]
PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
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
Start = Annotated[str, BeforeValidator(_start), WithJsonSchema({"type": "string"})]

# Kafka's metadata as ClickHouse's own Kafka engine names it, and the batch time: name in a mapping -> its kind.
METADATA_FIELDS: dict[str, FieldKind] = {
    "_topic": "string",
    "_partition": "int",
    "_offset": "int",
    "_timestamp": "float",
    "_key": "string",
    "_batch_time": "float",
}

MAX_DEDUP_WINDOW = timedelta(days=7)


class NotSupportedYetError(ValueError):
    """A part of GlassFlow's format that is right, and that this project does not run yet."""


class _Part(BaseModel):
    """A part of a definition: unknown keys are mistakes, and a definition never changes once it is read."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class KafkaConnection(_Part):
    """How to reach the brokers."""

    brokers: Annotated[tuple[Text, ...], Field(min_length=1)]
    protocol: Literal["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["NO_AUTH", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "NO_AUTH"
    username: str | None = None
    password: SecretStr | None = None
    root_ca: str | None = Field(default=None, description="PEM of the authority, in base64 or as it is")
    skip_tls_verification: bool = False
    skip_auth: bool = False


class SchemaField(_Part):
    """A field that every event declares; dotted names are tried literally, then as a path into nested objects."""

    name: Text
    type: FieldType
    required: bool = Field(default=True, description="false: the field may be missing or null, and is NULL then")
    default: bool | int | float | str | None = Field(
        default=None, description="stands for a field that is missing or null, which may be so then"
    )

    @property
    def kind(self) -> FieldKind:
        """What JSON must carry."""
        return FIELD_KINDS[self.type]

    @property
    def needed(self) -> bool:
        """Whether an event without this field is refused."""
        return self.required and self.default is None


class Source(_Part):
    """One topic and what its events look like."""

    type: Literal["kafka"]
    source_id: Text
    connection_params: KafkaConnection
    topic: Text
    schema_fields: Annotated[tuple[SchemaField, ...], Field(min_length=1)]
    schema_version: str = "1"
    consumer_group_initial_offset: Literal["earliest", "latest"] = "earliest"
    start: Start | None = Field(
        default=None,
        description="where the first start begins: earliest, latest, committed, or a time such as 2026-01-31T00:00:00Z",
    )
    consumer_group: Text | None = Field(
        default=None, description="whose offsets `start: committed` takes; GlassFlow's own for the pipeline by default"
    )
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"


class DedupConfig(_Part):
    """The key of an event and how long it is remembered after its first appearance."""

    key: Text | None = None
    keys: tuple[Text, ...] = ()
    time_window: PositiveDuration

    @property
    def key_fields(self) -> tuple[str, ...]:
        """The fields that make up the key, in order."""
        return self.keys or ((self.key,) if self.key else ())


class Dedup(_Part):
    """Lets the first event of a key pass, and counts those that follow within the window."""

    type: Literal["dedup"]
    source_id: Text
    config: DedupConfig


class FilterConfig(_Part):
    """What an event must be like to go on."""

    expression: Text = Field(description="true keeps the event, false drops it")


class Filter(_Part):
    """Lets events pass for which an expression is true, and counts the others."""

    type: Literal["filter"]
    source_id: Text
    config: FilterConfig


class Output(_Part):
    """A field that an expression makes."""

    expression: Text
    output_name: Text
    output_type: str = Field(default="", description="string, int, float64, bool, []string ...; empty: as it comes")


class StatelessConfig(_Part):
    """The fields of the event from here on; what is not listed is left out."""

    transforms: tuple[Output, ...]


class Stateless(_Part):
    """Makes the fields of an event anew."""

    type: Literal["stateless"]
    source_id: Text
    config: StatelessConfig


Transform = Annotated[Dedup | Filter | Stateless, Field(discriminator="type")]


class ClickHouseConnection(_Part):
    """How to reach ClickHouse, over HTTP.

    GlassFlow speaks the native protocol on `port`; here `http_port` counts, and where it is left out, the port that
    belongs to a native default (9000 -> 8123, 9440 -> 8443).
    """

    host: Text
    port: Port
    http_port: Port | None = None
    database: Text
    username: Text
    password: SecretStr = SecretStr("")
    secure: bool = False
    skip_certificate_verification: bool = False

    @property
    def http(self) -> int:
        """The port that HTTP requests go to."""
        return self.http_port or {9000: 8123, 9440: 8443}.get(self.port, self.port)


class Mapping(_Part):
    """A field of the event and the column that it fills."""

    name: Text
    column_name: Text
    column_type: ColumnTypeText

    @property
    def parsed_type(self) -> ColumnType:
        """The column's type as a tree."""
        return parse_column_type(self.column_type)


class ExtraColumn(_Part):
    """A column of a created table that no event fills."""

    name: Text
    type: Text
    default: Text | None = Field(default=None, description="an SQL expression, such as now()")


class CreateTable(_Part):
    """How to create the target table when it is missing; its mapped columns come from the mapping."""

    engine: Text = "MergeTree"
    order_by: Text = "tuple()"
    partition_by: Text | None = None
    ttl: Text | None = None
    columns: tuple[ExtraColumn, ...] = ()


class Sink(_Part):
    """The ClickHouse table, and how rows are gathered into blocks."""

    type: Literal["clickhouse"]
    connection_params: ClickHouseConnection
    table: Text
    # 1,000 rows and a minute are what GlassFlow documents as its defaults.
    max_batch_size: Annotated[int, Field(gt=0)] = 1000
    max_delay_time: PositiveDuration = timedelta(seconds=60)
    mapping: Annotated[tuple[Mapping, ...], Field(min_length=1)]
    source_id: str | None = None
    create_table: CreateTable | None = None

    @property
    def full_table(self) -> tuple[str, str]:
        """Database and table; a table may be written with its database."""
        database, dot, table = self.table.partition(".")
        return (database, table) if dot else (self.connection_params.database, self.table)


class Checks(_Part):
    """How Dagster looks after the pipeline."""

    every: str = Field(
        default="*/15 * * * *",
        pattern=r"^\S+(\s+\S+){4}$",
        description="cron schedule (five fields) of the health check and the asset checks",
    )
    arrival_column: Text | None = Field(default=None, description="the column that says when a row arrived")
    other_writers: bool = Field(default=False, description="true: others write to the table too, so it holds more rows")


class Metadata(_Part):
    """Labels."""

    tags: tuple[str, ...] = ()


class PipelineConfig(_Part):
    """One pipeline definition."""

    version: Literal["v3", ""] = "v3"
    pipeline_id: Annotated[str, Field(min_length=5, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    name: str = ""
    metadata: Metadata = Metadata()
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    transforms: tuple[Transform, ...] = ()
    # Only one that is switched off is accepted, so it says nothing and stays out of every dump and digest.
    join: dict[str, Any] | None = Field(default=None, exclude=True, description="only with `enabled: false` yet")
    sink: Sink
    checks: Checks = Checks()
    resources: dict[str, Any] | None = None

    @field_validator("join")
    @classmethod
    def _no_join(cls, join: dict[str, Any] | None) -> None:
        if join and join.get("enabled") is not False:
            raise NotSupportedYetError("a join is not supported yet; remove it and keep one source")

    @property
    def source(self) -> Source:
        """The pipeline's one source."""
        return self.sources[0]

    @property
    def glassflow_consumer_group(self) -> str:
        """The consumer group that GlassFlow itself reads this pipeline's topics with."""
        return f"glassflow-consumer-group-{hashlib.sha256(self.pipeline_id.encode()).hexdigest()[:8]}"

    @property
    def dedup(self) -> DedupConfig | None:
        """How the source's events are deduplicated, or None when they are not."""
        mine = (t for t in self.transforms if t.source_id == self.source.source_id)
        return next((t.config for t in mine if isinstance(t, Dedup)), None)

    @property
    def digest(self) -> str:
        """A name for what decides about rows and blocks: two definitions with the same digest cut the same blocks."""
        relevant = self.model_dump(
            mode="json",
            exclude={
                "name": True,
                "metadata": True,
                "checks": True,
                "resources": True,
                "sources": {"__all__": {"connection_params"}},
                "sink": {"connection_params": True, "create_table": True},
            },
        )
        return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        """A name for all that a driver was started with, servers and secrets included."""
        everything = self.model_dump(mode="python", exclude={"name", "metadata", "checks", "resources"})
        return hashlib.sha256(json.dumps(everything, sort_keys=True, default=_plain).encode()).hexdigest()


def _plain(value: Any) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
