"""A pipeline definition: GlassFlow's v3 format and this project's extensions, as pydantic models.

Extensions are optional, so that a definition written for GlassFlow keeps its meaning; each part's module lists its
own. Rules that need more than one field are in `rules/`; `load.py` reads files.
"""

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, SecretStr, model_validator

from glassflow_dagster.definition.model.checks import Checks, DeadLetters
from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.definition.model.fields import Part
from glassflow_dagster.definition.model.join import OptionalJoin
from glassflow_dagster.definition.model.metrics import Metrics
from glassflow_dagster.definition.model.origin import Origin
from glassflow_dagster.definition.model.otlp import complete
from glassflow_dagster.definition.model.resources import Resources
from glassflow_dagster.definition.model.sink import Sink
from glassflow_dagster.definition.model.source import SchemaField, Source
from glassflow_dagster.definition.model.spark import SparkSettings
from glassflow_dagster.definition.model.state import State, accept_url
from glassflow_dagster.definition.model.transforms import Dedup, DedupConfig, Transform

# Ends the name of the topic of a pipeline's replayed dead letters.
REPLAY_SUFFIX = ".glassflow-replay"
# Also the name of a folder.
POOL_NAME = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$"
# What happens when a field appears that the definition does not declare.
SchemaEvolution = Literal["ignore", "add_columns", "fail"]
PoolName = Annotated[str, Field(pattern=POOL_NAME)]


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
    # Excluded from dumps and digests when there is none.
    join: OptionalJoin = Field(default=None, exclude_if=lambda join: join is None)
    sink: Sink
    checks: Checks = Checks()
    dead_letters: DeadLetters = DeadLetters()
    resources: Resources | None = None
    # Excluded from dumps and fingerprints when nothing is set.
    spark: SparkSettings = Field(
        default={}, exclude_if=lambda settings: not settings,
        description="Spark settings that override the product's own",
    )  # fmt: skip
    # Excluded from dumps and fingerprints when nothing is set.
    pool: PoolName | None = Field(
        default=None, exclude_if=lambda pool: pool is None,
        description="the pool whose Spark JVM the driver shares with other pipelines; without it, it starts its own",
    )  # fmt: skip
    # Excluded from dumps and fingerprints when nothing is set.
    metrics: Metrics = Field(default=Metrics(), exclude_if=lambda metrics: metrics == Metrics())
    # Excluded from dumps and fingerprints when nothing is set.
    state: State | None = Field(
        default=None, exclude_if=lambda state: state is None, json_schema_extra=accept_url,
        description="the store of the checkpoint: its URL, or a mapping; without it, the local folder",
    )  # fmt: skip
    # Excluded from dumps and fingerprints when it is the default.
    schema_evolution: SchemaEvolution = Field(
        default="ignore", exclude_if=lambda mode: mode == "ignore",
        description="what a field does that the definition does not declare and that begins to appear: nothing; it "
        "gets a column, which it fills from then on; or the pipeline stops",
    )  # fmt: skip
    _origin: Origin = PrivateAttr(default_factory=Origin)

    @model_validator(mode="before")
    @classmethod
    def _complete_otlp(cls, raw: Any) -> Any:
        """Add what the type of an OTLP source decides, such as its fields."""
        return complete(raw)

    @property
    def origin(self) -> Origin:
        """Where the definition comes from; no part of its content."""
        return self._origin

    def with_origin(self, origin: Origin) -> "PipelineConfig":
        """Return the same definition with another origin."""
        copy = self.model_copy()
        copy._origin = origin  # noqa: SLF001 - of this class
        return copy

    @property
    def by_table(self) -> tuple["PipelineConfig", ...]:
        """The definition for each table that it fills, its sink being that of the table: `Sink.by_table`.

        For what is done table by table. The records of a table follow from the whole definition only.
        """
        if not self.sink.routes:
            return (self,)
        return tuple(self.model_copy(update={"sink": sink}) for sink in self.sink.by_table)

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
        """The connection to the brokers, which all inputs share."""
        return self.source.connection_params

    @property
    def fields(self) -> tuple[SchemaField, ...]:
        """`fields_of` the one source."""
        return self.fields_of(self.source)

    def fields_of(self, source: Source) -> tuple[SchemaField, ...]:
        """Return a source's fields with their effective `required`: whether an event without the field is invalid.

        With a schema registry most fields are optional (see `Source.fields`), but not those of the deduplication key,
        which are as declared: without its key an event cannot be deduplicated. Those of a join's key are optional, as
        an event without it has no match. Of an OTLP source, which declares no fields, those of the key are required,
        except attributes: these are empty texts in an event without them.
        """
        dedup = self.dedup_of(source)
        keys = dedup.key_fields if dedup else ()
        if source.signal:
            return tuple(
                field.model_copy(update={"required": True}) if field.name in keys else field
                for field in source.schema_fields
            )
        pairs = zip(source.schema_fields, source.fields, strict=True)
        return tuple(declared if declared.name in keys else field for declared, field in pairs)

    @property
    def glassflow_consumer_group(self) -> str:
        """The consumer group with which GlassFlow itself reads this pipeline's topics."""
        return f"glassflow-consumer-group-{hashlib.sha256(self.pipeline_id.encode()).hexdigest()[:8]}"

    @property
    def dedup(self) -> DedupConfig | None:
        """`dedup_of` the one source."""
        return self.dedup_of(self.source)

    def dedup_of(self, source: Source) -> DedupConfig | None:
        """Return the deduplication of a source; None when it has none."""
        of_source = (t for t in self.transforms if t.source_id == source.source_id)
        return next((t.config for t in of_source if isinstance(t, Dedup)), None)

    @property
    def other_writers(self) -> str:
        """Why the sink's tables may have rows of others; '' where the definition names no other writers."""
        if self.sink.shared_table:
            return "other pipelines write to the table too (sink.shared_table)"
        return "others write to the table too (checks.other_writers)" if self.checks.other_writers else ""

    @property
    def has_state(self) -> bool:
        """Whether the query has a state, in partitions by key: it deduplicates or joins."""
        return self.join is not None or self.dedup is not None

    @property
    def replay_topic(self) -> str:
        """The topic to which dead letters are replayed; the pipeline reads it besides its sources."""
        return f"{self.pipeline_id}{REPLAY_SUFFIX}"

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that the pipeline reads, in the order of their records within a micro-batch."""
        return (*(topic for source in self.inputs for topic in source.topic_names), self.replay_topic)

    @property
    def source_topics(self) -> tuple[str, ...]:
        """The topics of the inputs: `topics` without the replay topic."""
        return self.topics[:-1]

    @property
    def digest(self) -> str:
        """The SHA-256 of everything that decides rows and insert blocks; equal digests mean equal blocks."""
        relevant = self.model_dump(
            mode="json",
            exclude={
                "name": True,
                "metadata": True,
                "checks": True,
                "dead_letters": True,
                "resources": True,
                "spark": True,
                "pool": True,
                "metrics": True,
                "state": True,
                "schema_evolution": True,
                "sources": {"__all__": {"connection_params": True, "schema_registry": _REGISTRY_ACCESS}},
                "sink": {
                    "connection_params": True,
                    "create_table": True,
                    "delivery": True,
                    "deduplication_window": True,
                    "bookkeeping_engine": True,
                    "cluster": True,
                    "shared_table": True,
                    "routes": {"__all__": {"create_table": True}},
                },
            },
        )
        for source in relevant["sources"]:
            # As before these keys were there, so that checkpoints of older releases keep their digests.
            if source["schema"] is None:
                del source["schema"]
            if source["tombstones"] == "dead_letter":
                del source["tombstones"]
            # The topics that match later do not decide the records of those before.
            if "topic_pattern" in source:
                source.pop("topics", None)
        return hashlib.sha256(json.dumps(relevant, sort_keys=True).encode()).hexdigest()

    @property
    def digests(self) -> frozenset[str]:
        """The digests of the definitions that decide the records of their topics as this one does.

        These are its own, and those with fewer topics, as topics are only added behind the others.
        """
        source = self.source
        fewer: list[dict[str, Any]] = [{"topics": source.topics[:count]} for count in range(1, len(source.topics))]
        first: list[dict[str, Any]] = [{"topic": topic, "topics": ()} for topic in source.topics[:1]]
        earlier = (
            self.model_copy(update={"sources": (source.model_copy(update=change), *self.sources[1:])})
            for change in (*fewer, *first)
        )
        return frozenset({self.digest, *(config.digest for config in earlier)})

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of everything that a driver is started with, servers and secrets included."""
        everything = self.model_dump(mode="python", exclude={"name", "metadata", "checks", "resources"})
        # `_plain` writes secrets in plain text: a new password changes the fingerprint.
        return hashlib.sha256(json.dumps(everything, sort_keys=True, default=_plain).encode()).hexdigest()

    @property
    def content(self) -> dict[str, Any]:
        """The definition as values of JSON, secrets in plain text; validating them gives an equal definition."""
        content: dict[str, Any] = json.loads(
            json.dumps(self.model_dump(mode="python", by_alias=True, exclude_unset=True), default=_plain)
        )
        return content


# Keys that say how the registry is reached, and not what it holds.
_REGISTRY_ACCESS = {"bearer_token", "root_ca", "client_cert", "client_key"}


def _plain(value: Any) -> str:
    """Return a value that JSON cannot write as text; a secret in plain text, since only its hash is kept."""
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)
