"""A pipeline that reads several topics into one table."""

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from glassflow_dagster.checks import wait_until_stable
from glassflow_dagster.checks.exact.compare_keys import reconcile_keys
from glassflow_dagster.checks.verify import verify_pipeline
from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.driver.recovery.acceptance import accept_loss
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.build_definitions import Orchestration, build_folder_definitions
from glassflow_dagster.stores.dead_letters.replay import replay
from tests.e2e.support import Pipeline, invoke, kill, rows, start, stop, tutorial
from tests.support.waiting import wait_until


def events(first: int, until: int, text: str) -> list[dict[str, object]]:
    return [{"id": f"k{number}", "n": number, "text": text} for number in range(first, until)]


@pytest.fixture
def topics(pipeline: Pipeline) -> tuple[Pipeline, Pipeline, Pipeline]:
    """Return three topics, the first of which has the pipeline; it reads the first and the second one."""
    others = [replace(pipeline, name=f"{pipeline.name}.{name}") for name in ("b", "a")]
    for each in (pipeline, *others):
        each.create_topic()
    pipeline.fields = [*pipeline.fields, {"name": "text", "type": "string"}]
    pipeline.columns = {**pipeline.columns, "text": "String", "_topic": "String"}
    pipeline.source = {"topic": None, "topics": [pipeline.name, others[0].name]}
    pipeline.write()
    return pipeline, others[0], others[1]


def by_topic(pipeline: Pipeline) -> dict[str, int]:
    return dict(pipeline.query("SELECT _topic, count() FROM {db}.events GROUP BY _topic"))


def test_the_topics_make_one_stream_and_a_further_one_is_read_from_its_beginning(
    topics: tuple[Pipeline, Pipeline, Pipeline], spark: SparkSession
) -> None:
    """Within a batch, the first topic of the list wins. A batch that is open at the edit ends as it was begun."""
    pipeline, second, third = topics
    pipeline.send(events(0, 20, "first"))
    second.send([*events(10, 30, "second"), b"broken"])
    third.send(events(25, 40, "third"))

    assert pipeline.catch_up()["duplicates"] == 10
    assert by_topic(pipeline) == {pipeline.name: 20, second.name: 10}
    second.send(events(30, 35, "second"))
    pipeline.die_at("write_blocks")
    pipeline.source["topics"] = [pipeline.name, second.name, third.name]
    pipeline.write()
    assert pipeline.catch_up()["read"] == 20
    assert by_topic(pipeline) == {pipeline.name: 20, second.name: 15, third.name: 5}
    assert pipeline.query("SELECT count(), uniqExact(id), max(n) FROM {db}.events") == [(40, 40, 39)]

    config = load_pipeline(pipeline.file)
    assert verify_pipeline(config, print).counts.passed
    assert reconcile_keys(spark, config, print).passed


def test_topics_keep_their_order_and_stay(topics: tuple[Pipeline, Pipeline, Pipeline]) -> None:
    pipeline, second, third = topics
    pipeline.catch_up()
    for wrong in ([second.name, pipeline.name], [pipeline.name], [third.name, pipeline.name, second.name]):
        pipeline.source["topics"] = wrong
        done = pipeline.write().run_without_spark("--until-caught-up")
        assert done.code == 1
        assert (
            f"reads topic {pipeline.name}, {second.name}, but the definition says {', '.join(wrong)}; keep" in done.err
        )


@pytest.mark.long
def test_a_dead_letter_of_any_topic_is_replayed(topics: tuple[Pipeline, Pipeline, Pipeline]) -> None:
    pipeline, second, _ = topics
    second.send([{"id": "k1", "n": "no number", "text": "second"}])
    pipeline.catch_up()
    pipeline.fields[1]["type"] = "string"
    pipeline.columns["n"] = "String"
    pipeline.client().command(f"ALTER TABLE {pipeline.name}.events MODIFY COLUMN n String")
    pipeline.write()
    replay(load_pipeline(pipeline.file), "1", print)
    assert pipeline.catch_up()["written"] == 1
    assert by_topic(pipeline) == {f"{pipeline.name}.glassflow-replay": 1}


@pytest.mark.long
def test_topics_that_match_later_are_read_while_the_pipeline_runs(
    pipeline: Pipeline, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one whose name comes before the others, and one that was created while no driver ran."""
    named = [replace(pipeline, name=f"{pipeline.name}.{name}") for name in ("m", "b", "z")]
    other = replace(pipeline, name=f"other-{pipeline.name}.m")
    pipeline.source = {"topic": None, "topic_pattern": rf"{pipeline.name}\.[a-z]"}
    pipeline.columns = {**pipeline.columns, "_topic": "String"}
    pipeline.write()
    config = load_pipeline(pipeline.file)
    for each in (named[0], other):
        each.create_topic()
        each.send({"id": f"k{number}", "n": number} for number in range(10))
    start(pipeline)
    wait_until(lambda: pipeline.ledger()["read"] == 10, "the first topic is read")

    named[1].create_topic()
    named[1].send({"id": f"k{number}", "n": number} for number in range(5, 20))
    wait_until(lambda: pipeline.ledger()["read"] == 25, "the second topic is read")
    kill(pipeline)
    named[2].create_topic()
    named[2].send({"id": f"k{number}", "n": number} for number in range(15, 30))
    named[0].send({"id": f"k{number}", "n": number} for number in range(25, 40))
    start(pipeline)
    wait_until(lambda: pipeline.ledger()["read"] == 55, "all topics are read")
    stop(pipeline)

    assert pipeline.query("SELECT count(), uniqExact(id), max(n) FROM {db}.events") == [(40, 40, 39)]
    assert pipeline.query("SELECT DISTINCT definition FROM {db}.glassflow_ledger") == [(config.digest,)]
    # No batch is in progress, so nothing needs to be waited for.
    monkeypatch.setattr(wait_until_stable, "STILL_SECONDS", 0.0)
    assert verify_pipeline(config, print).counts.passed
    assert reconcile_keys(spark, config, print).passed


@pytest.mark.long
def test_a_batch_that_is_open_when_a_topic_appears_is_repeated_as_it_was_begun(
    pipeline: Pipeline,
) -> None:
    """The new topic's name comes first, so that it moves the others in the order of a batch."""
    late, early, begun = (replace(pipeline, name=f"{pipeline.name}.{name}") for name in ("z", "a", "m"))
    pipeline.source = {"topic": None, "topic_pattern": rf"{pipeline.name}\..*"}
    pipeline.sink = {"max_batch_size": 5}
    pipeline.write()
    for each in (late, begun):
        each.create_topic()
        each.send({"id": f"{each.name[-1]}{number}", "n": number} for number in range(20))
    pipeline.die_at("write_ledger_row")
    assert rows(pipeline) == 40
    early.create_topic()
    early.send({"id": f"a{number}", "n": number} for number in range(20))
    assert pipeline.catch_up()["read"] == 60
    assert pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events") == [(60, 60)]


@pytest.mark.long
def test_a_topic_that_is_added_without_its_first_records_is_read_from_those_that_it_has(
    topics: tuple[Pipeline, Pipeline, Pipeline], spark: SparkSession
) -> None:
    pipeline, second, third = topics
    pipeline.send(events(0, 5, "first"))
    pipeline.catch_up()
    third.send(events(10, 30, "third"), lambda _: 0)
    admin = AdminClient({"bootstrap.servers": pipeline.brokers})
    position = TopicPartition(third.name, 0, 12)
    admin.delete_records([position])[position].result(30)
    pipeline.source["topics"] = [pipeline.name, second.name, third.name]
    pipeline.write()
    assert pipeline.catch_up()["read"] == 8
    assert pipeline.catch_up()["read"] == 0
    assert by_topic(pipeline) == {pipeline.name: 5, third.name: 8}
    config = load_pipeline(pipeline.file)
    assert verify_pipeline(config, print).counts.passed
    assert reconcile_keys(spark, config, print).passed


def read_two_and_delete_one(pipeline: Pipeline) -> Pipeline:
    """Read five events of each of two topics that match a pattern, and delete one topic; return the other one."""
    kept, deleted = (replace(pipeline, name=f"{pipeline.name}.{name}") for name in ("kept", "deleted"))
    pipeline.source = {"topic": None, "topic_pattern": rf"{pipeline.name}\..*"}
    pipeline.write()
    for each, first in ((kept, 0), (deleted, 5)):
        each.create_topic()
        each.send({"id": f"k{number}", "n": number} for number in range(first, first + 5))
    pipeline.catch_up()
    admin = AdminClient({"bootstrap.servers": pipeline.brokers})
    admin.delete_topics([deleted.name])[deleted.name].result(30)
    wait_until(lambda: deleted.name not in admin.list_topics(timeout=10).topics, "the topic is gone")
    return kept


@pytest.mark.long
def test_a_topic_of_a_pattern_that_is_deleted_is_given_up_when_the_loss_is_accepted(pipeline: Pipeline) -> None:
    kept = read_two_and_delete_one(pipeline)
    kept.send([{"id": "last", "n": 1}])

    with pytest.raises(GlassflowError, match=r"it was deleted after .* at these offsets: to continue .*--accept-loss"):
        pipeline.catch_up()
    assert pipeline.catch_up(accept=accept_loss)["written"] == 1
    kept.send([{"id": "very last", "n": 1}])
    assert pipeline.catch_up()["written"] == 1
    assert rows(pipeline) == 12
    assert verify_pipeline(load_pipeline(pipeline.file), print).counts.passed


def test_a_topic_of_a_pattern_that_is_deleted_does_not_come_back_with_a_new_start(pipeline: Pipeline) -> None:
    read_two_and_delete_one(pipeline)
    pipeline.client().command(f"TRUNCATE TABLE {pipeline.name}.events")
    assert pipeline.catch_up(start_over=True)["written"] == 5


@pytest.mark.long
def test_topics_that_match_after_a_state_was_given_up_are_read(pipeline: Pipeline) -> None:
    """The checkpoint has start offsets of the topics that there were, and no batch yet."""
    first, second = (replace(pipeline, name=f"{pipeline.name}.{name}") for name in ("b", "a"))
    pipeline.source = {"topic": None, "topic_pattern": rf"{pipeline.name}\..*"}
    pipeline.write()
    first.create_topic()
    first.send({"id": f"k{number}", "n": number} for number in range(5))
    pipeline.catch_up()
    shutil.rmtree(pipeline.state / pipeline.name)
    assert pipeline.catch_up(accept=accept_loss)["read"] == 0
    second.create_topic()
    second.send({"id": f"k{number}", "n": number} for number in range(5, 10))
    assert pipeline.catch_up()["written"] == 5
    assert rows(pipeline) == 10


@pytest.mark.long
def test_dagster_shows_the_topics_as_one_asset(topics: tuple[Pipeline, Pipeline, Pipeline]) -> None:
    pipeline, second, _ = topics
    pipeline.send(events(0, 3, "first"))
    second.send(events(3, 5, "second"))
    loaded = build_folder_definitions(pipeline.file.parent, Orchestration(runner=LocalRunner(pipeline.state)))
    job = loaded.resolve_implicit_global_asset_job_def()
    try:
        with dg.DagsterInstance.ephemeral() as instance:
            wait_until(lambda: job.execute_in_process(instance=instance).success, "the stream runs")
            wait_until(lambda: pipeline.ledger()["read"] == 5, "all is read")
            result = job.execute_in_process(instance=instance)
        key = dg.AssetKey([pipeline.name, "raw_events"])
        [found] = [each for each in result.get_asset_materialization_events() if each.asset_key == key]
        metadata = found.step_materialization_data.materialization.metadata
        assert metadata["partitions"].value == 4
        assert metadata["lag"].value == 0
        assert metadata["high_offsets"].value == {pipeline.name: {"0": 2, "1": 1}, second.name: {"0": 1, "1": 1}}
    finally:
        stop(pipeline)


@pytest.mark.long
def test_the_tutorial_does_what_it_says(pipeline: Pipeline, tmp_path: Path) -> None:
    database, prefix = pipeline.name, f"{pipeline.name}."
    text, blocks = tutorial("topics", pipeline, {
        'f"shop.{shop}"': f'f"{prefix}{{shop}}"', "topic_pattern: shop\\.": f"topic_pattern: {pipeline.name}\\.",
    }, "Many topics into one table")  # fmt: skip
    (tmp_path / "send.py").write_text(blocks["python"])
    sent = re.findall(r"^python send.py (\w+) (\d+)$", text, re.MULTILINE)

    def send(shop: str, count: str) -> None:
        subprocess.run([sys.executable, tmp_path / "send.py", shop, count], check=True)

    for shop in sent[:2]:
        send(*shop)
    pipeline.name = "shop_orders"
    pipeline.file.parent.mkdir()
    pipeline.file.write_text(blocks["yaml"])
    query = blocks["sql"].replace("FROM shop_orders", f"FROM {database}.shop_orders")
    exists = f"EXISTS {database}.shop_orders"
    start(pipeline)
    try:
        wait_until(lambda: pipeline.query(exists) == [(1,)] and len(pipeline.query(query)) == 2, "two shops are there")
        shown = re.findall(r"^shop\.(\w+) +(\d+)  (\d)$", text, re.MULTILINE)
        assert pipeline.query(query) == [(f"{prefix}{shop}", int(count), till) for shop, count, till in shown]
        send(*sent[2])
        wait_until(lambda: len(pipeline.query(query)) == 3, "the new shop is there")
        told = ", ".join(f"{prefix}{shop} 0" for shop, _ in sent)
        shown = ("status", pipeline.name, "--state", str(pipeline.state), "--pipelines", str(pipeline.file.parent))
        wait_until(lambda: f"lag 0 ({told})" in invoke(*shown).out, "the status shows each topic")
        assert "matched" not in invoke(*shown).out
    finally:
        stop(pipeline)
    assert f"new topics: {prefix}{sent[2][0]};" in (pipeline.state / pipeline.name / "driver.log").read_text()
    assert invoke("verify", pipeline.name, "--pipelines", str(pipeline.file.parent)).code == 0
