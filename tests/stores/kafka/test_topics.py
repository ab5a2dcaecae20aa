import socket
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.stores.kafka import records
from glassflow_dagster.stores.kafka.errors import KafkaUnreachable, TopicMissing
from glassflow_dagster.stores.kafka.records import RangeCount, RecordPosition, count_records, fetch_records, read_to_end
from glassflow_dagster.stores.kafka.topics import Offsets, commit_offsets, offsets, wait_for_brokers, wait_for_topic
from tests.support.sending import Sender


def test_records_outside_a_range_are_not_counted() -> None:
    count = RangeCount({0: (5, 8), 1: (0, 0)})
    assert count.open_partitions == [0]
    for offset in (5, 6, 7, 8):
        count.observe(0, offset, is_record=True)
    assert (count.records, count.open_partitions) == (3, [])


def test_a_range_that_ends_in_holes_is_done_with_a_later_record_or_the_end() -> None:
    later, end = RangeCount({0: (0, 4)}), RangeCount({0: (0, 4)})
    for count in (later, end):
        count.observe(0, 0, is_record=True)
    later.observe(0, 9, is_record=True)
    end.observe(0, 4, is_record=False)
    assert (later.records, later.open_partitions) == (end.records, end.open_partitions) == (1, [])


def test_the_end_of_what_is_written_so_far_is_not_the_end_of_the_range() -> None:
    count = RangeCount({0: (0, 4)})
    count.observe(0, 2, is_record=False)
    assert count.open_partitions == [0]


def test_brokers_that_are_down_are_one_line_with_addresses_and_remedy() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    dead = KafkaConnection(brokers=(address,))
    with pytest.raises(KafkaUnreachable, match=f"{address} do not answer .*refused.*; start them") as raised:
        wait_for_brokers(dead, 0.1, print)
    assert "\n" not in str(raised.value)
    with pytest.raises(KafkaUnreachable):
        wait_for_topic(dead, "any", 0.1, print)


@pytest.mark.servers
def test_a_missing_topic_is_reported_and_never_created(connection: KafkaConnection) -> None:
    said: list[str] = []
    with pytest.raises(TopicMissing, match="topic 'missing' does not exist"):
        wait_for_topic(connection, "missing", 1.5, said.append)
    with pytest.raises(TopicMissing):
        offsets(connection, "missing")
    assert len(said) == 1, "a reason is told once, however long it lasts"
    admin = AdminClient({"bootstrap.servers": connection.brokers[0]})
    assert "missing" not in admin.list_topics(timeout=10).topics


@pytest.mark.servers
def test_waiting_ends_when_the_topic_appears(connection: KafkaConnection) -> None:
    admin = AdminClient({"bootstrap.servers": connection.brokers[0]})
    waiting = threading.Event()
    creation = threading.Thread(target=lambda: waiting.wait(30) and admin.create_topics([NewTopic("late", 3, 1)]))
    creation.start()
    # The first report says that the driver waits; the topic is created after it.
    assert wait_for_topic(connection, "late", 30, lambda _: waiting.set()) == 3
    creation.join()


@pytest.mark.servers
def test_offsets_are_no_count_where_transactions_left_holes(
    connection: KafkaConnection, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    sender = Sender(connection.brokers[0], {"transactional.id": topic})
    producer = sender.producer
    producer.init_transactions()
    for finish in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for number in range(10):
            sender.send(topic, str(number), partition=0)
        sender.flush()
        finish()
    assert offsets(connection, topic) == {0: Offsets(0, 33), 1: Offsets(0, 0)}
    assert count_records(connection, topic, {0: (0, 33), 1: (0, 0)}, print) == 20
    assert count_records(connection, topic, {0: (0, 33)}, print, isolation="read_uncommitted") == 30
    assert count_records(connection, topic, {0: (5, 23)}, print) == 6


@pytest.mark.servers
def test_records_are_read_as_they_are_however_long_the_reader_takes(
    connection: KafkaConnection, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic()
    sender = Sender(connection.brokers[0])
    sender.send(topic, b"\xff", b"k", headers=[("h", b"1"), ("h", None)], timestamp=1_700_000_000_123)
    sender.send(topic, None)
    sender.flush()
    found = read_to_end(connection, topic, 0, 0)
    first = next(found)
    now = time.monotonic()
    monkeypatch.setattr(records, "time", SimpleNamespace(monotonic=lambda: now + 10 * records.STALL_TIMEOUT))
    (second,) = found
    assert (first.key, first.value, first.timestamp_ms) == (b"k", b"\xff", 1_700_000_000_123)
    assert first.headers == (("h", b"1"), ("h", None))
    assert (second.key, second.value, second.headers) == (None, None, ())


@pytest.mark.servers
def test_offsets_are_committed_for_lag_tools(connection: KafkaConnection, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    for committed in ({0: 3}, {0: 4, 1: 1}):
        commit_offsets(connection, "a-pipeline", {topic: committed})
    reader = Consumer({"bootstrap.servers": connection.brokers[0], "group.id": "a-pipeline"})
    found = reader.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=10)
    reader.close()
    assert [position.offset for position in found] == [4, 1]


def test_records_are_found_by_their_places_and_those_that_are_gone_are_left_out(
    connection: KafkaConnection, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_GAP_READ", 3)
    topic = new_topic(2)
    sender = Sender(connection.brokers[0])
    for offset in range(40):
        sender.send(topic, str(offset), b"k", 1, timestamp=5, headers=[("h", b"1"), ("h", None)])
    sender.flush()
    admin = AdminClient({"bootstrap.servers": connection.brokers[0]})
    for future in admin.delete_records([TopicPartition(topic, 1, 10)]).values():
        future.result()
    wanted = [RecordPosition(topic, 1, offset) for offset in (3, 10, 12, 30, 39, 40, 99)]
    found = fetch_records(connection, [*wanted, RecordPosition(topic, 0, 0)])
    assert {position: record.value for position, record in found.items()} == {
        RecordPosition(topic, 1, offset): str(offset).encode() for offset in (10, 12, 30, 39)
    }
    first = found[RecordPosition(topic, 1, 10)]
    assert (first.key, first.timestamp_ms, first.headers) == (b"k", 5, (("h", b"1"), ("h", None)))
