"""The structure of a v1 or v2 definition: its keys at each path. The values are checked later, by v3's models.

One structure serves both versions: see `rewrite.py`.
"""

from typing import Any

from pydantic import BaseModel, ConfigDict, StrictBool

from glassflow_dagster.definition.formats.draft import Raw


class _Shape(BaseModel):
    """An object that reports unknown keys."""

    model_config = ConfigDict(extra="forbid")


class _Field(_Shape):
    source_id: str | None = None
    name: Any = None
    type: Any = None
    column_name: Any = None
    column_type: Any = None


class _Schema(_Shape):
    type: Any = None
    fields: list[_Field] | None = None


class _Deduplication(_Shape):
    enabled: StrictBool | None = None
    id_field: Any = None
    key: Any = None
    id_field_type: Any = None
    time_window: Any = None


class _Topic(_Shape):
    id: str | None = None
    name: str | None = None
    consumer_group_initial_offset: Any = None
    replicas: Any = None
    topic_schema: _Schema | None = None
    schema_fields: list[_Field] | None = None
    schema_version: Any = None
    schema_registry: Any = None
    deduplication: _Deduplication | None = None

    # The key is `schema`, which is a method of pydantic's models: the prefix avoids it.
    model_config = ConfigDict(extra="forbid", alias_generator=lambda name: name.removeprefix("topic_"))


class _Source(_Shape):
    type: Any = None
    provider: Any = None
    connection_params: Any = None
    topics: list[_Topic]


class _JoinSource(_Shape):
    source_id: str | None = None
    join_key: Any = None
    key: Any = None
    time_window: Any = None
    orientation: Any = None


class _Join(_Shape):
    enabled: StrictBool | None = None
    type: Any = None
    id: Any = None
    sources: list[_JoinSource] | None = None
    fields: list[Raw] | None = None


class _Filter(_Shape):
    enabled: StrictBool | None = None
    id: Any = None
    source_id: Any = None
    expression: Any = None


class _StatelessConfig(_Shape):
    transform: list[Raw] | None = None


class _Stateless(_Shape):
    enabled: StrictBool | None = None
    id: str | None = None
    type: Any = None
    source_id: str | None = None
    config: _StatelessConfig | None = None


class _TableMapping(_Shape):
    source_id: str | None = None
    field_name: Any = None
    column_name: Any = None
    column_type: Any = None


class _Connection(_Shape):
    host: Any = None
    port: Any = None
    http_port: Any = None
    database: Any = None
    username: Any = None
    password: Any = None
    secure: Any = None
    skip_certificate_verification: Any = None


class _Sink(_Connection):
    type: Any = None
    provider: Any = None
    connection_params: _Connection | None = None
    table: Any = None
    max_batch_size: Any = None
    max_delay_time: Any = None
    source_id: Any = None
    # This project's: two definitions that GlassFlow runs as they are may write to one table.
    shared_table: Any = None
    table_mapping: list[_TableMapping] | None = None
    mapping: list[_Field] | None = None


class _Ingestor(_Shape):
    base: Raw | None = None
    left: Raw | None = None
    right: Raw | None = None


class _Resources(_Shape):
    ingestor: _Ingestor | None = None
    join: Raw | None = None
    transform: Raw | None = None
    sink: Raw | None = None
    nats: Raw | None = None


class OlderDefinition(_Shape):
    """A complete v1 or v2 definition."""

    version: Any = None
    pipeline_id: Any = None
    name: Any = None
    metadata: Any = None
    source: _Source
    join: _Join | None = None
    filter: _Filter | None = None
    stateless_transformation: _Stateless | None = None
    older_schema: _Schema | None = None
    sink: _Sink
    pipeline_resources: _Resources | None = None

    model_config = ConfigDict(extra="forbid", alias_generator=lambda name: name.removeprefix("older_"))


def check_shape(raw: Raw) -> None:
    """Check the structure of an older definition; raises `ValidationError` for unknown keys and wrong types."""
    OlderDefinition.model_validate(raw)
