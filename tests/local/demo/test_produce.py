"""Sending the demo's events, and counting them without the product."""

import uuid

import pytest

from glassflow_dagster.local.demo.produce import PARTITIONS, count_events, create_topic, read_events, send
from tests.servers.stack import Stack

pytestmark = pytest.mark.servers


def test_a_topic_can_be_counted_as_soon_as_it_is_created(stack: Stack) -> None:
    """With this many partitions some have no leader yet when the broker has confirmed the topic."""
    topic = f"t{uuid.uuid4().hex[:10]}"
    create_topic(stack.kafka, topic, 50)
    assert count_events(stack.kafka, topic) == 0


def test_all_events_that_were_sent_are_counted(stack: Stack) -> None:
    topic = f"t{uuid.uuid4().hex[:10]}"
    create_topic(stack.kafka, topic)
    assert PARTITIONS > 1
    assert send(stack.kafka, topic, (str(number).encode() for number in range(2500)), 1, lambda _: None) == 2500
    create_topic(stack.kafka, topic)
    assert count_events(stack.kafka, topic) == 2500


def test_the_events_of_a_topic_are_read_with_their_places(stack: Stack) -> None:
    topic = f"t{uuid.uuid4().hex[:10]}"
    create_topic(stack.kafka, topic)
    sent = [str(number).encode() for number in range(500)]
    send(stack.kafka, topic, sent, 1, lambda _: None)
    found = list(read_events(stack.kafka, topic))
    assert sorted(value for _, _, value in found) == sorted(sent)
    for partition in range(PARTITIONS):
        places = [(offset, int(value)) for where, offset, value in found if where == partition]
        assert [offset for offset, _ in places] == list(range(len(places)))
        assert [value for _, value in places] == sorted(value for _, value in places)
