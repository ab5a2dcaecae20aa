"""Replay of dead letters, exactly once, on real Kafka and ClickHouse without Spark."""

import os
import time
from collections.abc import Iterable, Iterator
from itertools import cycle
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.bookkeeping.dead_letter_marks import REPLAYS
from glassflow_dagster.stores.bookkeeping.dead_letter_table import DEAD_LETTERS, DeadLetter
from glassflow_dagster.stores.clickhouse.queries import execute, fetch
from glassflow_dagster.stores.dead_letters import replay as module
from glassflow_dagster.stores.dead_letters.replay import replay
from glassflow_dagster.stores.kafka.replay_headers import Replay, read_replay
from tests.stores.dead_letters.conftest import DeadLetterPipeline

pytestmark = pytest.mark.servers


class KilledError(Exception):
    """Simulates the death of the process."""


def no_report(_text: str) -> None:
    pass


def values(pipeline: DeadLetterPipeline) -> list[bytes | None]:
    return [record.value for record in pipeline.topic()]


def test_a_dead_letter_is_sent_unchanged_with_headers_of_its_origin(pipeline: DeadLetterPipeline) -> None:
    pipeline.batch(b"\x00\xff", None, b"")
    pipeline.batch(b"server", stage="insert", attempt=2, origin_topic="first", origin_partition=7, origin_offset=8)
    assert replay(pipeline.config, "1", no_report).sent == 4
    records = pipeline.topic()
    assert [record.value for record in records] == [b"\x00\xff", None, b"", b"server"]
    assert {(record.key, record.timestamp_ms) for record in records} == {(b"k\xff", 1_700_000_000_000)}
    assert {record.headers[0] for record in records} == {("h", None)}
    topic, checkpoint_id = pipeline.config.source.topic, pipeline.checkpoint_id
    first, *_, last = (letter.batch_time_ms for letter in pipeline.store.read("1"))
    expected = Replay(checkpoint_id, topic, 0, 1, 1, passed_dedup=False, batch_time_ms=first)
    assert read_replay(records[1].headers) == expected
    expected = Replay(checkpoint_id, "first", 7, 8, 3, passed_dedup=True, batch_time_ms=last)
    assert read_replay(records[3].headers) == expected


def test_a_dead_letter_is_sent_before_it_is_marked_as_sent(pipeline: DeadLetterPipeline) -> None:
    pipeline.batch(b"a", expires_at=int(time.time()) + 3600)
    assert replay(pipeline.config, "1", no_report).sent == 1
    store, dead_letters = pipeline.store, DEAD_LETTERS.full_name(pipeline.store.database)
    replays = REPLAYS.full_name(store.database)
    marks = f"SELECT dateDiff('hour', l.expires_at, r.expires_at) FROM {dead_letters} l, {replays} r"
    assert fetch(store.client, marks) == [(24,)]
    late = f"ALTER TABLE {dead_letters} UPDATE expires_at = now() - 1 WHERE 1 SETTINGS mutations_sync = 1"
    execute(store.client, late)
    assert pipeline.store.count() == 0


def test_what_was_sent_is_not_sent_again_and_a_condition_chooses(pipeline: DeadLetterPipeline) -> None:
    pipeline.batch(b"a", b"b", b"c")
    assert replay(pipeline.config, "value IN ('a', 'c') -- a comment", no_report).sent == 2
    again = replay(pipeline.config, "1", no_report)
    assert (again.sent, again.already_sent, values(pipeline)) == (1, 2, [b"a", b"c", b"b"])
    pipeline.batch(b"d")
    assert replay(pipeline.config, "value LIKE '%d%' AND NOT replayed", no_report).sent == 1
    assert values(pipeline) == [b"a", b"c", b"b", b"d"]


def test_a_record_that_keeps_failing_and_one_of_an_earlier_checkpoint_stay_where_they_are(
    pipeline: DeadLetterPipeline,
) -> None:
    pipeline.batch(b"earlier")
    pipeline.start_new_checkpoint()
    pipeline.batch(b"often", attempt=3)
    pipeline.batch(b"once more", attempt=2)
    done = replay(pipeline.with_limit(3), "1", no_report)
    assert (done.sent, done.already_sent, done.too_often, done.of_earlier_checkpoint) == (1, 0, 1, 1)
    assert values(pipeline) == [b"once more"]
    assert list(done.lines(3))[1:] == [
        "skipped: 1 that failed again after 3 replays (dead_letters.max_attempts)",
        "skipped: 1 of an earlier checkpoint; the pipeline has since read its topic again, with these records",
    ]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
@pytest.mark.long
def test_a_replay_that_dies_anywhere_is_completed_and_nothing_is_sent_twice(
    pipeline: DeadLetterPipeline, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    """Die before the commit, after it, and after some of the marks; read the topic with either isolation level."""
    source = pipeline.config.source.model_copy(update={"isolation": isolation})
    config: PipelineConfig = pipeline.config.model_copy(update={"sources": (source,)})
    monkeypatch.setattr(module, "DEAD_LETTERS_PER_TRANSACTION", 2)
    dead_letters = [str(index).encode() for index in range(9)]
    pipeline.batch(*dead_letters)
    mark, require = module.ReplayMarker.mark, module.require_all_taken
    deaths = 0

    def die(*_: Any) -> None:
        nonlocal deaths
        deaths += 1
        raise KilledError

    def die_unless_empty(marker: Any, sent: Iterable[Any]) -> None:
        if found := list(sent):
            die()
        mark(marker, found)

    def die_behind(marker: Any, sent: Iterable[Any]) -> None:
        found = list(sent)
        mark(marker, found)
        if found:
            die()

    # Without an abort, as a killed process leaves the transaction: the next replay must abort it when it starts.
    monkeypatch.setattr(module.ReplaySender, "abort", lambda _: None)
    for where, name, death in (
        (module, "require_all_taken", die),
        (module.ReplayMarker, "mark", die_unless_empty),
        (module.ReplayMarker, "mark", die_behind),
        (module, "require_all_taken", die),
        (module.ReplayMarker, "mark", die_behind),
    ):
        monkeypatch.setattr(where, name, death)
        with pytest.raises(KilledError):
            replay(config, "1", no_report)
        monkeypatch.setattr(module.ReplayMarker, "mark", mark)
        monkeypatch.setattr(module, "require_all_taken", require)
    replay(config, "1", no_report)
    assert deaths == 5
    assert sorted(record.value or b"" for record in pipeline.topic(isolation)) == dead_letters
    assert replay(config, "1", no_report).already_sent == 9


def test_a_second_replay_ends_the_first(pipeline: DeadLetterPipeline) -> None:
    pipeline.batch(b"a", b"b")
    first = module.ReplaySender(_with_topic(pipeline))
    assert replay(pipeline.config, "1", no_report).sent == 2
    with pytest.raises(GlassflowError, match=r"another replay of .* has started, so this one has stopped; repeat it"):
        first.send(list(pipeline.store.read("1")))
    assert values(pipeline) == [b"a", b"b"]


def test_a_second_replay_ends_the_first_while_it_sends(pipeline: DeadLetterPipeline) -> None:
    """A fenced client rejects the next record at once, with an error that does not say why."""
    pipeline.batch(b"a")
    first = module.ReplaySender(_with_topic(pipeline))
    replay(pipeline.config, "1", no_report)

    def until_rejected() -> Iterator[DeadLetter]:
        for dead_letter in cycle(pipeline.store.read("1")):
            yield dead_letter
            time.sleep(0.001)  # the client's queue of 100,000 must not be full first

    with pytest.raises(GlassflowError, match=r"another replay of .* has started, so this one has stopped; repeat it"):
        first.send(until_rejected())
    assert values(pipeline) == [b"a"]


def test_a_record_that_the_topic_does_not_take_is_named_and_sends_nothing(pipeline: DeadLetterPipeline) -> None:
    pipeline.batch(b"a", os.urandom(3_000_000))
    with pytest.raises(GlassflowError, match=r"dead letter of .*/0/1: it is too large; raise max.message.bytes"):
        replay(pipeline.config, "1", no_report)
    assert values(pipeline) == []
    assert replay(pipeline.config, "length(value) < 1000", no_report).sent == 1


def test_a_timestamp_that_the_topic_does_not_take_is_named_with_the_settings(pipeline: DeadLetterPipeline) -> None:
    """Of a topic that somebody else has created; that of a replay takes any."""
    admin = AdminClient({"bootstrap.servers": pipeline.config.source.connection_params.brokers[0]})
    topic = pipeline.config.replay_topic
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    pipeline.batch(b"micros", timestamp=1_700_000_000_000_000)
    with pytest.raises(GlassflowError, match=r"/0/0: its timestamp, 1700000000000000 .*; set message.timestamp.before"):
        replay(pipeline.config, "1", no_report)


def test_what_the_source_topic_has_taken_is_taken_again(pipeline: DeadLetterPipeline) -> None:
    """A record that fits compressed only, many small ones, and timestamps of any size, however old they are now."""
    topic, brokers = pipeline.config.source.topic, pipeline.config.source.connection_params.brokers[0]
    limit = ConfigEntry("max.message.bytes", "20000", incremental_operation=AlterConfigOpType.SET)
    small = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[limit])
    admin = AdminClient({"bootstrap.servers": brokers})  # kept: its futures end with it
    admin.incremental_alter_configs([small])[small].result(30)
    sent = [b"x" * 3_000_000, *(os.urandom(10_000) for _ in range(50))]
    pipeline.batch(*sent)
    times = [1_700_000_000_000_000, 1_700_000_000_000_000_000, 1, -1]
    for timestamp in times:
        pipeline.batch(str(timestamp).encode(), timestamp=timestamp)

    assert replay(pipeline.config, "1", no_report).sent == len(sent) + len(times)

    records = pipeline.topic()
    assert [record.value for record in records[: len(sent)]] == sent
    # A record without a timestamp gets the present time.
    assert [record.timestamp_ms for record in records[len(sent) : -1]] == times[:-1]


def test_ctrl_c_leaves_nothing_behind(pipeline: DeadLetterPipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    pipeline.batch(b"a")

    def interrupt(_refused: list[str]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "require_all_taken", interrupt)
        with pytest.raises(KeyboardInterrupt):
            replay(pipeline.config, "1", no_report)
    assert values(pipeline) == []
    assert replay(pipeline.config, "1", no_report).sent == 1


def test_brokers_that_do_not_confirm_are_one_line(
    pipeline: DeadLetterPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.batch(b"a")

    class Silent:
        def __init__(self, _settings: object) -> None:
            self.init_transactions = Mock()

        def __getattr__(self, name: str) -> Any:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(module, "Producer", Silent)
    sender = module.ReplaySender(_with_topic(pipeline))
    with pytest.raises(
        GlassflowError, match=r"did not confirm the records sent .* replay again: records already sent are skipped"
    ):
        sender.send(list(pipeline.store.read("1")))


def _with_topic(pipeline: DeadLetterPipeline) -> PipelineConfig:
    module.ensure_replay_topic(pipeline.config)
    return pipeline.config
