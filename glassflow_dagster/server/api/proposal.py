"""A definition that is proposed for a topic, as the command `infer` does."""

from dataclasses import dataclass
from typing import Any

from glassflow_dagster.definition.model.connections import KafkaConnection, SchemaRegistry
from glassflow_dagster.definition.yaml_text import read_yaml
from glassflow_dagster.inference.servers import Connections, Servers
from glassflow_dagster.inference.topic import propose_for_topic
from glassflow_dagster.server.api.secrets import masked


@dataclass(frozen=True)
class GivenServers(Servers):
    """Servers that a request names. sink: connection_params of ClickHouse as sent; None for the default's."""

    connection: KafkaConnection | None = None
    given_registry: SchemaRegistry | None = None
    sink: dict[str, Any] | None = None

    def registry(self) -> SchemaRegistry | None:
        """Return the schema registry to read from; None where there is none."""
        return self.given_registry

    def kafka(self) -> KafkaConnection:
        """Return the connection to read from."""
        return self.connection or super().kafka()

    def connections(self, kafka_connection: KafkaConnection) -> Connections:
        """Return both `connection_params` of the definition, with masks for their secrets."""
        own = super().connections(kafka_connection)
        source = {
            "connection_params": _sent(kafka_connection),
            **({"schema_registry": _sent(self.given_registry)} if self.given_registry else {}),
        }
        sink = {"connection_params": self.sink if self.sink is not None else own.clickhouse}
        hidden = masked({"sources": [source], "sink": sink})
        return Connections(
            kafka=hidden["sources"][0]["connection_params"],
            clickhouse=hidden["sink"]["connection_params"],
            registry=hidden["sources"][0].get("schema_registry"),
        )


def _sent(part: KafkaConnection | SchemaRegistry) -> dict[str, Any]:
    """Return the keys that were sent, as values of JSON; pydantic writes secrets as asterisks."""
    return part.model_dump(mode="json", exclude_unset=True)


def propose(
    topic: str, servers: GivenServers, pipeline_id: str | None, messages: int, timeout: float
) -> dict[str, Any]:
    """Return a proposed definition, as an object and as YAML with comments that give the reasons.

    timeout: seconds for reading. Raises what `propose_for_topic` raises.
    """
    proposal = propose_for_topic(topic, servers, pipeline_id, messages, timeout, lambda _: None)
    return {
        "pipeline_id": proposal.pipeline_id, "definition": read_yaml(proposal.text), "yaml": proposal.text,
        "messages": proposal.messages, "estimated_messages": proposal.estimated_messages, "complete": proposal.complete,
    }  # fmt: skip
