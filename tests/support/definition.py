"""Builders for parts of v3 definitions as parsed from a file; what a test does not set has the simplest valid value."""

from collections.abc import Mapping, Sequence
from typing import Any

# Addresses at which no server listens.
NOWHERE = "127.0.0.1:1"
PLAINTEXT = {"protocol": "PLAINTEXT", "mechanism": "NO_AUTH"}


def fields(**types: str) -> list[dict[str, Any]]:
    """List the fields of events: name -> type."""
    return [{"name": name, "type": kind} for name, kind in types.items()]


def source(
    source_id: str, schema_fields: Sequence[dict[str, Any]], brokers: str = NOWHERE, **changes: Any
) -> dict[str, Any]:
    """Return a source whose topic has the same name; `changes` set further keys."""
    return {
        "type": "kafka",
        "source_id": source_id,
        "topic": source_id,
        "connection_params": {"brokers": [brokers], **PLAINTEXT},
        "schema_fields": [*schema_fields],
        **changes,
    }


def dedup(source_id: str, *keys: str, time_window: str, **config: Any) -> dict[str, Any]:
    """Return a deduplication by these keys within a time window."""
    key = {"key": keys[0]} if len(keys) == 1 else {"keys": [*keys]}
    return {"type": "dedup", "source_id": source_id, "config": {**key, "time_window": time_window, **config}}


def filter_transform(source_id: str, expression: str) -> dict[str, Any]:
    """Return a filter that keeps events for which the expression is true."""
    return {"type": "filter", "source_id": source_id, "config": {"expression": expression}}


def stateless_transform(source_id: str, *outputs: tuple[str, str] | tuple[str, str, str]) -> dict[str, Any]:
    """Return a stateless transform with outputs (name, expression[, type]); the type is string by default."""
    transforms = [
        {"output_name": name, "expression": expression, "output_type": rest[0] if rest else "string"}
        for name, expression, *rest in outputs
    ]
    return {"type": "stateless", "source_id": source_id, "config": {"transforms": transforms}}


def mapping(name: str, column_type: str, column_name: str | None = None) -> dict[str, Any]:
    """Map a field to a column, by default of the same name."""
    return {"name": name, "column_name": column_name or name, "column_type": column_type}


def clickhouse(port: int = 1, database: str = "d") -> dict[str, Any]:
    """Return the connection to a ClickHouse on this machine."""
    return {
        "host": "127.0.0.1", "port": str(port), "http_port": str(port), "database": database,
        "username": "default", "password": "", "secure": False,
    }  # fmt: skip


def sink(
    columns: Mapping[str, str] | Sequence[dict[str, Any]], connection: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """Return a sink; columns: field -> type of the column of the same name, or a list of `mapping` results."""
    mapped = [mapping(*column) for column in columns.items()] if isinstance(columns, Mapping) else [*columns]
    return {
        "type": "clickhouse",
        "connection_params": connection or clickhouse(),
        "table": "t",
        "mapping": mapped,
        **changes,
    }


def definition(
    pipeline_id: str,
    sources: dict[str, Any] | Sequence[dict[str, Any]],
    target: dict[str, Any],
    *transforms: dict[str, Any],
    **changes: Any,
) -> dict[str, Any]:
    """Return a complete definition; `changes` set further keys, such as join."""
    return {
        "version": "v3",
        "pipeline_id": pipeline_id,
        "sources": [sources] if isinstance(sources, dict) else [*sources],
        "transforms": [*transforms],
        "sink": target,
        **changes,
    }
