"""A lost checkpoint is rebuilt: read records stay read, and known keys stay known."""

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from glassflow_dagster.checks.verify import verify_pipeline
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.driver.query import start_query
from glassflow_dagster.driver.recovery.rebuild import rebuild_checkpoint
from glassflow_dagster.errors import GlassflowError
from tests.e2e.support import Pipeline
from tests.e2e.test_dead_letters import dead_letter_command
from tests.support.variants import one_of

BATCH = 120


def rebuild(pipeline: Pipeline) -> dict[str, int]:
    return pipeline.catch_up(rebuild=rebuild_checkpoint)


def events(first: int, until: int) -> Iterable[dict[str, Any]]:
    return ({"id": f"k{index}", "n": index} for index in range(first, until))


def folder(pipeline: Pipeline) -> Path:
    return pipeline.state / pipeline.name


def require_exact(pipeline: Pipeline, keys: int) -> None:
    assert pipeline.query("SELECT count(), uniqExact(id), sum(n) FROM {db}.events") == [
        (keys, keys, keys * (keys - 1) // 2)
    ]
    ((checkpoints, batches, last, adds_up),) = pipeline.query(
        "SELECT uniqExact(checkpoint_id), count(), max(batch_id), sum(read) = sum(written + duplicates + dead_letters) "
        "FROM {db}.glassflow_ledger"
    )
    assert (checkpoints, last, adds_up) == (1, batches - 1, 1)
    found = verify_pipeline(load_pipeline(pipeline.file), print)
    assert found.passed, "\n".join(found.lines())


@pytest.mark.long
def test_a_lost_state_is_rebuilt_and_knows_its_keys(pipeline: Pipeline) -> None:
    pipeline.write().create_topic()
    for first in (0, 100):
        pipeline.send([*events(first, first + BATCH), b"no json"])
        pipeline.catch_up()
    shutil.rmtree(folder(pipeline))
    pipeline.send([*events(50, 300), b"nor this"])
    with pytest.raises(GlassflowError, match="run FILE --rebuild-state"):
        pipeline.catch_up()

    totals = rebuild(pipeline)
    assert (totals["written"], totals["duplicates"], totals["dead_letters"]) == (80, 170, 1)
    require_exact(pipeline, 300)

    # The rebuilt checkpoint is used, and can be lost and rebuilt again.
    pipeline.send(events(290, 310))
    assert pipeline.catch_up()["written"] == 10
    shutil.rmtree(folder(pipeline))
    pipeline.send(events(200, 320))
    assert rebuild(pipeline)["written"] == 10
    require_exact(pipeline, 320)


@pytest.mark.long
def test_replayed_rows_that_the_server_refused_before_are_found(pipeline: Pipeline) -> None:
    """The batch that was open had written them; the batches before had not, although their keys are known."""
    columns = ", ".join(f"{name} {kind}" for name, kind in pipeline.columns.items())
    pipeline.client().command(f"CREATE DATABASE {pipeline.name}")
    pipeline.client().command(
        f"CREATE TABLE {pipeline.name}.events ({columns}, CONSTRAINT c CHECK n % 10 != 3) "
        "ENGINE = MergeTree ORDER BY id SETTINGS non_replicated_deduplication_window = 10000"
    )
    pipeline.write().create_topic()
    pipeline.send(events(0, BATCH))
    assert pipeline.catch_up()["dead_letters"] == BATCH // 10
    pipeline.client().command(f"ALTER TABLE {pipeline.name}.events DROP CONSTRAINT c")
    dead_letter_command(pipeline, "replay")
    pipeline.send(events(BATCH, BATCH + 5))
    pipeline.die_at("write_ledger_row")
    shutil.rmtree(folder(pipeline))

    rebuild(pipeline)

    require_exact(pipeline, BATCH + 5)


@pytest.mark.long
def test_a_damaged_state_is_set_aside_and_what_kafka_has_lost_is_refused(pipeline: Pipeline) -> None:
    pipeline.write().create_topic()
    with pytest.raises(GlassflowError, match="no batch in the ledger"):
        rebuild(pipeline)
    for first in (0, 100):
        pipeline.send(events(first, first + BATCH))
        pipeline.catch_up()
    damaged = folder(pipeline) / "checkpoint" / "glassflow" / "identity.json"
    damaged.write_bytes(damaged.read_bytes()[:10])
    admin = AdminClient({"bootstrap.servers": pipeline.brokers})
    for done in admin.delete_records([TopicPartition(pipeline.name, 0, BATCH // 2)]).values():
        done.result(30)
    with pytest.raises(GlassflowError, match=r"gives 0 duplicates in batch 1, but the ledger has 20: Kafka has no"):
        rebuild(pipeline)
    assert [found.name.partition("-")[0] for found in folder(pipeline).glob("checkpoint.aside*")] == [
        "checkpoint.aside"
    ]
    assert pipeline.query("SELECT count() FROM {db}.events") == [(BATCH + 100,)]


@pytest.mark.parametrize("dedup", one_of([True, False]))
@pytest.mark.long
def test_rows_of_the_batch_that_was_under_way_are_found_in_the_table(
    pipeline: Pipeline, dedup: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write some rows before the rebuild, as a driver that dies between two of its blocks does.

    The repeated batch has all of these rows, also where a first batch would be smaller.
    """
    monkeypatch.setattr(start_query, "FIRST_RECORDS", BATCH // 2)
    pipeline.write(dedup=dedup).create_topic()
    pipeline.send(events(0, BATCH))
    pipeline.catch_up()
    shutil.rmtree(folder(pipeline))
    pipeline.send(events(BATCH, 3 * BATCH))
    begun = [number for number in range(BATCH, 2 * BATCH) if number % 3]
    insert = f"INSERT INTO {pipeline.name}.events (id, n) VALUES "
    pipeline.client().command(insert + ", ".join(f"('k{number}', {number})" for number in begun))
    pipeline.client().command(insert + "('of nobody', 0)")
    with pytest.raises(GlassflowError, match=rf"has {len(begun) + 1} rows that no batch .* {len(begun)} of them can"):
        rebuild(pipeline)
    pipeline.client().command(
        f"ALTER TABLE {pipeline.name}.events DELETE WHERE id = 'of nobody' SETTINGS mutations_sync = 1"
    )
    # Of rows in a shared table it is not known whose they are.
    pipeline.sink["shared_table"] = True
    pipeline.write(dedup=dedup)
    with pytest.raises(GlassflowError, match=r"rows with its values, which other pipelines may have written"):
        rebuild(pipeline)
    del pipeline.sink["shared_table"]
    pipeline.write(dedup=dedup)
    assert rebuild(pipeline)["written"] == 2 * BATCH
    require_exact(pipeline, 3 * BATCH)
