"""OTLP sources: a record is many events, each with its own outcome, position and dead letter."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from pyspark.sql import SparkSession

from glassflow_dagster.checks.exact.compare_keys import reconcile_keys
from glassflow_dagster.checks.verify import verify_pipeline
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.recovery.rebuild import rebuild_checkpoint
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.clickhouse.tables.token_window import own_setting
from glassflow_dagster.stream.delivery.batch_bound import BatchBound
from glassflow_dagster.stream.inline_or_job import INLINE_RECORDS_SETTING
from tests.e2e.support import Pipeline, invoke, tutorial
from tests.e2e.test_dead_letters import dead_letter_command, listed
from tests.support.export_requests import any_value, attributes, span, to_json, traces
from tests.support.variants import one_of

COLUMNS = {
    "trace_id": "String", "span_id": "String", "name": "LowCardinality(String)", "duration_ns": "UInt64",
    "start_timestamp": "DateTime64(9)", "attributes": "Map(String, String)",
}  # fmt: skip
BROKEN = b"\x0a\x05ab"


@pytest.fixture
def spans(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline of spans, deduplicated by their ids, whose small blocks divide requests."""
    pipeline.fields = []
    pipeline.source = {"type": "otlp.traces"}
    pipeline.columns = COLUMNS
    pipeline.keys = ["trace_id", "span_id"]
    pipeline.sink = {"max_batch_size": 7}
    pipeline.create_topic()
    return pipeline.write()


def request(trace: int, *numbers: int, **more: Any) -> bytes:
    """Return a request with spans of a trace."""
    return traces([span(trace, number, **more) for number in numbers]).SerializeToString()


def require_exact(pipeline: Pipeline, spark: SparkSession, rows: int) -> PipelineConfig:
    """Check that the table has so many rows, of as many keys, and that all comparisons agree."""
    assert pipeline.query("SELECT count(), uniqExact(trace_id, span_id) FROM {db}.events") == [(rows, rows)]
    config = load_pipeline(pipeline.file)
    report = verify_pipeline(config, print)
    assert report.passed, report
    assert report.counts.exact, report.counts.description
    found = reconcile_keys(spark, config, print)
    assert found.passed, found.description
    return config


@pytest.mark.parametrize("as_job", one_of([False, True]))
def test_each_span_of_a_request_is_an_event(
    spans: Pipeline, spark: SparkSession, jobs: list[int], as_job: bool
) -> None:
    """Duplicates in one request and across requests, records that are none, and requests without spans."""
    if as_job:
        spans.more["spark"] = {INLINE_RECORDS_SETTING: "0"}
        spans.write()
    spans.send([request(1, 1, 2, 2, 3), request(1, 3, 4), BROKEN, b"", request(2, *range(1, 21)), None])

    totals = spans.catch_up()

    # Empty: one event that is filtered. Broken, and without a value: one dead letter each.
    assert (totals["read"], totals["written"], totals["duplicates"]) == (29, 24, 2)
    assert (totals["filtered"], totals["dead_letters"]) == (1, 2)
    assert spans.query("SELECT sum(records) FROM {db}.glassflow_ledger") == [(6,)]
    assert jobs == ([0] if as_job else [])
    [row] = spans.query(
        f"SELECT name, duration_ns, toString(start_timestamp), trace_id FROM {{db}}.events WHERE span_id = '{20:016x}'"
    )
    assert row == ("work", 1_000_000, "2025-11-24 16:00:00.000000020", f"{2:032x}")
    assert [letter["item"] for letter in listed(spans)] == [-1, -1]
    require_exact(spans, spark, 24)
    # The keys are known.
    spans.send([request(2, *range(1, 21))])
    assert spans.catch_up()["duplicates"] == 20
    require_exact(spans, spark, 24)


def test_the_first_of_equal_spans_in_a_request_survives(spans: Pipeline) -> None:
    named = [span(1, 7, name=f"n{number}") for number in range(300)]
    spans.send([traces(named).SerializeToString(), request(1, 7)], lambda _: 0)

    assert spans.catch_up()["duplicates"] == 300
    assert spans.query("SELECT name FROM {db}.events") == [("n0",)]


@pytest.mark.parametrize("as_job", one_of([False, True]))
@pytest.mark.parametrize("at", one_of(["write_blocks", "write_ledger_row"]))
@pytest.mark.long
def test_a_repeated_batch_doubles_and_loses_no_span(
    spans: Pipeline, spark: SparkSession, at: str, as_job: bool
) -> None:
    if as_job:
        spans.more["spark"] = {INLINE_RECORDS_SETTING: "0"}
        spans.write()
    spans.send([request(trace, *range(1, 12), *range(5, 9)) for trace in range(1, 9)])
    spans.die_at(at)

    totals = spans.catch_up()

    assert (totals["read"], totals["written"], totals["duplicates"]) == (120, 88, 32)
    require_exact(spans, spark, 88)


def small_and_large_requests(large: int) -> list[bytes]:
    """Return requests of one span, more than are sampled, and behind them so many requests of 100 spans."""
    return [*(request(2, number) for number in range(1, 211)), *(large_request(record) for record in range(large))]


def large_request(record: int) -> bytes:
    """Return a request of 100 spans, each for a partition of its own."""
    return traces([span(1, 100 * record + k + 1, name=str(k)) for k in range(100)]).SerializeToString()


PARTITIONED = {
    "max_batch_size": 100, "create_table": {"order_by": "span_id", "partition_by": "toUInt64OrZero(name)"},
}  # fmt: skip


@pytest.mark.parametrize("as_job", one_of([False, True]))
@pytest.mark.long
def test_a_batch_of_more_blocks_than_the_table_keeps_tokens_doubles_no_span(spans: Pipeline, as_job: bool) -> None:
    if as_job:
        spans.more["spark"] = {INLINE_RECORDS_SETTING: "0"}
    spans.sink = PARTITIONED
    spans.write().send(small_and_large_requests(110), lambda _: 0)
    rows = 210 + 11_000

    spans.die_at("write_ledger_row")

    [(table,)] = spans.query("SELECT engine_full FROM system.tables WHERE database = '{db}' AND name = 'events'")
    window = own_setting(table, "non_replicated_deduplication_window")
    assert window is not None
    assert window >= 2 * rows
    assert spans.catch_up()["written"] == rows
    assert spans.query("SELECT count(), uniqExact(trace_id, span_id) FROM {db}.events") == [(rows, rows)]
    assert verify_pipeline(load_pipeline(spans.file), print).passed


@pytest.mark.long
def test_where_the_window_must_not_be_changed_the_batch_ends_before_it_is_too_small(spans: Pipeline) -> None:
    """And continues when the statement of the error has been run."""
    spans.sink = {**PARTITIONED, "deduplication_window": "require"}
    spans.write()
    create_table(spans, "PARTITION BY toUInt64OrZero(name)")
    spans.send(small_and_large_requests(110), lambda _: 0)

    with pytest.raises(GlassflowError, match="keeps 10000 insert tokens, and a batch needs more") as error:
        spans.catch_up()

    assert spans.query("SELECT count() <= 10000 FROM {db}.events") == [(1,)]
    assert spans.query("SELECT count() FROM {db}.glassflow_ledger") == [(0,)]
    [statement] = re.findall(r"run (ALTER TABLE .*), then start", str(error.value))
    spans.client().command(statement)
    assert spans.catch_up()["written"] == 11_210
    assert spans.query("SELECT count(), uniqExact(trace_id, span_id) FROM {db}.events") == [(11_210, 11_210)]


@pytest.mark.long
def test_the_events_of_a_sample_limit_the_first_batch(spans: Pipeline) -> None:
    spans.sink = PARTITIONED
    spans.write().send([large_request(record) for record in range(60)], lambda _: 0)

    assert spans.catch_up()["written"] == 6000
    # 50 blocks, each with tokens for 100 partitions, are half of the tokens that a table keeps.
    assert spans.query("SELECT records, read FROM {db}.glassflow_ledger ORDER BY batch_id") == [(50, 5000), (10, 1000)]


@pytest.mark.long
@pytest.mark.parametrize("as_job", one_of([False, True]))
def test_the_bytes_of_duplicates_limit_the_next_batch(
    spans: Pipeline, monkeypatch: pytest.MonkeyPatch, as_job: bool
) -> None:
    if as_job:
        spans.more["spark"] = {INLINE_RECORDS_SETTING: "0"}
    spans.write()
    sizes: list[tuple[int, ...]] = []
    monkeypatch.setattr(BatchBound, "update", lambda _, *figures: sizes.append(figures))
    large = request(1, *range(1, 11), attributes=attributes(large="x" * 1000))
    spans.send([large])
    spans.catch_up()
    spans.send([large] * 3)
    assert spans.catch_up()["duplicates"] == 30

    # A sample, then the batch, of each run.
    [*_, (records, size, events)] = sizes
    assert (records, events) == (3, 30)
    assert size > 30 * 1000


def create_table(pipeline: Pipeline, *clauses: str) -> None:
    """Create the target with a deduplication window. clauses: of its definition."""
    pipeline.client().command(f"CREATE DATABASE {pipeline.name}")
    columns = ", ".join(f"{name} {kind}" for name, kind in pipeline.columns.items())
    pipeline.client().command(
        f"CREATE TABLE {pipeline.name}.events ({columns}) ENGINE = MergeTree {' '.join(clauses)} ORDER BY span_id "
        "SETTINGS non_replicated_deduplication_window = 10000"
    )


@pytest.mark.long
def test_a_lost_checkpoint_is_rebuilt_from_the_events_of_requests(
    spans: Pipeline, spark: SparkSession, tmp_path: Path
) -> None:
    """Of the open batch, the spans that are in the table are found by their positions in their requests."""
    spans.send([request(1, *range(1, 12))])
    spans.catch_up()
    spans.send([request(2, *range(1, 16)), request(1, *range(8, 16))])
    spans.die_at("write_ledger_row")
    (spans.state / spans.name / "checkpoint").rename(tmp_path / "lost")

    spans.catch_up(rebuild=rebuild_checkpoint)
    spans.send([request(1, *range(1, 16)), request(2, *range(1, 16))])

    assert spans.catch_up()["duplicates"] == 30
    require_exact(spans, spark, 30)


def test_an_event_is_a_dead_letter_and_is_replayed_by_itself(spans: Pipeline) -> None:
    """Others of its request are rows. Two of one record are told apart: listed, replayed and purged each on its own."""
    spans.transforms = [duration_of("int(attributes['n'])")]
    spans.write()
    sent = [span(1, number, attributes=attributes(n=value)) for number, value in enumerate([1, "two", "three", 4], 1)]
    spans.send([traces(sent).SerializeToString(), request(9, 9), BROKEN], lambda _: 0)

    totals = spans.catch_up()

    assert (totals["read"], totals["written"], totals["dead_letters"]) == (6, 2, 4)
    found = {(letter["offset"], letter["item"]): letter for letter in listed(spans)}
    assert sorted(found) == [(0, 1), (0, 2), (1, 0), (2, -1)]
    two = found[0, 1]
    assert (two["stage"], two["key"], two["headers"], two["origin_item"]) == ("transform", "k", [["h", "1"]], 1)
    assert (json.loads(two["value"])["span_id"], json.loads(two["value"])["attributes"]) == (f"{2:016x}", {"n": "two"})
    assert f"{spans.name}/0/0/1" in dead_letter_command(spans, "list").stdout

    spans.transforms = [duration_of("len(attributes)")]
    spans.write()
    assert "sent again: 1" in dead_letter_command(spans, "replay", "--where", "item = 2").stdout
    assert [letter["item"] for letter in listed(spans, "--where", "replayed")] == [2]
    again = dead_letter_command(spans, "replay").stdout
    assert "sent again: 3" in again
    assert "skipped: 1 that were sent before" in again

    totals = spans.catch_up()

    # The broken record is split again, and broken again.
    assert (totals["read"], totals["written"], totals["dead_letters"]) == (4, 3, 1)
    assert spans.query("SELECT sum(records) FROM {db}.glassflow_ledger") == [(3 + 4,)]
    [hopeless] = listed(spans, "--where", "NOT replayed")
    assert (hopeless["item"], hopeless["attempt"], hopeless["origin_offset"], hopeless["origin_item"]) == (-1, 1, 2, -1)
    assert "deleted: 1" in dead_letter_command(spans, "purge", "--where", f"item = 1 AND topic = '{spans.name}'").stdout
    assert sorted(letter["item"] for letter in listed(spans)) == [-1, -1, 0, 2]
    verified = verify_pipeline(load_pipeline(spans.file), print)
    assert verified.counts.passed, verified.counts.description
    assert verified.counts.figures["dead_letters_purged"] == 1
    assert spans.query("SELECT count() FROM {db}.events") == [(5,)]


def duration_of(expression: str) -> dict[str, Any]:
    """Return a stateless transform that computes the duration, and passes the other fields."""
    outputs = [{"output_name": name, "expression": name} for name in COLUMNS if name != "duration_ns"]
    duration = {"output_name": "duration_ns", "expression": expression, "output_type": "int"}
    return {"type": "stateless", "config": {"transforms": [*outputs, duration]}}


@pytest.mark.long
def test_an_event_that_the_server_refuses_is_replayed_as_that_event(spans: Pipeline, spark: SparkSession) -> None:
    spans.client().command(f"CREATE DATABASE {spans.name}")
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    spans.client().command(
        f"CREATE TABLE {spans.name}.events ({columns}, CONSTRAINT c CHECK span_id NOT LIKE '%3') "
        "ENGINE = MergeTree ORDER BY span_id SETTINGS non_replicated_deduplication_window = 10000"
    )
    spans.send([request(1, 1, 2, 3, 4), request(1, 0x13, 5)], lambda _: 0)
    assert spans.catch_up()["dead_letters"] == 2
    require_exact(spans, spark, 4)
    first, second = sorted(listed(spans), key=lambda letter: letter["offset"])
    assert [(letter["item"], letter["stage"], letter["passed_dedup"]) for letter in (first, second)] == [
        (2, "insert", True), (0, "insert", True),
    ]  # fmt: skip
    assert json.loads(first["value"])["span_id"] == f"{3:016x}"
    assert (first["key"], first["headers"]) == ("k", [["h", "1"]])

    spans.client().command(f"ALTER TABLE {spans.name}.events DROP CONSTRAINT c")
    assert "sent again: 2" in dead_letter_command(spans, "replay").stdout
    assert spans.catch_up()["written"] == 2
    assert spans.query("SELECT count(), uniqExact(span_id) FROM {db}.events") == [(6, 6)]


def test_an_event_without_a_key_is_a_dead_letter(spans: Pipeline) -> None:
    """GlassFlow fails the request."""
    spans.keys = ["trace_id"]
    spans.write().send([request(0, 1, 2), request(1, 3)])

    totals = spans.catch_up()

    assert (totals["written"], totals["dead_letters"]) == (1, 2)
    assert {(letter["stage"], letter["reason"]) for letter in listed(spans)} == {
        ("decode", "the key is empty (trace_id)")
    }


@pytest.mark.long
def test_an_attribute_of_a_key_is_empty_in_an_event_without_it(pipeline: Pipeline) -> None:
    """The guide's example."""
    [example] = re.findall(r"- \{type: otlp\.logs.*?```", Path("docs/guides/formats.md").read_text(), re.DOTALL)
    [keys] = re.findall(r"keys: \[(.*)\], time_window", example)
    pipeline.fields, pipeline.source = [], {"type": "otlp.logs"}
    pipeline.columns = {"timestamp": "DateTime64(9)", "body": "String", "attributes.log.record.uid": "String"}
    pipeline.keys = keys.split(", ")
    pipeline.create_topic()
    pipeline.write().send([logs(["a", "b", "a"]), logs(["a", "b"], uid=1), logs(["b"])], lambda _: 0)

    totals = pipeline.catch_up()

    assert (totals["written"], totals["duplicates"], totals["dead_letters"]) == (4, 2, 0)
    assert pipeline.query("SELECT body, `attributes.log.record.uid` FROM {db}.events ORDER BY ALL") == [
        ("a", ""), ("a", "1"), ("b", ""), ("b", "1"),
    ]  # fmt: skip


@pytest.mark.long
def test_an_event_is_a_dead_letter_only_if_all_texts_of_its_key_are_empty(spans: Pipeline, spark: SparkSession) -> None:
    spans.keys = ["trace_id", "span_id", "attributes.uid"]
    spans.columns = {**COLUMNS, "attributes.uid": "String"}
    spans.write().send(
        [traces([span(1, 1, attributes=attributes(uid="u")), span(1, 2), span(1, 2)]).SerializeToString()]
    )
    spans.send([traces([span(0, 0), span(0, 0, attributes=attributes(uid="u"))]).SerializeToString()])

    totals = spans.catch_up()

    assert (totals["written"], totals["duplicates"], totals["dead_letters"]) == (3, 1, 1)
    assert [letter["reason"] for letter in listed(spans)] == ["the key is empty (trace_id, span_id, attributes.uid)"]
    found = reconcile_keys(spark, load_pipeline(spans.file), print)
    assert found.passed, found.description


def logs(bodies: list[str], uid: int | None = None) -> bytes:
    """Return a request with a log record of each body. uid: an attribute of each."""
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for body in bodies:
        record = records.add(time_unix_nano=1, body=any_value(body))
        if uid is not None:
            record.attributes.extend(attributes(log__record__uid=uid))
    return request.SerializeToString()


@pytest.mark.long
def test_events_have_the_metadata_of_their_record_and_attributes_are_fields(spans: Pipeline) -> None:
    """In OTLP's JSON, on the event clock, with a filter."""
    spans.source |= {"format": "otlp_json", "start": "earliest"}
    spans.clock = {"clock": "event", "event_time": "start_timestamp", "late": "dead_letter"}
    spans.transforms = [{"type": "filter", "config": {"expression": "attributes['drop'] == nil && _partition == 0"}}]
    spans.columns = {
        "trace_id": "String", "span_id": "String", "resource_attributes.service.name": "String",
        "attributes.http.method": "String", "_key": "String", "_offset": "UInt64", "_headers": "Map(String, String)",
    }  # fmt: skip
    spans.write()
    sent = traces([span(1, 1, attributes=attributes(http__method="GET")), span(1, 2, attributes=attributes(drop=1))])
    spans.send([to_json(sent), b"{}", to_json(sent)], lambda _: 0)

    totals = spans.catch_up()

    assert (totals["read"], totals["written"], totals["duplicates"], totals["filtered"]) == (5, 1, 1, 3)
    rows = spans.query("SELECT * EXCEPT (trace_id, span_id) FROM {db}.events")
    assert rows == [("shop", "GET", "k", 0, {"h": "1"})]
    assert verify_pipeline(load_pipeline(spans.file), print).counts.passed


def test_the_tutorial_does_what_it_says(pipeline: Pipeline, tmp_path: Path) -> None:
    topic, state = f"{pipeline.name}.spans", pipeline.state
    text, blocks = tutorial("otlp", pipeline, {'"shop_spans"': f'"{topic}"', "topic: shop_spans": f"topic: {topic}"})
    (tmp_path / "send.py").write_text(blocks["python"])
    subprocess.run([sys.executable, tmp_path / "send.py"], check=True)
    database, pipeline.name = pipeline.name, "shop_spans"
    pipeline.file.parent.mkdir()
    pipeline.file.write_text(blocks["yaml"])
    assert invoke("run", str(pipeline.file), "--until-caught-up", "--state", str(state)).code == 0
    found = pipeline.query(blocks["sql"].replace("FROM otel", f"FROM {database}.otel"))
    shown = re.findall(r"^(\w+) +(\d+) +(\d+) +(\d+)$", text, re.MULTILINE)
    assert found == [(service, *map(int, numbers)) for service, *numbers in shown]
    done = invoke("verify", pipeline.name, "--pipelines", str(pipeline.file.parent))
    [told] = re.findall(r"^ok .*$", text, re.MULTILINE)
    assert told.replace("default.", f"{database}.") in done.out
    listing = invoke("dead-letters", "list", pipeline.name, "--pipelines", str(pipeline.file.parent))
    assert "invalid JSON" in listing.out
