"""The parts of v3 definitions, as parsed files have them: what a test does not name is as plain as it may be."""

from collections.abc import Mapping, Sequence
from typing import Any

# Brokers and a ClickHouse that nobody asks.
NOWHERE = "127.0.0.1:1"
PLAINTEXT = {"protocol": "PLAINTEXT", "mechanism": "NO_AUTH"}


def fields(**types: str) -> list[dict[str, Any]]:
    """List the fields of events: name -> type."""
    return [{"name": name, "type": kind} for name, kind in types.items()]


def source(
    source_id: str, schema_fields: Sequence[dict[str, Any]], brokers: str = NOWHERE, **changes: Any
) -> dict[str, Any]:
    """Describe a topic that is called as its source; `changes` are further keys, or others."""
    return {
        "type": "kafka",
        "source_id": source_id,
        "topic": source_id,
        "connection_params": {"brokers": [brokers], **PLAINTEXT},
        "schema_fields": [*schema_fields],
        **changes,
    }


def dedup(source_id: str, *keys: str, time_window: str, **config: Any) -> dict[str, Any]:
    """Let the first event of a key pass within the window."""
    key = {"key": keys[0]} if len(keys) == 1 else {"keys": [*keys]}
    return {"type": "dedup", "source_id": source_id, "config": {**key, "time_window": time_window, **config}}


def keep(source_id: str, expression: str) -> dict[str, Any]:
    """Filter events."""
    return {"type": "filter", "source_id": source_id, "config": {"expression": expression}}


def make(source_id: str, *outputs: tuple[str, str] | tuple[str, str, str]) -> dict[str, Any]:
    """Make fields anew: name, expression and, where it is not string, type of each."""
    transforms = [
        {"output_name": name, "expression": expression, "output_type": rest[0] if rest else "string"}
        for name, expression, *rest in outputs
    ]
    return {"type": "stateless", "source_id": source_id, "config": {"transforms": transforms}}


def mapping(name: str, column_type: str, column_name: str | None = None) -> dict[str, Any]:
    """Fill a column, which is called as its field by default."""
    return {"name": name, "column_name": column_name or name, "column_type": column_type}


def clickhouse(port: int = 1, database: str = "d") -> dict[str, Any]:
    """Reach a ClickHouse of this machine."""
    return {
        "host": "127.0.0.1", "port": str(port), "http_port": str(port), "database": database,
        "username": "default", "password": "", "secure": False,
    }  # fmt: skip


def sink(
    columns: Mapping[str, str] | Sequence[dict[str, Any]], connection: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """Write to a table. columns: field -> type of its column of the same name, or what `mapping` gives of each."""
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
    """Put a definition together; `changes` are further keys, such as join."""
    return {
        "version": "v3",
        "pipeline_id": pipeline_id,
        "sources": [sources] if isinstance(sources, dict) else [*sources],
        "transforms": [*transforms],
        "sink": target,
        **changes,
    }
