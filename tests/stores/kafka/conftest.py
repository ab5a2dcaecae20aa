from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from glassflow_dagster.definition.model.connections import KafkaConnection


@pytest.fixture
def connection(stack: Any) -> KafkaConnection:
    return KafkaConnection(brokers=(stack.kafka,))


@pytest.fixture
def new_topic(connection: KafkaConnection) -> Callable[..., str]:
    """Return a function that creates a topic of the test's own."""

    def create(partitions: int = 1) -> str:
        name = f"topic-{uuid4().hex}"
        admin = AdminClient({"bootstrap.servers": connection.brokers[0]})
        for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
            future.result()
        return name

    return create
