"""What is sent again, and that it is sent once; real Kafka and ClickHouse, no Spark."""

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from glassflow_dagster.bookkeeping.dead_letters import DEAD_LETTERS
from glassflow_dagster.bookkeeping.replays import REPLAYS
from glassflow_dagster.clickhouse.queries import execute, fetch
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.dead_letters import replay as module
from glassflow_dagster.dead_letters.replay import replay
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.kafka.replay_headers import Replay, read_replay
from tests.dead_letters.conftest import Refused

pytestmark = pytest.mark.servers


class KilledError(Exception):
    """Stands for a process that is gone."""


def silent(_text: str) -> None:
    pass


def values(refused: Refused) -> list[bytes | None]:
    return [record.value for record in refused.topic()]


def test_a_letter_is_sent_with_all_it_had_and_says_where_it_came_from(refused: Refused) -> None:
    refused.batch(b"\x00\xff", None, b"")
    refused.batch(b"server", stage="insert", attempt=2, origin_topic="first", origin_partition=7, origin_offset=8)
    assert replay(refused.config, "1", silent).sent == 4
    records = refused.topic()
    assert [record.value for record in records] == [b"\x00\xff", None, b"", b"server"]
    assert {(record.key, record.timestamp_ms) for record in records} == {(b"k\xff", 1_700_000_000_000)}
    assert {record.headers[0] for record in records} == {("h", None)}
    topic = refused.config.source.topic
    assert read_replay(records[1].headers) == Replay(refused.checkpoint_id, topic, 0, 1, 1, passed_dedup=False)
    assert read_replay(records[3].headers) == Replay(refused.checkpoint_id, "first", 7, 8, 3, passed_dedup=True)


def test_a_letter_is_gone_before_the_mark_that_it_was_sent(refused: Refused) -> None:
    refused.batch(b"a", expires_at=int(time.time()) + 3600)
    assert replay(refused.config, "1", silent).sent == 1
    box, letters = refused.box, DEAD_LETTERS.full_name(refused.box.database)
    marks = f"SELECT dateDiff('hour', l.expires_at, r.expires_at) FROM {letters} l, {REPLAYS.full_name(box.database)} r"
    assert fetch(box.client, marks) == [(24,)]
    late = f"ALTER TABLE {letters} UPDATE expires_at = now() - 1 WHERE 1 SETTINGS mutations_sync = 1"
    execute(box.client, late)
    assert refused.box.count() == 0


def test_what_was_sent_is_not_sent_again_and_a_condition_chooses(refused: Refused) -> None:
    refused.batch(b"a", b"b", b"c")
    assert replay(refused.config, "value IN ('a', 'c') -- a comment", silent).sent == 2
    again = replay(refused.config, "1", silent)
    assert (again.sent, again.already_sent, values(refused)) == (1, 2, [b"a", b"c", b"b"])
    refused.batch(b"d")
    assert replay(refused.config, "value LIKE '%d%' AND NOT replayed", silent).sent == 1
    assert values(refused) == [b"a", b"c", b"b", b"d"]


def test_a_record_that_keeps_failing_and_one_of_an_earlier_checkpoint_stay_where_they_are(refused: Refused) -> None:
    refused.batch(b"earlier")
    refused.begin_anew()
    refused.batch(b"often", attempt=3)
    refused.batch(b"once more", attempt=2)
    done = replay(refused.with_limit(3), "1", silent)
    assert (done.sent, done.already_sent, done.too_often, done.of_earlier_checkpoint) == (1, 0, 1, 1)
    assert values(refused) == [b"once more"]
    assert list(done.lines(3))[1:] == [
        "skipped: 1 that failed again after 3 replays (dead_letters.max_attempts)",
        "skipped: 1 of an earlier checkpoint; the pipeline has since read its topic again, with these records",
    ]


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_replay_that_dies_anywhere_is_completed_and_nothing_is_sent_twice(
    refused: Refused, monkeypatch: pytest.MonkeyPatch, isolation: str
) -> None:
    """Before the commit, after it, and after some of the marks; seen as the stream would see it."""
    source = refused.config.source.model_copy(update={"isolation": isolation})
    config: PipelineConfig = refused.config.model_copy(update={"sources": (source,)})
    monkeypatch.setattr(module, "DEAD_LETTERS_PER_TRANSACTION", 2)
    letters = [str(index).encode() for index in range(9)]
    refused.batch(*letters)
    mark, require = module._mark, module._require_all_taken
    deaths = 0

    def die(*_: Any) -> None:
        nonlocal deaths
        deaths += 1
        raise KilledError

    def die_unless_empty(marks: Any, box: Any, config: Any, sent: list[Any]) -> None:
        if sent:
            die()
        mark(marks, box, config, sent)

    def die_behind(marks: Any, box: Any, config: Any, sent: list[Any]) -> None:
        mark(marks, box, config, sent)
        if sent:
            die()

    # Without its abort, as a killed process leaves it: the next one's start must do it.
    monkeypatch.setattr(module._Sender, "_abort", lambda _: None)
    for name, death in (
        ("_require_all_taken", die),
        ("_mark", die_unless_empty),
        ("_mark", die_behind),
        ("_require_all_taken", die),
        ("_mark", die_behind),
    ):
        monkeypatch.setattr(module, name, death)
        with pytest.raises(KilledError):
            replay(config, "1", silent)
        monkeypatch.setattr(module, "_mark", mark)
        monkeypatch.setattr(module, "_require_all_taken", require)
    replay(config, "1", silent)
    assert deaths == 5
    assert sorted(record.value or b"" for record in refused.topic(isolation)) == letters
    assert replay(config, "1", silent).already_sent == 9


def test_a_second_replay_ends_the_first(refused: Refused) -> None:
    refused.batch(b"a", b"b")
    first = module._Sender(_with_topic(refused))
    assert replay(refused.config, "1", silent).sent == 2
    with pytest.raises(GlassflowError, match=r"another replay of .* has started and continues"):
        first.send(list(refused.box.read("1")))
    assert values(refused) == [b"a", b"b"]


def test_a_record_that_the_topic_does_not_take_is_named_and_sends_nothing(refused: Refused) -> None:
    refused.batch(b"a", b"x" * 3_000_000)
    with pytest.raises(GlassflowError, match=r"dead letter of .*/0/1: it is too large; raise max.message.bytes"):
        replay(refused.config, "1", silent)
    assert values(refused) == []
    assert replay(refused.config, "length(value) < 1000", silent).sent == 1


def test_ctrl_c_leaves_nothing_behind(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    refused.batch(b"a")

    def interrupt(_refused: list[str]) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "_require_all_taken", interrupt)
        with pytest.raises(KeyboardInterrupt):
            replay(refused.config, "1", silent)
    assert values(refused) == []
    assert replay(refused.config, "1", silent).sent == 1


def test_brokers_that_do_not_confirm_are_one_line(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    refused.batch(b"a")
    sender = module._Sender(_with_topic(refused))

    class Silent:
        def __getattr__(self, name: str) -> Any:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))

    monkeypatch.setattr(sender, "_producer", Silent())
    with pytest.raises(
        GlassflowError, match=r"did not confirm the records sent .* replay again: records already sent are skipped"
    ):
        sender.send(list(refused.box.read("1")))


def _with_topic(refused: Refused) -> PipelineConfig:
    module.ensure_replay_topic(refused.config)
    return refused.config
