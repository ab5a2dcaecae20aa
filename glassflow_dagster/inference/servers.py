"""The servers of a proposed definition: those that the caller names, those of a definition, or the environment's."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from glassflow_dagster.definition.load import convert_definition, load_pipeline
from glassflow_dagster.definition.model.connections import KafkaConnection, SchemaRegistry
from glassflow_dagster.definition.plain_secrets import SECRETS
from glassflow_dagster.definition.servers import clickhouse_address
from glassflow_dagster.definition.variables import holds_variable
from glassflow_dagster.errors import GlassflowError

# The servers of the embedded stack.
DEFAULT_BROKERS = "127.0.0.1:9092"
DEFAULT_CLICKHOUSE = "http://default:@127.0.0.1:8123"
DEFAULT_DATABASE = "default"
# What follows a variable in a reference whose variable may be unset, so that `validate` accepts the definition at once:
# ClickHouse often has no password.
_EMPTY_IF_UNSET = ":-"


@dataclass(frozen=True)
class Connections:
    """The `connection_params` of Kafka and of ClickHouse, `schema_registry`, and a comment on each ('' for none).

    registry: None, or empty, where the caller names none.
    """

    kafka: dict[str, Any]
    clickhouse: dict[str, Any]
    kafka_remark: str = ""
    clickhouse_remark: str = ""
    registry: dict[str, Any] | None = None
    registry_remark: str = ""


@dataclass(frozen=True)
class Servers:
    """The servers that a caller of `infer` names; what is None comes from `source`, the environment or the defaults.

    brokers: host:port list, reached without encryption or credentials.
    source: a definition whose connections are used.
    clickhouse_url: http://user@host:port/database, to which no connection is made.
    registry_url: a schema registry without credentials.
    """

    brokers: str | None = None
    source: Path | None = None
    clickhouse_url: str | None = None
    registry_url: str | None = None

    def registry(self) -> SchemaRegistry | None:
        """Return the schema registry to read from; None where there is none."""
        if self.registry_url:
            return SchemaRegistry(url=self.registry_url)
        return load_pipeline(self.source).source.schema_registry if self.source else None

    def kafka(self) -> KafkaConnection:
        """Return the connection to read from; raises `GlassflowError` where the brokers are no addresses."""
        if self.source and not self.brokers:
            return load_pipeline(self.source).source.connection_params
        text = self.brokers or os.environ.get("GLASSFLOW_KAFKA_BROKERS") or DEFAULT_BROKERS
        addresses = broker_addresses(text)
        if not addresses:
            raise GlassflowError("brokers: write HOST:PORT, several with commas between them")
        return KafkaConnection(brokers=addresses)

    def connections(self, kafka_connection: KafkaConnection) -> Connections:
        """Return both `connection_params` of the proposed definition, their secrets replaced by variables.

        They are copied from the definition in `source`, with its `${...}` references, unless the caller names the
        server. A remark on a server becomes a comment of the definition, and names the variables to set.
        """
        template = convert_definition(self.source).definition if self.source else None
        kafka: dict[str, Any] = {"brokers": list(kafka_connection.brokers)}
        kafka_remark = ""
        if template and not self.brokers:
            kafka, kafka_remark = _replace_secrets(template["sources"][0]["connection_params"], "KAFKA")
        if template and not self.clickhouse_url:
            parameters = template["sink"]["connection_params"]
        else:
            url = self.clickhouse_url or os.environ.get("GLASSFLOW_CLICKHOUSE_URL") or DEFAULT_CLICKHOUSE
            setting = "--clickhouse-url" if self.clickhouse_url else "GLASSFLOW_CLICKHOUSE_URL"
            parameters = _clickhouse_parameters(url, setting)
        clickhouse, clickhouse_remark = _replace_secrets(parameters, "CLICKHOUSE", _EMPTY_IF_UNSET)
        registry = {"url": self.registry_url} if self.registry_url else {}
        if template and not registry:
            registry = template["sources"][0].get("schema_registry") or {}
        registry, registry_remark = _replace_secrets(registry, "REGISTRY")
        return Connections(kafka, clickhouse, kafka_remark, clickhouse_remark, registry, registry_remark)


def broker_addresses(text: str) -> tuple[str, ...]:
    """Return the addresses in a text with commas between them; empty without any."""
    return tuple(part for item in text.split(",") if (part := item.strip()))


def _clickhouse_parameters(url: str, setting: str) -> dict[str, Any]:
    """Convert http://user:password@host:port/database to the sink's `connection_params`.

    The keys are in the order in which the definition prints them: database first, password last. setting: the option
    or variable that holds the URL; the error for an invalid URL names it.
    """
    parameters = clickhouse_address(url, setting)
    password = parameters.pop("password")
    database = urlsplit(url).path.strip("/") or DEFAULT_DATABASE
    return {"database": database, **parameters, "password": password}


def _replace_secrets(parameters: dict[str, Any], prefix: str, default: str = "") -> tuple[dict[str, Any], str]:
    """Replace plain secrets in `connection_params` by variables such as `${KAFKA_PASSWORD}`.

    Returns the parameters and a remark that names the variables to set ('' without secrets).

    prefix: of the variables' names.
    default: what follows a variable's name in the reference; ":-" makes it empty when the variable is unset.
    """
    variables: list[str] = []
    replaced = _with_references(parameters, prefix, default, variables)
    remark = f"set {', '.join(variables)}: the definition contains no secrets" if variables else ""
    return replaced, remark


def _with_references(part: dict[str, Any], prefix: str, default: str, variables: list[str]) -> dict[str, Any]:
    """Return a part of `connection_params` with references in place of secrets; adds their variables' names."""
    replaced: dict[str, Any] = {}
    for key, value in part.items():
        if isinstance(value, dict):
            replaced[key] = _with_references(value, prefix, default, variables)
        elif key in SECRETS and value and not holds_variable(str(value)):
            variables.append(f"{prefix}_{key.upper()}")
            replaced[key] = f"${{{variables[-1]}{default}}}"
        else:
            replaced[key] = value
    return replaced
