"""A pipeline that is being made step by step."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from glassflow_dagster.definition.model.connections import ClickHouseConnection, KafkaConnection
from glassflow_dagster.inference.draft import PipelineDraft
from glassflow_dagster.server.api.connections import parsed


@dataclass
class Draft(PipelineDraft):
    """What was answered. Each step sets its part, and drops what later steps derived from another answer.

    topics: of the brokers, with the number of their partitions.
    text: the definition as YAML, edited in the last step; it then replaces everything else.
    done: the names of the steps that are answered.
    """

    topics: Mapping[str, int] = field(default_factory=dict)
    databases: tuple[str, ...] = ()
    text: str | None = None
    done: set[str] = field(default_factory=set)

    @property
    def kafka_connection(self) -> KafkaConnection:
        """The connection to Kafka; raises `ApiError` where an answer is invalid."""
        return parsed(KafkaConnection, self.kafka or {})

    @property
    def clickhouse_connection(self) -> ClickHouseConnection:
        """The connection to ClickHouse; raises `ApiError` where an answer is invalid."""
        return parsed(ClickHouseConnection, self.clickhouse or {})

    def answered(self, step: str) -> None:
        """Note that a step is done; what was edited as YAML is then outdated."""
        self.done.add(step)
        self.text = None

    def forget(self, *steps: str) -> None:
        """Note that steps are to be answered again."""
        self.done -= {*steps}
