"""What a pipeline is: GlassFlow's v3 format and this project's extensions to it, as pydantic models.

Extensions are optional, so that a definition written for GlassFlow means what it meant: `sources[].start`,
`.consumer_group` and `.isolation`, `schema_fields[].required` and `.default`, `dedup.config.keys` and `.clock` with
what belongs to it, several filters and stateless transforms, those of `join.py`, Kafka's own columns in `sink.mapping`
(`_topic`, `_partition`, `_offset`, `_timestamp`, `_key`, and `_batch_time`), ClickHouse's certificates,
`sink.create_table`, `sink.delivery`, `checks`.
What needs more than one field to judge is judged in `rules.py`; reading files is `load.py`'s affair.
"""

import hashlib
import json
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr

from glassflow_dagster.config.join import OptionalJoin
from glassflow_dagster.config.parts import (
    DELAY,
    LOWER_CASE,
    ColumnTypeText,
    Delay,
    Duration,
    FieldType,
    Limit,
    Part,
    Port,
    PositiveDuration,
    Start,
    Text,
    TimeUnit,
    empty_means,
)
from glassflow_dagster.config.resources import Resources
from glassflow_dagster.config.spark import SparkSettings
from glassflow_dagster.config.types import FIELD_KINDS, ColumnType, FieldKind, parse_column_type

# Kafka's metadata as ClickHouse's own Kafka engine names it, and the batch time: name in a mapping -> its kind.
METADATA_FIELDS: dict[str, FieldKind] = {
    "_topic": "string",
    "_partition": "int",
    "_offset": "int",
    "_timestamp": "float",
    "_key": "string",
    "_batch_time": "float",
}

# What a repeated batch may do to the table: nothing, or double rows.
Delivery = Literal["exactly_once", "at_least_once"]
# Whether the pipeline may switch on a table's memory of insert tokens: always, or never.
DeduplicationWindow = Literal["set", "require"]
# A book is read as it was written: no engine that replaces, sums or collapses rows.
BookEngine = Annotated[str, Field(pattern=r"^(Replicated|Shared)?MergeTree(\([^;]*\))?$")]

MAX_DEDUP_WINDOW = timedelta(days=7)
# Spark tells a batch's time in milliseconds: a shorter window would be none.
MIN_PROCESSING_WINDOW = timedelta(milliseconds=1)
# So many events of one key, a window apart, are within reach of the watermark at most: the state keeps their times in
# one piece, which is read for each batch that has the key.
MAX_WINDOWS_LATE = 1000


class KafkaConnection(Part):
    """How to reach the brokers."""

    brokers: Annotated[tuple[Text, ...], Field(min_length=1)]
    protocol: Literal["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"] = "PLAINTEXT"
    mechanism: Literal["NO_AUTH", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "GSSAPI"] = "NO_AUTH"
    username: str | None = None
    password: SecretStr | None = None
    root_ca: str | None = Field(default=None, description="PEM of the authority, in base64 or as it is")
    client_cert: str | None = Field(default=None, description="PEM of this client's certificate, base64 or as it is")
    client_key: SecretStr | None = Field(default=None, description="PEM of its private key, base64 or as it is")
    kerberos_service_name: str | None = None
    kerberos_realm: str | None = None
    kerberos_keytab: SecretStr | None = Field(default=None, description="the keytab in base64")
    kerberos_config: str | None = Field(default=None, description="the text of krb5.conf")
    skip_tls_verification: bool = False
    skip_auth: bool = False


class SchemaRegistry(Part):
    """That records carry the id of a schema before their JSON, as Confluent's serializers write it.

    The registry itself is not asked: every record is held against the declared fields.
    """

    url: Text
    api_key: str | None = None
    api_secret: SecretStr | None = None


class SchemaField(Part):
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


class Source(Part):
    """One topic and what its events look like."""

    type: Annotated[Literal["kafka"], LOWER_CASE]
    source_id: Text
    connection_params: KafkaConnection
    topic: Text
    schema_fields: Annotated[tuple[SchemaField, ...], Field(min_length=1)]
    schema_version: str = "1"
    schema_registry: SchemaRegistry | None = None
    format: Annotated[Literal["json"], empty_means("json")] = "json"
    consumer_group_initial_offset: Annotated[Literal["earliest", "latest"], empty_means("earliest")] = "earliest"
    start: Start | None = Field(
        default=None,
        description="where the first start begins: earliest, latest, committed, or a time such as 2026-01-31T00:00:00Z",
    )
    consumer_group: Text | None = Field(
        default=None, description="whose offsets `start: committed` takes; GlassFlow's own for the pipeline by default"
    )
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed"

    @property
    def fields(self) -> tuple[SchemaField, ...]:
        """The declared fields, with what events need to have.

        GlassFlow leaves it to the schema which fields a record with a schema has: there a field has to be there only
        where the definition says so.
        """
        if self.schema_registry is None:
            return self.schema_fields
        return tuple(
            field if "required" in field.model_fields_set else field.model_copy(update={"required": False})
            for field in self.schema_fields
        )


class DedupConfig(Part):
    """The key of an event, how long it is remembered after its first appearance, and by which clock."""

    key: Text | None = None
    keys: tuple[Text, ...] = ()
    time_window: PositiveDuration
    clock: Literal["processing", "event"] = Field(
        default="processing", description="processing: the time of the batch; event: the time that the event names"
    )
    event_time: Text | None = Field(default=None, description="the field that says when an event happened")
    event_time_unit: TimeUnit | None = Field(default=None, description="of a number in event_time; s by default")
    late: Literal["drop", "keep", "dead_letter"] | None = Field(
        default=None, description="what becomes of an event behind the watermark; drop by default"
    )
    allowed_lateness: Duration | None = Field(
        default=None, description="how far behind the newest event an event may come; time_window by default"
    )

    @property
    def key_fields(self) -> tuple[str, ...]:
        """The fields that make up the key, in order."""
        return self.keys or ((self.key,) if self.key else ())

    @property
    def time_unit(self) -> TimeUnit:
        """What a number in the event time counts."""
        return self.event_time_unit or "s"

    @property
    def when_late(self) -> Literal["drop", "keep", "dead_letter"]:
        """What becomes of an event behind the watermark."""
        return self.late or "drop"

    @property
    def lateness(self) -> timedelta:
        """How far behind the newest event the watermark is."""
        return self.time_window if self.allowed_lateness is None else self.allowed_lateness


class Dedup(Part):
    """Lets the first event of a key pass, and counts those that follow within the window."""

    type: Literal["dedup"]
    source_id: Text
    config: DedupConfig


class FilterConfig(Part):
    """What an event must be like to go on."""

    expression: Text = Field(description="true keeps the event, false drops it")


class Filter(Part):
    """Lets events pass for which an expression is true, and counts the others."""

    type: Literal["filter"]
    source_id: Text
    config: FilterConfig


class Output(Part):
    """A field that an expression makes."""

    expression: Text
    output_name: Text
    output_type: str = Field(default="", description="string, int, float64, bool, []string ...; empty: as it comes")


class StatelessConfig(Part):
    """The fields of the event from here on; what is not listed is left out."""

    transforms: tuple[Output, ...]


class Stateless(Part):
    """Makes the fields of an event anew."""

    type: Literal["stateless"]
    source_id: Text
    config: StatelessConfig


Transform = Annotated[Dedup | Filter | Stateless, Field(discriminator="type")]


class ClickHouseConnection(Part):
    """How to reach ClickHouse, over HTTP.

    GlassFlow speaks the native protocol on `port`; here `http_port` counts, and where it is left out, the port that
    belongs to a native default (9000 -> 8123, 9440 -> 8443).
    """

    host: Text
    port: Port
    http_port: Annotated[Port | None, empty_means(None)] = None
    database: Text
    username: Text
    password: SecretStr = SecretStr("")
    secure: bool = False
    skip_certificate_verification: bool = False
    root_ca: str | None = Field(default=None, description="PEM of the authority, in base64 or as it is")
    client_cert: str | None = Field(default=None, description="PEM of this client's certificate, base64 or as it is")
    client_key: SecretStr | None = Field(default=None, description="PEM of its private key, base64 or as it is")

    @property
    def http(self) -> int:
        """The port that HTTP requests go to."""
        return self.http_port or {9000: 8123, 9440: 8443}.get(self.port, self.port)


class Mapping(Part):
    """A field of the event and the column that it fills."""

    name: Text
    column_name: Text
    column_type: ColumnTypeText

    @property
    def parsed_type(self) -> ColumnType:
        """The column's type as a tree."""
        return parse_column_type(self.column_type)


class ExtraColumn(Part):
    """A column of a created table that no event fills."""

    name: Text
    type: Text
    default: Text | None = Field(default=None, description="an SQL expression, such as now()")


class CreateTable(Part):
    """How to create the target table when it is missing; its mapped columns come from the mapping."""

    engine: Text = "MergeTree"
    order_by: Text = "tuple()"
    partition_by: Text | None = None
    ttl: Text | None = None
    columns: tuple[ExtraColumn, ...] = ()


class Sink(Part):
    """The ClickHouse table, and how rows are gathered into blocks."""

    type: Literal["clickhouse"]
    connection_params: ClickHouseConnection
    table: Text
    # 1,000 rows are what GlassFlow documents as its default.
    max_batch_size: Annotated[int, Field(gt=0)] = 1000
    max_delay_time: Delay = DELAY
    mapping: Annotated[tuple[Mapping, ...], Field(min_length=1)]
    source_id: str | None = None
    delivery: Delivery = Field(
        default="exactly_once",
        description="at_least_once: write to a table that cannot recognise a repeated insert, too; a batch that is "
        "repeated after a failure may double rows there",
    )
    deduplication_window: DeduplicationWindow | None = Field(
        default=None,
        description="a table's memory of insert tokens, where it is off: set switches it on, require refuses to start; "
        "left out: it is switched on unless others are known to write to the table",
    )
    create_table: CreateTable | None = None
    bookkeeping_engine: BookEngine = Field(
        default="MergeTree",
        description="engine of the project's own tables (glassflow_*) where they are made; a Replicated one where the "
        "connection leads to several servers",
    )
    cluster: Text | None = Field(
        default=None, description="makes and alters tables ON CLUSTER this; needed where a database is not Replicated"
    )

    @property
    def full_table(self) -> tuple[str, str]:
        """Database and table; a table may be written with its database."""
        database, dot, table = self.table.partition(".")
        return (database, table) if dot else (self.connection_params.database, self.table)


class Checks(Part):
    """How Dagster looks after the pipeline."""

    every: str = Field(
        default="*/15 * * * *",
        pattern=r"^\S+(\s+\S+){4}$",
        description="cron schedule (five fields) of the health check and the asset checks",
    )
    arrival_column: Text | None = Field(default=None, description="the column that says when a row arrived")
    other_writers: bool = Field(default=False, description="true: others write to the table too, so it holds more rows")
    max_dead_letters: Limit = Field(
        default=0, description="dead letters that may wait: a number, or a share of the records read, such as '0.5%'"
    )
    max_unmatched: Limit | None = Field(
        default=None,
        description="left events of a join that may stay without a match in a day: a number, or a share of those that "
        "were decided, such as '5%'; left out: any number",
    )
    show_values: bool | None = Field(
        default=None,
        description="true: Dagster's checks show keys and the beginnings of dead letters, and Dagster keeps them past "
        "any retention; left out: only with the embedded stack of `make dev`",
    )
    # Less would not do for a few rows of the books.
    max_memory_mib: Annotated[int, Field(ge=64)] = Field(
        default=2048,
        description="MiB of ClickHouse's memory that one query of a check or of `verify` may take; where a table is "
        "too large for it, duplicates are looked for in a share of the keys, and the report says so",
    )
    max_query_time: PositiveDuration = Field(
        default=timedelta(minutes=5), description="how long one query of a check or of `verify` may take"
    )


class DeadLetters(Part):
    """What is kept of records that could not go on, and how often one of them may be sent again."""

    retention: PositiveDuration | None = Field(
        default=None, description="how long dead letters are kept; left out: for ever"
    )
    max_attempts: Annotated[int, Field(ge=0, le=1000)] = Field(
        default=5, description="how often a record that keeps failing is sent again"
    )


class Metadata(Part):
    """Labels."""

    tags: tuple[str, ...] = ()


class PipelineConfig(Part):
    """One pipeline definition."""

    version: Literal["v3", ""] = "v3"
    pipeline_id: Annotated[str, Field(min_length=5, max_length=100, pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]*$")]
    name: str = ""
    metadata: Metadata = Metadata()
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    transforms: tuple[Transform, ...] = ()
    # Left out of dumps and digests where there is none.
    join: OptionalJoin = Field(default=None, exclude_if=lambda join: join is None)
    sink: Sink
    checks: Checks = Checks()
    dead_letters: DeadLetters = DeadLetters()
    resources: Resources | None = None
    # Left out of dumps and fingerprints where nothing is set.
    spark: SparkSettings = Field(
        default={}, exclude_if=lambda settings: not settings,
        description="settings of Spark, in place of those that the product chooses",
    )  # fmt: skip

    @property
    def inputs(self) -> tuple[Source, ...]:
        """The sources that the pipeline reads: a join's left and right one, else the only one."""
        if self.join is None:
            return self.sources[:1]
        by_id = {source.source_id: source for source in self.sources}
        return tuple(by_id[side.source_id] for side in self.join.sides)

    @property
    def source(self) -> Source:
        """The pipeline's one source; a join's left one."""
        return self.inputs[0]

    @property
    def connection(self) -> KafkaConnection:
        """How to reach the brokers, which are the same for all inputs."""
        return self.source.connection_params

    @property
    def fields(self) -> tuple[SchemaField, ...]:
        """`fields_of` the one source."""
        return self.fields_of(self.source)

    def fields_of(self, source: Source) -> tuple[SchemaField, ...]:
        """Give a source's fields, with what events need to have: the key of deduplication, whatever a schema says.

        A join's key need not be there: an event without it has no match.
        """
        dedup = self.dedup_of(source)
        keys = dedup.key_fields if dedup else ()
        both = zip(source.schema_fields, source.fields, strict=True)
        return tuple(declared if declared.name in keys else field for declared, field in both)

    @property
    def glassflow_consumer_group(self) -> str:
        """The consumer group that GlassFlow itself reads this pipeline's topics with."""
        return f"glassflow-consumer-group-{hashlib.sha256(self.pipeline_id.encode()).hexdigest()[:8]}"

    @property
    def dedup(self) -> DedupConfig | None:
        """`dedup_of` the one source."""
        return self.dedup_of(self.source)

    def dedup_of(self, source: Source) -> DedupConfig | None:
        """Give how a source's events are deduplicated, or None when they are not."""
        mine = (t for t in self.transforms if t.source_id == source.source_id)
        return next((t.config for t in mine if isinstance(t, Dedup)), None)

    @property
    def replay_topic(self) -> str:
        """The topic that dead letters are sent to again; the pipeline reads it beside its sources."""
        return f"{self.pipeline_id}.glassflow-replay"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that the pipeline reads, in the order in which the records of one batch follow each other."""
        return (*(source.topic for source in self.inputs), self.replay_topic)

    @property
    def digest(self) -> str:
        """A name for what decides about rows and blocks: two definitions with the same digest cut the same blocks."""
        relevant = self.model_dump(
            mode="json",
            exclude={
                "name": True,
                "metadata": True,
                "checks": True,
                "dead_letters": True,
                "resources": True,
                "spark": True,
                "sources": {"__all__": {"connection_params"}},
                "sink": {
                    "connection_params": True,
                    "create_table": True,
                    "delivery": True,
                    "deduplication_window": True,
                    "bookkeeping_engine": True,
                    "cluster": True,
                },
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
