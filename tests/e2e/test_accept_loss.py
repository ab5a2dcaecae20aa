"""Permanent loss of records or state stops a pipeline until the user accepts it; then the loss is recorded."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from glassflow_dagster.checks.verify import VerifyReport, verify_pipeline
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.driver.recovery.acceptance import accept_loss
from glassflow_dagster.driver.recovery.rebuild import rebuild_checkpoint
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stream.checkpoint.checkpoint import Checkpoint
from glassflow_dagster.stream.delivery.batch_writer import BatchWriter
from tests.e2e.joins import LEFT, RIGHT, JoinPipeline
from tests.e2e.support import Pipeline
from tests.support.sending import Sender
from tests.support.waiting import wait_until


def events(*numbers: int) -> Iterable[dict[str, Any]]:
    return [{"id": f"k{number}", "n": number} for number in numbers]


def verify(pipeline: Pipeline) -> VerifyReport:
    found = verify_pipeline(load_pipeline(pipeline.file), print)
    assert found.passed, "\n".join(found.lines())
    return found


def losses(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    return pipeline.query(
        "SELECT batch_id, toString(reason), partition, `from`, until, waiting FROM {db}.glassflow_losses ORDER BY ALL"
    )


def keys(pipeline: Pipeline) -> list[str]:
    return [key for (key,) in pipeline.query("SELECT id FROM {db}.events ORDER BY length(id), id")]


def token_prefix(pipeline: Pipeline) -> str:
    found = Checkpoint(pipeline.state / pipeline.name / "checkpoint").identity()
    assert found is not None
    return found.token_prefix


def remove_records(pipeline: Pipeline, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": pipeline.brokers})
    for done in admin.delete_records([TopicPartition(pipeline.name, 0, before)]).values():
        done.result(30)


@pytest.fixture
def fail_before_ledger_row(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Make each batch fail after its blocks are in the table and before its ledger row."""

    def die(*_: object, **__: object) -> None:
        raise GlassflowError("died")

    with monkeypatch.context() as patch:
        patch.setattr(BatchWriter, "write_ledger_row", die)
        yield patch


def test_records_that_retention_took_are_skipped_and_the_rest_is_exact(pipeline: Pipeline) -> None:
    pipeline.write().create_topic(1)
    pipeline.send(events(0, 1, 2), lambda _: 0)
    pipeline.catch_up()
    pipeline.send(events(3, 4, 5, 1, 6), lambda _: 0)
    remove_records(pipeline, 5)
    with pytest.raises(GlassflowError, match=r"offsets 3 to 4 were not read and are gone.*--accept-loss"):
        pipeline.catch_up()

    totals = pipeline.catch_up(accept=accept_loss)
    # The state still has its keys: k1 was read before.
    assert (totals["read"], totals["written"], totals["duplicates"]) == (3, 2, 1)
    assert keys(pipeline) == ["k0", "k1", "k2", "k5", "k6"]
    assert losses(pipeline) == [(1, "retention", 0, 3, 5, 0)]
    figures = verify(pipeline).counts.figures
    assert (figures["skipped_offsets"], figures["expired_offsets"], figures["difference"]) == (2, 3, 0)

    # From here on nothing is lost, so nothing is accepted.
    pipeline.send(events(6, 7), lambda _: 0)
    assert pipeline.catch_up(accept=accept_loss)["written"] == 1
    assert len(losses(pipeline)) == 1
    verify(pipeline)


@pytest.mark.long
def test_a_recreated_topic_is_read_from_its_beginning(pipeline: Pipeline) -> None:
    pipeline.write().create_topic(1)
    pipeline.send(events(0, 1, 2), lambda _: 0)
    pipeline.catch_up()
    admin = AdminClient({"bootstrap.servers": pipeline.brokers})
    admin.delete_topics([pipeline.name])[pipeline.name].result(30)
    wait_until(lambda: pipeline.name not in admin.list_topics(timeout=10).topics, "the topic is gone")
    pipeline.create_topic(1)
    pipeline.send(events(1, 3), lambda _: 0)
    with pytest.raises(GlassflowError, match=r"was deleted and recreated.*--accept-loss"):
        pipeline.catch_up()

    totals = pipeline.catch_up(accept=accept_loss)
    assert (totals["read"], totals["written"], totals["duplicates"]) == (2, 1, 1)
    assert keys(pipeline) == ["k0", "k1", "k2", "k3"]
    assert losses(pipeline) == [(1, "topic", 0, 3, 3, 0)]
    assert "retention removed some of the records" in verify(pipeline).counts.description


def compact(pipeline: Pipeline, left: int) -> None:
    """Let the broker compact partition 0 until only `left` of its records remain."""
    sender = Sender(pipeline.brokers)
    consumer = Consumer({"bootstrap.servers": pipeline.brokers, "group.id": "compact", "enable.partition.eof": True})

    def is_compacted() -> bool:
        # Each new record starts another segment, which makes the previous segment ready for compaction.
        sender.send(pipeline.name, b"no event", b"last", 0)
        sender.flush()
        consumer.assign([TopicPartition(pipeline.name, 0, 0)])
        found = 0
        while (message := consumer.poll(10)) is not None and message.error() is None:
            found += message.key() != b"last"
        return found == left

    wait_until(is_compacted, f"{left} records are left", 60)
    consumer.close()


@pytest.mark.long
def test_a_batch_whose_records_were_compacted_away_is_not_repeated_unasked(
    pipeline: Pipeline, fail_before_ledger_row: pytest.MonkeyPatch
) -> None:
    pipeline.sink = {"max_batch_size": 3}
    pipeline.write()
    admin = AdminClient({"bootstrap.servers": pipeline.brokers})
    settings = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.001"}
    admin.create_topics([NewTopic(pipeline.name, 1, 1, config=settings)])[pipeline.name].result(30)
    sender = Sender(pipeline.brokers)
    for number in range(8):
        # The records with even numbers have a Kafka key that occurs again.
        key = b"again" if number % 2 == 0 else str(number).encode()
        sender.send(pipeline.name, b'{"id": "k%d", "n": %d}' % (number, number), key, 0)
    sender.flush()
    with pytest.raises(GlassflowError, match="died"):
        pipeline.catch_up()
    written = keys(pipeline)
    assert "k0" in written
    fail_before_ledger_row.undo()
    compact(pipeline, 5)

    with pytest.raises(
        GlassflowError, match=r"had \d records when it was started and has \d now: the topic is compacted"
    ):
        pipeline.catch_up()
    assert keys(pipeline) == written

    tokens = token_prefix(pipeline)
    pipeline.catch_up(accept=accept_loss)
    assert token_prefix(pipeline) != tokens, "its blocks have other rows under the same numbers"
    assert keys(pipeline) == [f"k{number}" for number in range(8)]
    ((_, reason, *_),) = losses(pipeline)
    assert reason == "in_flight"
    found = verify(pipeline)
    assert not found.counts.exact
    assert "records of an in-flight batch were lost" in found.counts.description


@pytest.mark.long
def test_a_state_that_cannot_be_rebuilt_is_given_up_and_its_waiting_events_are_reported(pipeline: Pipeline) -> None:
    joins = JoinPipeline(
        pipeline.folder, pipeline.brokers, pipeline.clickhouse_port, left_window=3600, right_window=3600
    )
    joins.write().create_topic()
    draw = joins.seeded(1, 40, 5)
    joins.send_both(draw)
    first = joins.catch_up()
    assert first["waiting"] > 0
    damaged = joins.state / joins.name / "checkpoint" / "glassflow" / "identity.json"
    damaged.write_bytes(damaged.read_bytes()[:10])
    with pytest.raises(GlassflowError, match="the waiting events of a join depend on"):
        joins.catch_up(rebuild=rebuild_checkpoint)
    damaged.parent.parent.mkdir(parents=True, exist_ok=True)

    joins.send_both([(LEFT, draw[0][1]), (RIGHT, draw[1][1])])
    totals = joins.catch_up(accept=accept_loss)
    assert totals["read"] == 2
    ((_, reason, *_, waiting),) = [row for row in losses(joins) if row[1] == "state"]
    assert (reason, waiting) == ("state", first["waiting"])
    counts = verify_pipeline(load_pipeline(joins.file), print).counts
    assert counts.passed, counts.description
