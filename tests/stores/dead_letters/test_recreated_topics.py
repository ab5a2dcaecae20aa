"""A topic that was deleted and created again: what is known of a dead letter is not of another at its position."""

import pytest
from confluent_kafka.admin import AdminClient

from glassflow_dagster.stores.bookkeeping.dead_letter_marks import REPLAYS
from glassflow_dagster.stores.bookkeeping.dead_letter_table import DEAD_LETTERS, read_refused_by_server
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.bookkeeping.totals import read_totals
from glassflow_dagster.stores.clickhouse.queries import execute
from glassflow_dagster.stores.dead_letters import replay as module
from glassflow_dagster.stores.dead_letters.purge import purge
from glassflow_dagster.stores.dead_letters.replay import replay
from glassflow_dagster.stores.kafka.replay_headers import ORIGIN_BATCH_TIME, Replay
from tests.stores.dead_letters.conftest import DeadLetterPipeline
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers


def no_report(_text: str) -> None:
    pass


def values(pipeline: DeadLetterPipeline, condition: str = "1") -> list[bytes | None]:
    return [letter.value for letter in pipeline.store.read(condition)]


def counted(pipeline: DeadLetterPipeline) -> tuple[int, int]:
    totals = read_totals(pipeline.store.client, pipeline.database, pipeline.config.pipeline_id)
    return totals.dead_letters_stored, totals.dead_letters_purged


def delete_replay_topic(pipeline: DeadLetterPipeline) -> None:
    topic = pipeline.config.replay_topic
    admin = AdminClient({"bootstrap.servers": pipeline.config.source.connection_params.brokers[0]})
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, "the topic is gone")


def test_new_dead_letters_at_the_positions_of_purged_ones_are_there(pipeline: DeadLetterPipeline) -> None:
    pipeline.batch(b"a", b"b", first=0)
    assert purge(pipeline.store, "1") == 2
    pipeline.batch(b"new a", b"new b", b"new c", first=0)
    assert values(pipeline) == [b"new a", b"new b", b"new c"]
    assert counted(pipeline) == (3, 2)
    assert purge(pipeline.store, "value = 'new a'") == 1
    assert values(pipeline) == [b"new b", b"new c"]
    assert counted(pipeline) == (2, 3)


def test_new_dead_letters_at_the_positions_of_replayed_ones_wait(pipeline: DeadLetterPipeline) -> None:
    pipeline.batch(b"a", b"b", first=0)
    assert replay(pipeline.config, "value = 'a'", no_report).sent == 1
    pipeline.batch(b"new a", b"new b", first=0)
    assert values(pipeline, "replayed") == [b"a"]
    assert purge(pipeline.store, "replayed") == 1
    assert replay(pipeline.config, "value = 'new b'", no_report).sent == 1
    # Neither does a newer mark cover an older dead letter.
    assert values(pipeline, "NOT replayed") == [b"b", b"new a"]
    assert replay(pipeline.config, "1", no_report).sent == 2
    assert [record.value for record in pipeline.topic()] == [b"a", b"new b", b"b", b"new a"]


def test_dead_letters_that_failed_again_are_told_apart_by_their_first_batch(pipeline: DeadLetterPipeline) -> None:
    """Both are of attempt 1 and of the same position, one of the old topic and one of the new."""
    pipeline.batch(b"old", first=0)
    pipeline.batch(b"new", first=0)
    assert replay(pipeline.config, "1", no_report).sent == 2
    pipeline.batch_of_replays(0, 1)
    again = "attempt = 1"
    assert values(pipeline, again) == [b"old", b"new"]
    assert replay(pipeline.config, f"{again} AND value = 'new'", no_report).sent == 1
    assert values(pipeline, f"{again} AND NOT replayed") == [b"old"]


def test_a_recreated_replay_topic_has_nothing_of_the_old_one(
    pipeline: DeadLetterPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline.batch(b"a", b"b", b"c", first=0)
    assert replay(pipeline.config, "1", no_report).sent == 3
    pipeline.batch_of_replays(0, 1, 2)
    assert purge(pipeline.store, "attempt = 1") == 3
    delete_replay_topic(pipeline)

    # As many as the old topic had, then more in a replay that dies before its marks.
    pipeline.batch(b"d", b"e", b"f", b"g", b"h", first=50)
    assert replay(pipeline.config, "value IN ('d', 'e', 'f')", no_report).sent == 3

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(module, "insert_replay_marks", die)
        with pytest.raises(KeyboardInterrupt):
            replay(pipeline.config, "value = 'g'", no_report)
    pipeline.batch(b"i", first=60)
    assert replay(pipeline.config, "value != 'h'", no_report).sent == 1
    assert replay(pipeline.config, "1", no_report).sent == 1
    assert [record.value for record in pipeline.topic()] == [b"d", b"e", b"f", b"g", b"i", b"h"]
    # They fail again at positions of dead letters that were purged.
    pipeline.batch_of_replays(0, 1, 2)
    assert values(pipeline, "attempt = 1") == [b"d", b"e", b"f"]
    assert purge(pipeline.store, '"offset" = 999') == 0
    assert values(pipeline, "attempt = 1") == [b"d", b"e", b"f"]


def test_rows_that_the_server_refused_are_named_with_their_batch(pipeline: DeadLetterPipeline) -> None:
    pipeline.batch(b"refused", stage="insert", first=0)
    pipeline.batch(b"not mapped", stage="mapping", first=0)
    pipeline.batch(b"purged", stage="insert", first=0)
    purge(pipeline.store, "value = 'purged'")
    store = pipeline.store
    found = read_refused_by_server(store.client, store.database, store.pipeline_id, pipeline.checkpoint_id)
    times = [letter.batch_time_ms for letter in store.read("1")]
    assert len(found) == 2
    assert times[0] in {row[-1] for row in found}
    assert times[1] not in {row[-1] for row in found}


def as_earlier_version(pipeline: DeadLetterPipeline) -> None:
    """Make the tables those of a version without batches of origin and ids of replay topics; today's adds them."""
    for table, columns in ((DEAD_LETTERS, ("origin_batch_time",)), (REPLAYS, ("origin_batch_time", "replay_topic_id"))):
        for column in columns:
            statement = f"ALTER TABLE {table.full_name(pipeline.database)} DROP COLUMN {column}"
            execute(pipeline.client, f"{statement} SETTINGS mutations_sync = 1")
    ensure_bookkeeping(pipeline.client, pipeline.database)


def test_what_an_earlier_version_has_marked_stays_so_and_nothing_else_does(
    pipeline: DeadLetterPipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = Replay.headers
    pipeline.batch(b"sent", b"waits", b"purged", first=0)
    with monkeypatch.context() as patched:
        without = lambda self: [each for each in headers(self) if each[0] != ORIGIN_BATCH_TIME]  # noqa: E731
        patched.setattr(Replay, "headers", without)
        assert replay(pipeline.config, "value = 'sent'", no_report).sent == 1
    purge(pipeline.store, "value = 'purged'")
    as_earlier_version(pipeline)

    assert (values(pipeline, "replayed"), values(pipeline, "NOT replayed")) == ([b"sent"], [b"waits"])
    assert replay(pipeline.config, "1", no_report).sent == 1
    pipeline.batch_of_replays(0, 1)  # of the earlier version, and of this one
    for expected in (2, 0):
        assert replay(pipeline.config, "attempt = 1", no_report).sent == expected
    assert [record.value for record in pipeline.topic()] == [b"sent", b"waits"] * 2
    pipeline.batch(b"new 0", b"new 1", b"new 2", first=0)
    assert values(pipeline, "NOT replayed") == [b"new 0", b"new 1", b"new 2"]
