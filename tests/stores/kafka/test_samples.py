"""A sample has records from the beginning and the end of every partition, and creates no consumer group."""

import socket
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.kafka import consumer, samples
from glassflow_dagster.stores.kafka.errors import KafkaUnreachable, TopicMissing
from glassflow_dagster.stores.kafka.samples import sample_ranges, sample_records
from glassflow_dagster.stores.kafka.topics import Offsets, wait_for_topic
from tests.support.sending import Sender, send


@pytest.mark.parametrize(
    ("held", "limit", "first", "last"),
    [
        ({0: (0, 100)}, 10, {0: (0, 5)}, {0: (95, 100)}),
        ({0: (0, 100)}, 5, {0: (0, 3)}, {0: (98, 100)}),
        ({0: (40, 47)}, 10, {0: (40, 44)}, {0: (44, 47)}),
        ({0: (7, 7), 1: (3, 4)}, 10, {1: (3, 4)}, {}),
        # Records per partition, limit, and the offsets of the sample: large partitions fill in for small ones.
        (
            {0: (0, 100), 1: (5, 7), 2: (0, 50)}, 30,
            {1: (5, 6), 2: (0, 7), 0: (0, 7)}, {1: (6, 7), 2: (43, 50), 0: (93, 100)},
        ),
        (dict.fromkeys(range(4), (0, 9)), 2, {0: (0, 1), 1: (0, 1)}, {}),
    ],
)  # fmt: skip
def test_each_partition_gives_as_much_as_the_others_as_far_as_it_has_it(
    held: dict[int, tuple[int, int]], limit: int, first: samples.Ranges, last: samples.Ranges
) -> None:
    offsets = {partition: Offsets(*bounds) for partition, bounds in held.items()}
    assert sample_ranges(offsets, limit) == (first, last)


def test_brokers_that_are_down_are_told_with_their_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "ANSWER_TIMEOUT", 0.5)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(KafkaUnreachable, match=f"{address} do not answer"):
        sample_records(KafkaConnection(brokers=(address,)), "any", 10, 5)


def consumer_groups(connection: KafkaConnection) -> set[str]:
    """Return the names of all consumer groups of the broker."""
    admin = AdminClient({"bootstrap.servers": connection.brokers[0]})
    return {group.group_id for group in admin.list_consumer_groups().result(30).valid}


@pytest.mark.servers
def test_both_ends_are_read_and_nothing_is_left_behind(
    connection: KafkaConnection, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    send(connection.brokers[0], topic, map(str, range(1000)), partition=0)
    send(connection.brokers[0], topic, [None], partition=1)
    sample = sample_records(connection, topic, 9, 30)
    assert (sample.about, sample.complete) == (1001, True)
    assert [record.value for record in sample.records] == [b"0", b"1", b"2", b"3", b"996", b"997", b"998", b"999", None]
    everything = sample_records(connection, topic, 5000, 30)
    assert (len(everything.records), everything.about, everything.partitions) == (1001, 1001, 2)
    # Other tests may have made groups of theirs by now.
    assert consumer.UNUSED_GROUP not in consumer_groups(connection)


@pytest.mark.servers
def test_a_topic_whose_records_were_all_taken_back_is_empty_too(
    connection: KafkaConnection, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    wait_for_topic(connection, topic, 30, print)  # the broker applies the deletion a moment later
    with pytest.raises(GlassflowError, match=rf"topic '{topic}' on .* has no messages; send some first"):
        sample_records(connection, topic, 10, 30)
    sender = Sender(connection.brokers[0], {"transactional.id": topic})
    producer = sender.producer
    producer.init_transactions()
    producer.begin_transaction()
    sender.send(topic, b"{}")
    sender.flush()
    producer.abort_transaction()
    with pytest.raises(GlassflowError, match="has no messages"):
        sample_records(connection, topic, 10, 30)
    producer.begin_transaction()
    sender.send(topic, b"{}")
    producer.commit_transaction()
    # Read completely, so counted exactly; the offsets also count transaction markers.
    assert sample_records(connection, topic, 10, 30).about == 1
    assert sample_records(connection, topic, 2, 30).about == 4


@pytest.mark.servers
def test_a_large_sample_ends_early_and_says_so(
    connection: KafkaConnection, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "SAMPLE_BYTES", 1000)
    monkeypatch.setattr(samples, "FETCH_AT_ONCE", 1)
    topic = new_topic()
    send(connection.brokers[0], topic, [b"x" * 400] * 10)
    sample = sample_records(connection, topic, 10, 30)
    assert (len(sample.records), sample.complete) == (3, False)


@pytest.mark.servers
def test_a_topic_that_is_none_is_told_with_a_near_one(
    connection: KafkaConnection, new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    wait_for_topic(connection, topic, 30, print)
    with pytest.raises(TopicMissing, match=rf"'{topic}x' does not exist on .*; did you mean '{topic}'\?"):
        sample_records(connection, f"{topic}x", 10, 30)
    with pytest.raises(TopicMissing, match=r"'0' does not exist on .*; use one of "):
        sample_records(connection, "0", 10, 30)
