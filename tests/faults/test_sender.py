"""An event that Kafka does not take is an error, or the harness would look for its row."""

import uuid

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conftest import Stack
from tests.faults.records import PARTITIONS, Event
from tests.faults.sender import Sender

pytestmark = pytest.mark.servers


def test_an_event_for_a_partition_that_is_not_there_fails(stack: Stack) -> None:
    topic = f"sender-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    taken, not_taken = Sender(stack.kafka, {}), Sender(stack.kafka, {})
    taken.send(Event(topic, "", b"taken"))
    taken.flush(30)
    # A producer that has not yet heard of the topic takes every event at first.
    not_taken.send(Event(topic, "", b"not taken", PARTITIONS))
    with pytest.raises(AssertionError, match=f"does not take 1 events, as: {topic}/{PARTITIONS}: .*partition"):
        not_taken.flush(30)
