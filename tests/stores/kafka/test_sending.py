"""A record that Kafka does not take is an error, or a test would look for its row."""

from collections.abc import Callable

import pytest

from glassflow_dagster.definition.model.connections import KafkaConnection
from tests.support.sending import send

pytestmark = pytest.mark.servers


def test_a_record_for_a_partition_that_is_not_there_fails(
    connection: KafkaConnection, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    send(connection.brokers[0], topic, [b"taken"], partition=1)
    # A producer that has not yet heard of the topic takes every record at first.
    with pytest.raises(AssertionError, match=rf"does not take 1 records, as: {topic}/2: .*partition"):
        send(connection.brokers[0], topic, [b"not taken"], partition=2)
