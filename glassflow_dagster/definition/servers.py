"""Replace the servers of a definition by those of the environment.

With `GLASSFLOW_KAFKA_BROKERS` and `GLASSFLOW_CLICKHOUSE_URL` a definition runs unchanged against other servers, and
with a URL in `GLASSFLOW_STATE` it keeps its checkpoint in another store. With
`GLASSFLOW_CONNECTIONS` any keys of its connections are replaced, such as those of encryption and credentials.
"""

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError

from glassflow_dagster.definition.model.connections import ClickHouseConnection, KafkaConnection
from glassflow_dagster.definition.model.fields import Part
from glassflow_dagster.definition.model.otlp import signal_of
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.state import STATE, State, is_url
from glassflow_dagster.definition.problems import suggestion
from glassflow_dagster.errors import GlassflowError

CONNECTIONS = "GLASSFLOW_CONNECTIONS"
_MODELS: dict[str, type[Part]] = {"kafka": KafkaConnection, "clickhouse": ClickHouseConnection}


def with_connections_of(definition: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return a v3 definition with the connection keys of the environment's `GLASSFLOW_CONNECTIONS`, if it is set.

    OTLP sources without a connection get GLASSFLOW_KAFKA_BROKERS, where it is set, and these keys beside it.
    The variable is JSON: {"kafka": {...}, "clickhouse": {...}}, each with keys of `connection_params`, which replace
    those of every source and of the sink. Raises `GlassflowError` for JSON of another shape, and for unknown keys.
    """
    text = environment.get(CONNECTIONS)
    definition = _with_brokers_of(definition, environment)
    if not text:
        return definition
    connections = _parsed(text)
    sources, sink = definition.get("sources"), definition.get("sink")
    # A definition without them is invalid, which the models report.
    changed = dict(definition)
    if isinstance(sources, list):
        changed["sources"] = [_with_keys(source, connections.get("kafka", {})) for source in sources]
    if sink is not None:
        changed["sink"] = _with_keys(sink, connections.get("clickhouse", {}))
    return changed


def _with_brokers_of(definition: dict[str, Any], environment: Mapping[str, str]) -> dict[str, Any]:
    """Return a definition whose OTLP sources have a connection, where the environment has brokers.

    GlassFlow's have none, since its receiver takes the requests; `with_servers_of` replaces only those that are there.
    """
    brokers, sources = environment.get("GLASSFLOW_KAFKA_BROKERS"), definition.get("sources")
    if not brokers or not isinstance(sources, list):
        return definition
    connection = {"connection_params": {"brokers": brokers.split(",")}}
    completed = [
        {**source, **connection}
        if isinstance(source, dict) and signal_of(source.get("type")) and not source.get("connection_params")
        else source
        for source in sources
    ]
    return {**definition, "sources": completed}


def _parsed(text: str) -> dict[str, dict[str, Any]]:
    """Parse the variable's JSON; raises `GlassflowError` for another shape, and for unknown keys."""
    try:
        connections = json.loads(text)
    except ValueError:
        connections = None
    if not isinstance(connections, dict) or not all(isinstance(keys, dict) for keys in connections.values()):
        raise GlassflowError(
            f'{CONNECTIONS}: is not JSON such as {{"kafka": {{"brokers": ["host:9092"]}}}}; correct it'
        )
    require_known_keys(connections, CONNECTIONS)
    return connections


def require_known_keys(connections: Mapping[str, Mapping[str, Any]], setting: str) -> None:
    """Raise `GlassflowError`, which names the setting, for a server or a key of `connection_params` that is unknown."""
    for server, keys in connections.items():
        if server not in _MODELS:
            raise GlassflowError(f"{setting}.{server}: unknown key; {suggestion(server, list(_MODELS))}")
        known = list(_MODELS[server].model_fields)
        for key in keys:
            if key not in known:
                raise GlassflowError(f"{setting}.{server}.{key}: unknown key; {suggestion(key, known)}")


def _with_keys(part: Any, keys: Mapping[str, Any]) -> Any:
    """Return a source or sink whose `connection_params` has these keys; any other value unchanged."""
    if not keys or not isinstance(part, dict):
        return part
    connection = part.get("connection_params")
    return {**part, "connection_params": {**(connection if isinstance(connection, dict) else {}), **keys}}


def with_servers_of(config: PipelineConfig, environment: Mapping[str, str]) -> PipelineConfig:
    """Return the definition with the servers of the environment, as far as its variables are set.

    GLASSFLOW_KAFKA_BROKERS replaces the whole connection of every source, GLASSFLOW_CLICKHOUSE_URL the address, user
    and password of the sink, GLASSFLOW_STATE the URL of the checkpoint's store.
    """
    brokers = environment.get("GLASSFLOW_KAFKA_BROKERS")
    sources, sink = config.sources, config.sink
    if brokers:
        # Only the addresses: the servers of the environment are reached without encryption or credentials.
        plain_connection = type(config.connection)(brokers=tuple(brokers.split(",")))
        sources = tuple(source.model_copy(update={"connection_params": plain_connection}) for source in sources)
    connection = with_address_of(sink.connection_params, environment)
    if connection is not sink.connection_params:
        sink = sink.model_copy(update={"connection_params": connection})
    return config.model_copy(update={"sources": sources, "sink": sink, "state": _state_of(config, environment)})


def with_address_of(connection: ClickHouseConnection, environment: Mapping[str, str]) -> ClickHouseConnection:
    """Return a connection with the address, user and password of GLASSFLOW_CLICKHOUSE_URL, if it is set."""
    url = environment.get("GLASSFLOW_CLICKHOUSE_URL")
    if not url:
        return connection
    replaced = connection.model_copy(update=clickhouse_address(url, "GLASSFLOW_CLICKHOUSE_URL"))
    # model_copy does not validate; model_validate does.
    return type(replaced).model_validate(dict(replaced))


def _state_of(config: PipelineConfig, environment: Mapping[str, str]) -> State | None:
    """Return the store of the checkpoint: the environment's, if it has a URL, with the definition's access to it.

    Raises `GlassflowError` for a URL that is no store.
    """
    url = environment.get(STATE, "")
    if not is_url(url):
        return config.state  # a local folder, or nothing
    try:
        return State.model_validate({**(dict(config.state) if config.state else {}), "url": url})
    except ValidationError as error:
        raise GlassflowError(f"{STATE}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def clickhouse_address(url: str, setting: str) -> dict[str, Any]:
    """Parse `http://user:password@host:port` to connection_params; raises `GlassflowError` that names the setting."""
    problem = f"{setting}: is not an address; write http://user:password@host:port"
    try:
        parts = urlsplit(url)
        # The default ports of ClickHouse's HTTP interface.
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
