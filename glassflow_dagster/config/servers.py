"""Replace the servers of a definition by those of the environment.

With `GLASSFLOW_KAFKA_BROKERS` and `GLASSFLOW_CLICKHOUSE_URL` a definition runs unchanged against other servers.
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError


def with_servers_of(config: PipelineConfig, environment: Mapping[str, str]) -> PipelineConfig:
    """Return the definition with the servers of the environment, as far as its variables are set."""
    brokers = environment.get("GLASSFLOW_KAFKA_BROKERS")
    url = environment.get("GLASSFLOW_CLICKHOUSE_URL")
    sources, sink = config.sources, config.sink
    if brokers:
        plain = type(config.connection)(brokers=tuple(brokers.split(",")))
        sources = tuple(source.model_copy(update={"connection_params": plain}) for source in sources)
    if url:
        connection = sink.connection_params.model_copy(update=clickhouse_address(url, "GLASSFLOW_CLICKHOUSE_URL"))
        sink = sink.model_copy(update={"connection_params": type(connection).model_validate(dict(connection))})
    return config.model_copy(update={"sources": sources, "sink": sink})


def clickhouse_address(url: str, setting: str) -> dict[str, Any]:
    """Parse `http://user:password@host:port` to connection_params; raises `GlassflowError` that names the setting."""
    problem = f"{setting}: is not an address; write http://user:password@host:port"
    try:
        parts = urlsplit(url)
        port = parts.port or (8443 if parts.scheme == "https" else 8123)
    except ValueError:
        raise GlassflowError(problem) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise GlassflowError(problem)
    return {
        "host": parts.hostname,
        "port": port,
        "http_port": port,
        "username": unquote(parts.username or "default"),
        "password": unquote(parts.password or ""),
        "secure": parts.scheme == "https",
    }
