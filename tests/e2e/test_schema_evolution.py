"""A pipeline whose events get new fields while it runs (`schema_evolution`)."""

import io
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

import dagster as dg
import fastavro
import pytest
from pyspark.sql import SparkSession

from glassflow_dagster.checks.exact.compare_keys import reconcile_keys
from glassflow_dagster.checks.verify import verify_pipeline
from glassflow_dagster.control.runners.local import LocalRunner
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.driver.recovery.acceptance import accept_loss
from glassflow_dagster.driver.recovery.rebuild import rebuild_checkpoint
from glassflow_dagster.driver.watch import schema_changes
from glassflow_dagster.driver.watch.schema_watch import NEWEST_RECORDS, look
from glassflow_dagster.errors import Fenced, GlassflowError
from glassflow_dagster.inference.new_fields import STEADY_EVENTS
from glassflow_dagster.orchestration.build_definitions import Orchestration, build_folder_definitions
from glassflow_dagster.orchestration.checks import SCHEMA_CHANGES_TAKEN
from glassflow_dagster.stores.bookkeeping.fencing import begin_epoch
from glassflow_dagster.stores.bookkeeping.schema_changes import Change, SchemaChange, note_schema_change
from glassflow_dagster.stores.clickhouse.client import connect
from tests.e2e.support import Pipeline, invoke, kill, start, stop, tutorial
from tests.servers.registry import Registry, serving
from tests.support.variants import one_of
from tests.support.waiting import wait_until

MANY = STEADY_EVENTS + 20


def events(first: int, count: int, **more: Any) -> list[dict[str, Any]]:
    return [{"id": f"k{number}", "n": number, **more} for number in range(first, first + count)]


@pytest.fixture
def evolving(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline that adds columns; its topic has a field that the definition leaves out."""
    pipeline.more["schema_evolution"] = "add_columns"
    pipeline.create_topic()
    pipeline.send(events(0, 10, source="web"))
    return pipeline.write()


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as running:
        yield running


def avro(registry: Registry, fields: Iterable[tuple[str, Any]], event: dict[str, Any]) -> bytes:
    """Return an event in Confluent's wire format, its schema registered."""
    schema = {"type": "record", "name": "Event", "fields": [{"name": name, "type": kind} for name, kind in fields]}
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), event)
    return b"\0" + registry.register("events-value", schema).to_bytes(4, "big") + stream.getvalue()


def book(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    return pipeline.query("SELECT change, field, column_type FROM {db}.glassflow_schema_changes ORDER BY number")


def columns(pipeline: Pipeline) -> dict[str, str]:
    return dict(pipeline.query("SELECT name, type FROM system.columns WHERE database = '{db}' AND table = 'events'"))


def filled(pipeline: Pipeline, column: str) -> Any:
    return pipeline.query(f"SELECT count({column}), count() FROM {{db}}.events")[0]


def require_exact(pipeline: Pipeline, spark: SparkSession) -> None:
    """Fail unless each key has one row; to take up a field is an edit, behind which `verify --exact` cannot decide."""
    config = load_pipeline(pipeline.file)
    report = verify_pipeline(config, print)
    assert report.passed, (report.counts.description, report.duplicates.description)
    [(rows, keys)] = pipeline.query("SELECT count(), uniqExact(id) FROM {db}.events")
    assert rows == keys
    found = reconcile_keys(spark, config, print)
    assert (found.decided, "batches ran with an earlier definition" in found.description) == (False, True)


def test_a_field_that_comes_steadily_fills_a_column_from_the_next_batch_on(
    evolving: Pipeline, spark: SparkSession
) -> None:
    """Not one that was there at first, and not one that a few events have by mistake."""
    assert evolving.catch_up()["written"] == 10
    assert book(evolving) == [("ignored", "", ""), ("ignored", "source", "")]
    evolving.send(events(10, MANY, source="web", colour="red", price=2.5, sizes=[1], address={"city": "Ulm"}))
    evolving.send(events(500, 20, source="web", color="red"))
    assert evolving.catch_up()["written"] == MANY + 20
    assert {name: kind for name, kind in columns(evolving).items() if name not in ("id", "n")} == {
        "colour": "Nullable(String)", "price": "Nullable(Float64)", "sizes": "Nullable(String)",
        "address_city": "Nullable(String)",
    }  # fmt: skip
    assert filled(evolving, "colour") == (MANY, 10 + MANY + 20)
    assert evolving.query("SELECT DISTINCT price, sizes, address_city FROM {db}.events WHERE price > 0") == [
        (2.5, "[1]", "Ulm")
    ]
    require_exact(evolving, spark)
    # The file is as it was, and the next start knows the fields.
    evolving.send(events(600, 5, colour="blue"))
    evolving.catch_up()
    assert filled(evolving, "colour") == (MANY + 5, 10 + MANY + 25)
    assert len(book(evolving)) == 6


@pytest.mark.long
def test_a_field_is_taken_up_while_the_pipeline_runs(evolving: Pipeline, spark: SparkSession) -> None:
    """Also after the driver was killed: what it took up stays."""
    start(evolving)
    wait_until(lambda: evolving.ledger()["read"] == 10, "the first events are read")
    evolving.send(events(10, MANY, colour="red"))
    wait_until(lambda: "colour" in columns(evolving), "the column is there")
    wait_until(lambda: ("added", "colour", "Nullable(String)") in book(evolving), "the field is in the book")
    evolving.send(events(500, 10, colour="blue"))
    wait_until(lambda: evolving.ledger()["read"] == 20 + MANY, "all is read")
    assert evolving.query("SELECT count() FROM {db}.events WHERE colour = 'blue'") == [(10,)]
    kill(evolving)
    evolving.send(events(600, 10, colour="green"))
    start(evolving)
    wait_until(lambda: evolving.ledger()["read"] == 30 + MANY, "all is read after the kill")
    stop(evolving)
    assert evolving.query("SELECT count() FROM {db}.events WHERE colour = 'green'") == [(10,)]
    require_exact(evolving, spark)


@pytest.mark.long
@pytest.mark.parametrize("moment", one_of(["before the look at the table", "before the ALTER"]))
def test_a_column_that_another_pipeline_adds_just_then_is_refused_once_and_the_stream_goes_on(
    evolving: Pipeline, moment: str
) -> None:
    evolving.catch_up()
    evolving.send(events(10, MANY, colour=5))
    called = "look" if moment == "before the look at the table" else "execute"
    original = getattr(schema_changes, called)

    def after_the_other(*arguments: Any) -> Any:
        evolving.client().command(
            f"ALTER TABLE {evolving.name}.events ADD COLUMN IF NOT EXISTS colour Nullable(String)"
        )
        return original(*arguments)

    with patch.object(schema_changes, called, after_the_other):
        assert evolving.catch_up()["written"] == MANY
    expected = [row for row in book(evolving) if row[0] == "refused"]
    assert expected == [("refused", "colour", "Nullable(Int64)")]
    evolving.send(events(500, 10, colour=6))
    assert evolving.catch_up()["written"] == 10
    assert [row for row in book(evolving) if row[0] != "ignored"] == expected

    # As an earlier version did, which has not looked behind the ALTER.
    config = load_pipeline(evolving.file)
    database = config.sink.connection_params.database
    row = SchemaChange(9, Change.ADDED, "colour", "int", "colour", "Nullable(Int64)", definition=config.digest)
    note_schema_change(connect(config.sink.connection_params), database, config.pipeline_id, row)
    remedy = "not in the file, but taken up by schema_evolution: colour; declare them in schema_fields"
    with pytest.raises(GlassflowError, match=remedy):
        evolving.catch_up()
    evolving.fields += [{"name": "colour", "type": "int", "required": False}]
    assert evolving.write().catch_up()["read"] == 0


@pytest.mark.parametrize("step", one_of(["execute", "note_schema_change", "find_tables"]))
def test_a_crash_while_a_field_is_taken_up_loses_and_doubles_nothing(
    evolving: Pipeline, spark: SparkSession, step: str
) -> None:
    """Before the column is there, before the book has it, and after that; with a batch that is open."""
    evolving.catch_up()
    evolving.send(events(10, 30))
    evolving.die_at("write_ledger_row")
    evolving.send(events(50, MANY, colour="red"))
    death = GlassflowError("the driver died")
    with patch.object(schema_changes, step, side_effect=death), pytest.raises(GlassflowError, match="driver died"):
        evolving.catch_up()
    evolving.catch_up()
    assert filled(evolving, "colour") == (MANY, 40 + MANY)
    assert [row for row in book(evolving) if row[0] == "added"] == [("added", "colour", "Nullable(String)")]
    require_exact(evolving, spark)


def test_a_batch_that_is_open_when_a_field_was_taken_up_is_repeated_as_it_was_begun(
    evolving: Pipeline, spark: SparkSession
) -> None:
    evolving.catch_up()
    evolving.send(events(10, MANY, colour="red"))
    evolving.die_at("write_ledger_row")
    assert filled(evolving, "colour") == (MANY, 10 + MANY)
    evolving.send(events(500, MANY, size=3))
    evolving.catch_up()
    assert filled(evolving, "colour") == (MANY, 10 + 2 * MANY)
    assert filled(evolving, "size") == (MANY, 10 + 2 * MANY)
    require_exact(evolving, spark)


@pytest.mark.long
def test_a_lost_checkpoint_costs_no_field_and_no_row(evolving: Pipeline, tmp_path: Path) -> None:
    """The last batch is of the definition before the field, the open one of that with it."""
    evolving.catch_up()
    evolving.send(events(10, MANY, colour="red"))
    evolving.die_at("write_ledger_row")
    assert filled(evolving, "colour") == (MANY, 10 + MANY)
    (evolving.state / evolving.name / "checkpoint").rename(tmp_path / "lost")
    with pytest.raises(GlassflowError, match="another definition"):
        evolving.catch_up(rebuild=rebuild_checkpoint)
    evolving.catch_up(accept=accept_loss)
    assert filled(evolving, "colour") == (MANY, 10 + MANY)
    assert verify_pipeline(load_pipeline(evolving.file), print).counts.passed


@pytest.mark.long
def test_a_transform_and_routes_pass_the_field_on(pipeline: Pipeline) -> None:
    pipeline.more["schema_evolution"] = "add_columns"
    pipeline.transforms = [
        {"type": "stateless", "config": {"transforms": [
            {"expression": "id", "output_name": "id", "output_type": "string"},
            {"expression": "n * 2", "output_name": "n", "output_type": "int"},
        ]}}
    ]  # fmt: skip
    own = [{"name": "id", "column_name": "key", "column_type": "String"}]
    pipeline.sink = {
        "routes": [{"table": "even", "filter": "n < 40"}, {"table": "few", "filter": "n > 400", "mapping": own}]
    }
    pipeline.create_topic()
    pipeline.write().send(events(0, 10))
    pipeline.catch_up()
    pipeline.send(events(10, MANY, colour="red", **{"not-a-name": 1}))
    pipeline.send(events(300, 1, colour="red"))
    pipeline.catch_up()
    assert pipeline.query("SELECT count(colour) FROM {db}.even") == [(10,)]
    assert pipeline.query("SELECT count(colour) FROM {db}.events") == [(MANY - 10,)]
    assert pipeline.query("SELECT count() FROM {db}.few") == [(1,)]
    refused = pipeline.query("SELECT field, reason FROM {db}.glassflow_schema_changes WHERE change = 'refused'")
    assert refused == [("not-a-name", "a stateless transform cannot name it")]


@pytest.mark.long
def test_what_cannot_be_taken_up_is_told_once_and_the_stream_goes_on(evolving: Pipeline, capsys: Any) -> None:
    """A column of the same name that does not take the field, and a declared field that is gone."""
    evolving.catch_up()
    evolving.client().command(f"ALTER TABLE {evolving.name}.events ADD COLUMN colour DateTime")
    evolving.send(events(10, MANY, colour=1.5))
    evolving.send({"id": f"x{number}"} for number in range(MANY))
    totals = evolving.catch_up()
    assert (totals["written"], totals["dead_letters"]) == (MANY, MANY)
    told = capsys.readouterr().out
    assert f"{evolving.name}.events has a column 'colour' already, DateTime, which is not Nullable(Float64)" in told
    assert "n: is missing or null in many events" in told
    evolving.send(events(500, 1))
    evolving.catch_up()
    assert "n: is missing" not in capsys.readouterr().out
    assert [row[:2] for row in book(evolving) if row[0] == "refused"] == [("refused", "n"), ("refused", "colour")]


def test_a_new_field_stops_the_pipeline_where_the_definition_says_so(evolving: Pipeline) -> None:
    evolving.more["schema_evolution"] = "fail"
    evolving.write().catch_up()
    evolving.send(events(10, MANY, colour="red"))
    for _ in range(2):  # It does not go on by a restart.
        with pytest.raises(
            GlassflowError, match=r"new field 'colour' \(string\).*schema_fields.*ignore or add_columns"
        ):
            evolving.catch_up()
    assert evolving.ledger()["read"] == 10
    evolving.fields = [*evolving.fields, {"name": "colour", "type": "string", "required": False}]
    assert evolving.write().catch_up()["written"] == MANY


@pytest.mark.long
def test_a_pipeline_that_ignores_new_fields_keeps_no_book(evolving: Pipeline) -> None:
    evolving.more.pop("schema_evolution")
    evolving.write().catch_up()
    evolving.send(events(10, MANY, colour="red"))
    evolving.catch_up()
    assert book(evolving) == []
    assert set(columns(evolving)) == {"id", "n"}


def refusals(pipeline: Pipeline) -> dict[str, str]:
    return dict(pipeline.query("SELECT field, reason FROM {db}.glassflow_schema_changes WHERE change = 'refused'"))


@pytest.mark.long
def test_what_would_harm_events_that_are_fine_is_not_taken_up(evolving: Pipeline) -> None:
    """Kafka's own metadata, several types, a column that takes no NULL, and a name that the server reserves."""
    evolving.columns = {**evolving.columns, "_offset": "Int64"}
    evolving.write().catch_up()
    evolving.client().command(f"ALTER TABLE {evolving.name}.events ADD COLUMN size Int64 DEFAULT 7")
    evolving.send(events(10, MANY, _offset=-7, mixed=1, size=2, _row_exists=1))
    evolving.send(events(500, MANY, mixed="text"))
    totals = evolving.catch_up()
    assert (totals["written"], totals["dead_letters"]) == (2 * MANY, 0)
    assert evolving.query("SELECT min(_offset) >= 0 FROM {db}.events") == [(1,)]
    found = refusals(evolving)
    assert set(found) == {"mixed", "size", "_row_exists"}
    assert found["mixed"].startswith("has values of several types (number, string); declare it")
    assert "reserved" in found["_row_exists"]
    assert [row for row in book(evolving) if row[0] == "added"] == []


@pytest.mark.long
def test_what_a_table_refused_is_tried_again_at_the_next_start(evolving: Pipeline) -> None:
    evolving.catch_up()
    evolving.client().command(f"ALTER TABLE {evolving.name}.events ADD COLUMN size DateTime")
    evolving.send(events(10, MANY, size=2))
    evolving.catch_up()
    assert set(refusals(evolving)) == {"size"}
    evolving.client().command(f"ALTER TABLE {evolving.name}.events MODIFY COLUMN size Nullable(Int64)")
    evolving.send(events(500, 10, size=3))
    evolving.catch_up()
    assert evolving.query("SELECT count() FROM {db}.events WHERE size = 3") == [(10,)]


@pytest.mark.long
def test_a_new_field_that_stopped_the_pipeline_is_taken_up_where_the_definition_says_so_now(evolving: Pipeline) -> None:
    evolving.more["schema_evolution"] = "fail"
    evolving.write().catch_up()
    evolving.send(events(10, MANY, colour="red"))
    with pytest.raises(GlassflowError, match="new field 'colour'"):
        evolving.catch_up()
    evolving.more["schema_evolution"] = "add_columns"
    evolving.write().catch_up()
    assert filled(evolving, "colour") == (MANY, 10 + MANY)


@pytest.mark.long
def test_what_the_first_events_have_is_left_out_also_when_they_come_late(pipeline: Pipeline) -> None:
    """The first look finds no event; the next one does not take its fields for new ones."""
    pipeline.more["schema_evolution"] = "add_columns"
    pipeline.create_topic()
    pipeline.write().catch_up()
    assert book(pipeline) == []
    pipeline.send(events(0, MANY, secret="x"))
    pipeline.catch_up()
    assert book(pipeline) == [("ignored", "", ""), ("ignored", "secret", "")]


@pytest.mark.long
def test_an_open_batch_with_a_refused_row_is_finished_before_a_column_comes(evolving: Pipeline) -> None:
    """The batch may be divided only while the table is as it was."""
    evolving.catch_up()
    evolving.client().command(f"ALTER TABLE {evolving.name}.events ADD CONSTRAINT c CHECK n != 15")
    evolving.send(events(10, 30))
    evolving.die_at("write_ledger_row")
    evolving.send(events(100, MANY, colour="red"))
    totals = evolving.catch_up()
    assert totals["dead_letters"] == 1
    assert filled(evolving, "colour") == (MANY, 39 + MANY)


@pytest.mark.long
def test_a_definition_that_leaves_no_place_for_an_added_field_runs_without_it(evolving: Pipeline) -> None:
    evolving.catch_up()
    evolving.send(events(10, MANY, colour="red"))
    evolving.catch_up()
    evolving.fields = [*evolving.fields, {"name": "paint", "type": "string", "required": False}]
    mapping = [("id", "id", "String"), ("n", "n", "Int32"), ("paint", "colour", "Nullable(String)")]
    evolving.sink["mapping"] = [
        {"name": name, "column_name": column, "column_type": kind} for name, column, kind in mapping
    ]
    evolving.send(events(500, 10, paint="blue"))
    evolving.write().catch_up()
    assert evolving.query("SELECT count() FROM {db}.events WHERE colour = 'blue'") == [(10,)]


@pytest.mark.long
def test_a_driver_that_is_fenced_off_takes_up_nothing(evolving: Pipeline) -> None:
    evolving.catch_up()
    evolving.send(events(10, MANY, colour="red"))
    config = load_pipeline(evolving.file)

    def look_late() -> schema_changes.Found:
        """Look, while a newer driver starts elsewhere."""
        begin_epoch(evolving.client(), evolving.name, config.pipeline_id, str(uuid4()), "/elsewhere", {})
        return look(config, frozenset(), str)

    with patch.object(schema_changes, "look", lambda *_, **__: look_late()), pytest.raises(Fenced):
        evolving.catch_up()
    assert set(columns(evolving)) == {"id", "n"}
    assert [row for row in book(evolving) if row[0] == "added"] == []


@pytest.mark.parametrize("kept", one_of([True, False]))
def test_in_avro_a_field_is_new_with_the_schema_that_declares_it(
    pipeline: Pipeline, registry: Registry, spark: SparkSession, kept: bool
) -> None:
    """One record is enough. A needed field that the newest schema has no more is told, and makes dead letters."""
    pipeline.more["schema_evolution"] = "add_columns"
    pipeline.source = {"format": "avro", "schema_registry": {"url": registry.url}}
    pipeline.fields = [{**field, "required": True} for field in pipeline.fields]
    pipeline.create_topic()
    pipeline.write()
    first = [("id", "string"), ("n", "int"), ("source", "string")]
    pipeline.send(avro(registry, first, {"id": f"k{number}", "n": number, "source": "web"}) for number in range(10))
    pipeline.catch_up()
    assert book(pipeline) == [("ignored", "", ""), ("ignored", "source", "")]
    tags = {"type": "array", "items": "string"}
    second = [
        ("id", "string"), *([("n", "int")] if kept else []), ("source", "string"), ("price", "double"), ("tags", tags)
    ]  # fmt: skip
    event = {"id": "last", "n": 1, "source": "web", "price": 2.5, "tags": ["a"]}
    pipeline.send([avro(registry, second, event)])
    totals = pipeline.catch_up()
    assert columns(pipeline)["price"] == "Nullable(Float64)"
    if kept:
        assert pipeline.query("SELECT id, price, tags FROM {db}.events WHERE price > 0") == [("last", 2.5, '["a"]')]
        require_exact(pipeline, spark)
    else:
        assert totals["dead_letters"] == 1
        # Events of the older schema still have it.
        assert refusals(pipeline) == {}


def protobuf(registry: Registry, fields: str, content: bytes) -> bytes:
    """Return an event in Confluent's wire format, its schema registered; it is the schema's second message."""
    text = f'syntax = "proto3"; message Other {{}} message Event {{ string id = 1; {fields} }}'
    return b"\0" + registry.register("events-value", text, kind="PROTOBUF").to_bytes(4, "big") + b"\2\2" + content


@pytest.mark.long
@pytest.mark.parametrize(("kept", "names"), one_of([(True, True), (False, False), (False, True)]))
def test_in_protobuf_a_field_is_new_with_the_schema_that_declares_it(
    pipeline: Pipeline, registry: Registry, spark: SparkSession, kept: bool, names: bool
) -> None:
    """One record is enough, also where the definition names the message. A field that is gone is told."""
    pipeline.more["schema_evolution"] = "add_columns"
    pipeline.source = {"format": "protobuf", "schema_registry": {"url": registry.url}}
    if names:
        pipeline.source["schema"] = {"message_type": "Event"}
    pipeline.fields = [{**field, "required": True} for field in pipeline.fields]
    pipeline.create_topic()
    pipeline.write()
    first = "int32 n = 2; string source = 3;"
    pipeline.send(
        protobuf(registry, first, f"\n\2k{number}\x10{chr(number)}\x1a\3web".encode()) for number in range(10)
    )
    assert pipeline.catch_up()["written"] == 10
    assert book(pipeline) == [("ignored", "", ""), ("ignored", "source", "")]
    second = f"""
    {"int32 n = 2;" if kept else ""} string source = 3; double price = 4; repeated string tags = 5;
    message Address {{ string city = 1; }} Address to = 6; map<string, int64> counts = 7; optional bool paid = 8;
    """
    event = b"\n\4last\x10\1\x21\0\0\0\0\0\0\4\x40\x2a\1a\x32\5\n\3Ulm"
    pipeline.send([protobuf(registry, second, event)])
    totals = pipeline.catch_up()
    assert {name: kind for name, kind in columns(pipeline).items() if name not in ("id", "n")} == {
        "price": "Nullable(Float64)", "tags": "Nullable(String)", "to_city": "Nullable(String)",
        "counts": "Nullable(String)", "paid": "Nullable(Bool)",
    }  # fmt: skip
    if kept:
        assert pipeline.query("SELECT id, price, tags, to_city, counts, paid FROM {db}.events WHERE price > 0") == [
            ("last", 2.5, '["a"]', "Ulm", "{}", None)
        ]
        require_exact(pipeline, spark)
    else:
        assert totals["dead_letters"] == 1
        # Events of the older schema still have it.
        assert refusals(pipeline) == {}


@pytest.mark.parametrize("pool", one_of([None, "shared"]))
@pytest.mark.long
def test_in_protobuf_a_field_is_taken_up_while_the_pipeline_runs(
    pipeline: Pipeline, registry: Registry, pool: str | None
) -> None:
    """Also in a pool, whose JVM reads the messages."""
    pipeline.more |= {"schema_evolution": "add_columns", **({"pool": pool} if pool else {})}
    pipeline.source = {"format": "protobuf", "schema_registry": {"url": registry.url}}
    pipeline.create_topic()
    pipeline.write()
    pipeline.send([protobuf(registry, "int32 n = 2;", b"\n\1a\x10\1")])
    start(pipeline)
    try:
        wait_until(lambda: pipeline.ledger()["read"] == 1, "the first event is read")
        wait_until(lambda: book(pipeline) == [("ignored", "", "")], "the topic was looked at")
        pipeline.send([protobuf(registry, "int32 n = 2; double price = 3;", b"\n\1b\x10\1\x19" + bytes(6) + b"\4\x40")])
        wait_until(lambda: ("added", "price", "Nullable(Float64)") in book(pipeline), "the field is taken up")
        pipeline.send([protobuf(registry, "int32 n = 2; double price = 3;", b"\n\1c\x10\1\x19" + bytes(6) + b"\4\x40")])
        filling = "SELECT count() FROM {db}.events WHERE id = 'c' AND price = 2.5"
        wait_until(lambda: pipeline.query(filling) == [(1,)], "the field is filled")
    finally:
        stop(pipeline)
        if pool:
            assert invoke("pool", "stop", pool, "--state", str(pipeline.state)).code == 0


@pytest.mark.long
def test_in_protobuf_a_needed_field_that_all_new_events_lack_is_told(pipeline: Pipeline, registry: Registry) -> None:
    pipeline.more["schema_evolution"] = "add_columns"
    pipeline.source = {"format": "protobuf", "schema_registry": {"url": registry.url}}
    pipeline.fields = [{**field, "required": True} for field in pipeline.fields]
    pipeline.create_topic()
    pipeline.write()
    pipeline.send([protobuf(registry, "int32 n = 2;", b"\n\1a\x10\1")])
    pipeline.catch_up()
    pipeline.send([protobuf(registry, "int64 m = 3;", b"\n\1b\x18\1")] * (2 * NEWEST_RECORDS))
    pipeline.catch_up()
    assert refusals(pipeline) == {"n": "is gone from the newest schema"}


@pytest.mark.long
def test_the_commands_tell_what_was_taken_up(evolving: Pipeline, tmp_path: Path) -> None:
    evolving.catch_up()
    evolving.client().command(f"ALTER TABLE {evolving.name}.events ADD COLUMN size DateTime")
    evolving.send(events(10, MANY, colour="red", size=2.5))
    evolving.catch_up()
    diff = invoke("table", str(evolving.file), "--diff")
    assert diff.code == 0
    assert "note: schema_evolution: colour (string) was taken up and fills column colour (Nullable(String))" in diff.out
    assert "note: schema_evolution: size was not taken up" in diff.out
    assert invoke("convert", str(evolving.file)).out.count("colour") == 0
    effective = tmp_path / evolving.file.name
    effective.write_text(invoke("convert", str(evolving.file), "--effective").out)
    as_file = load_pipeline(effective)
    assert as_file.sink.mapping[-1].column_name == "colour"
    # The file may take the place of the book.
    evolving.file.write_text(effective.read_text())
    evolving.send(events(500, 10, colour="blue"))
    evolving.catch_up()
    assert filled(evolving, "colour") == (MANY + 10, 20 + MANY)


@pytest.mark.long
def test_dagster_warns_of_what_cannot_be_taken_up_until_the_definition_is_edited(evolving: Pipeline) -> None:
    evolving.catch_up()
    evolving.client().command(f"ALTER TABLE {evolving.name}.events ADD COLUMN size DateTime")
    evolving.send(events(10, MANY, colour="red", size=2.5))
    evolving.catch_up()
    result = check(evolving)
    assert (result.passed, result.severity) == (False, dg.AssetCheckSeverity.WARN)
    assert result.description is not None
    assert "size: " in result.description
    evolving.fields = [*evolving.fields, {"name": "size", "type": "float", "required": False}]
    result = check(evolving.write())
    assert (result.passed, result.metadata["added"].value) == (True, "colour")


def check(pipeline: Pipeline) -> dg.AssetCheckEvaluation:
    """Run the check of the schema in Dagster, for a pipeline that does not run."""
    loaded = build_folder_definitions(pipeline.file.parent, Orchestration(runner=LocalRunner(pipeline.state)))
    key = next(key for key in loaded.resolve_asset_graph().asset_check_keys if key.name == SCHEMA_CHANGES_TAKEN)
    job = loaded.resolve_implicit_global_asset_job_def()
    with dg.DagsterInstance.ephemeral() as instance:
        selected = job.get_subset(asset_check_selection={key})
        [result] = selected.execute_in_process(instance=instance, raise_on_error=False).get_asset_check_evaluations()
    return result


@pytest.mark.long
def test_the_tutorial_does_what_it_says(pipeline: Pipeline, tmp_path: Path) -> None:
    topic, state = f"{pipeline.name}.till", pipeline.state
    text, blocks = tutorial(
        "new-field", pipeline, {'"till_orders"': f'"{topic}"', "topic: till_orders": f"topic: {topic}"}
    )
    script = tmp_path / "send.py"
    script.write_text(blocks["python"])

    def send(*arguments: str) -> None:
        subprocess.run([sys.executable, script, *arguments], check=True)

    assert re.findall(r"^python send.py (.*)$", text, re.MULTILINE) == ["0 200", "200 400 SPRING", "400 500 SUMMER"]
    send("0", "200")
    database, pipeline.name = pipeline.name, "till_orders"
    pipeline.file.parent.mkdir()
    pipeline.file.write_text(blocks["yaml"])
    assert invoke("start", str(pipeline.file), "--state", str(state)).code == 0
    try:
        written = f"SELECT count() FROM {database}.till_orders"
        wait_until(lambda: pipeline.query(written) == [(200,)], "the first ones are written")
        send("200", "400", "SPRING")
        noted = f"SELECT count() FROM {database}.glassflow_schema_changes WHERE change = 'added'"
        wait_until(lambda: pipeline.query(noted) == [(1,)], "the field is taken up")
        send("400", "500", "SUMMER")
        wait_until(lambda: pipeline.query(written) == [(500,)], "all are written")
    finally:
        assert invoke("stop", "till_orders", "--state", str(state)).code == 0
    found = pipeline.query(blocks["sql"].replace("FROM till", f"FROM {database}.till"))
    assert found == [tuple(map(int, re.findall(r"^(\d+)  (\d+)  (\d+)$", text, re.MULTILINE)[0]))]
    told = invoke("table", str(pipeline.file), "--diff").out
    [note] = re.findall(r"^pipelines/till_orders.yaml: (note: .*)$", text, re.MULTILINE)
    assert note in told
