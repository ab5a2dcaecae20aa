"""Avro and Protobuf with a schema registry, written by Confluent's own serializers, up to the table."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from glassflow_dagster.checks.exact.compare_keys import reconcile_keys
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.errors import GlassflowError
from tests.e2e.support import Pipeline, invoke, tutorial
from tests.servers.registry import Registry, serving
from tests.support.variants import one_of

FIRST = {"type": "record", "name": "Event", "fields": [
    {"name": "id", "type": "string"},
    {"name": "n", "type": ["null", "int"]},
]}  # fmt: skip
# A field more, in another place.
SECOND = {**FIRST, "fields": [{"name": "more", "type": {"type": "array", "items": "string"}}, *FIRST["fields"]]}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as running:
        yield running


@pytest.fixture
def avro(pipeline: Pipeline, registry: Registry) -> Pipeline:
    pipeline.source = {"format": "avro", "schema_registry": {"url": registry.url}}
    pipeline.columns = {"id": "String", "n": "Nullable(Int32)"}
    pipeline.write().create_topic()
    return pipeline


def serialized(registry: Registry, topic: str, schema: dict[str, Any], events: list[dict[str, Any]]) -> list[bytes]:
    client = SchemaRegistryClient({"url": registry.url})
    serializer = AvroSerializer(client, json.dumps(schema))
    context = SerializationContext(topic, MessageField.VALUE)
    values = [serializer(event, context) for event in events]
    assert all(isinstance(value, bytes) for value in values)
    return values


def require_exact(pipeline: Pipeline, spark: SparkSession) -> None:
    """Fail unless each record has the row that it should have."""
    found = reconcile_keys(spark, load_pipeline(pipeline.file), print)
    assert found.passed, found


def rows(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    return pipeline.query("SELECT id, n FROM {db}.events ORDER BY id")


def test_each_event_of_two_schemas_is_a_row_once(avro: Pipeline, registry: Registry, spark: SparkSession) -> None:
    old = serialized(registry, avro.name, FIRST, [{"id": f"a{index}", "n": index} for index in range(20)])
    new = serialized(
        registry, avro.name, SECOND, [{"id": f"b{index}", "n": None, "more": ["x"]} for index in range(20)]
    )
    avro.send([value for pair in zip(old, new, strict=True) for value in pair])
    avro.send(old[:5])
    registry.requests.clear()

    first = avro.catch_up()

    assert (first["written"], first["duplicates"], first["dead_letters"]) == (40, 5, 0)
    # Each schema once, however many tasks and records there are.
    assert sorted(registry.requests) == ["/schemas/ids/1", "/schemas/ids/2"]
    assert rows(avro)[0] == ("a0", 0)
    assert rows(avro)[-1] == ("b9", None)

    # What was fetched is with the checkpoint: the registry may be away.
    registry.failures = [(503, "")] * 1000
    avro.send(old)
    second = avro.catch_up()
    assert (second["read"], second["written"], second["duplicates"]) == (20, 0, 20)
    registry.failures.clear()
    require_exact(avro, spark)


def test_a_registry_that_is_away_is_waited_for(avro: Pipeline, registry: Registry) -> None:
    avro.send(serialized(registry, avro.name, FIRST, [{"id": "a", "n": 1}]))
    registry.failures = [(503, "away")] * 4
    totals = avro.catch_up()
    assert (totals["written"], totals["dead_letters"]) == (1, 0)


@pytest.mark.long
def test_unknown_ids_and_broken_values_are_dead_letters_that_can_be_replayed(
    avro: Pipeline, registry: Registry, spark: SparkSession
) -> None:
    (good,) = serialized(registry, avro.name, FIRST, [{"id": "a", "n": 1}])
    unknown = b"\0\0\0\0\x09" + good[5:]
    avro.send([good, unknown, good[:-1], b"", None, b'{"id": "x"}', b"\0\0"], lambda _: 0)

    totals = avro.catch_up()

    assert (totals["written"], totals["dead_letters"]) == (1, 6)
    reasons = [reason for (reason,) in avro.query("SELECT reason FROM {db}.glassflow_dead_letters ORDER BY offset")]
    assert reasons[0] == "the schema registry has no schema with the id 9"
    assert reasons[1].startswith("invalid Avro: ")
    assert reasons[2:4] == ["the value is empty; a schema id begins it", "the record has no value"]
    assert reasons[4].startswith("no schema id: ")
    assert reasons[5] == "the value is too short to hold a schema id"

    while len(registry.schemas) < 9:
        registry.register("events-value", {**FIRST, "doc": f"version {len(registry.schemas)}"})
    listing = ("dead-letters", "list", avro.name, "--pipelines", str(avro.file.parent))
    listed = invoke(*listing)
    [line] = [line for line in listed.out.splitlines() if line.startswith(f"{avro.name}/0/1 ")]
    assert line.endswith('{"id": "a", "n": 1}')
    values = json.loads(invoke(*listing, "--json", "--where", "offset IN (1, 2)").out)
    assert [value.get("decoded") for value in values] == [None, {"id": "a", "n": 1}]
    registry.failures = [(503, "away")]
    away = invoke(*listing)
    assert "warning: values are shown encoded: the schema registry does not answer (http" in away.err
    assert len(away.out.splitlines()) == len(listed.out.splitlines())
    # The registry knows it by now, and the record is a dead letter all the same.
    require_exact(avro, spark)
    replayed = invoke(
        "dead-letters", "replay", avro.name, "--pipelines", str(avro.file.parent), "--where", "offset = 1"
    )
    assert replayed.code == 0, replayed.err
    # Its key has a row already.
    assert avro.catch_up()["duplicates"] == 1
    require_exact(avro, spark)


@pytest.mark.long
def test_a_registry_that_refuses_ends_the_pipeline_with_the_reason(avro: Pipeline, registry: Registry) -> None:
    avro.send(serialized(registry, avro.name, FIRST, [{"id": "a", "n": 1}]))
    registry.authorization = "Bearer other"
    with pytest.raises(GlassflowError, match=r"schema registry http://127.0.0.1:\d+/schemas/ids/1: answers 401"):
        avro.catch_up()
    registry.authorization = None
    assert avro.catch_up()["written"] == 1


ORDER = """
syntax = "proto3";
package shop;
import "unit.proto";
message Other { string id = 1; }
message Order { string id = 1; optional int32 n = 2; Unit unit = 3; }
"""
UNIT = """
syntax = "proto3";
package shop;
message Unit { string name = 1; }
"""


@pytest.mark.long
def test_a_message_of_protobuf_with_an_import_is_a_row(avro: Pipeline, registry: Registry) -> None:
    avro.source["format"] = "protobuf"
    avro.fields.append({"name": "unit.name", "type": "string"})
    avro.columns["unit.name"] = "Nullable(String)"
    avro.write()
    registry.register("unit", UNIT, kind="PROTOBUF")
    number = registry.register("order", ORDER, [{"name": "unit.proto", "subject": "unit", "version": 1}], "PROTOBUF")
    # The schema's id, and the indexes of the message: one, the second.
    start = b"\0" + number.to_bytes(4, "big") + b"\2\2"
    avro.send([start + b"\x0a\1a\x10\5\x1a\4\x0a\2kg", start + b"\x0a\1b", start + b"\x0a\1a"])
    totals = avro.catch_up()
    assert (totals["written"], totals["duplicates"], totals["dead_letters"]) == (2, 1, 0)
    assert avro.query("SELECT * FROM {db}.events ORDER BY id") == [("a", 5, "kg"), ("b", None, None)]


@pytest.mark.long
@pytest.mark.parametrize("has_registry", one_of([True, False]))
def test_dead_letters_of_protobuf_are_shown_decoded(pipeline: Pipeline, registry: Registry, has_registry: bool) -> None:
    """By the registry's schema, or by the definition's own; what has none stays as it is."""
    text = 'syntax = "proto3"; message Other {} message Event { string id = 1; double n = 2; optional string t = 3; }'
    number = registry.register("events-value", text, kind="PROTOBUF")
    registry.register("events-value", FIRST)
    pipeline.source = {"format": "protobuf", "schema_registry": {"url": registry.url}}
    if not has_registry:
        pipeline.source = {"format": "protobuf", "schema": {"file": text}}
    pipeline.fields = [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}]
    pipeline.columns = {"id": "String", "n": "Int32"}
    pipeline.write().create_topic()
    start = b"\0" + number.to_bytes(4, "big") + b"\2\2"
    half, infinite = b"\x0a\1a\x11\0\0\0\0\0\0\xe0\x3f", b"\x0a\1b\x11\0\0\0\0\0\0\xf0\x7f"
    of_other_format = b"\0\0\0\0\2\2\2" + half
    pipeline.send([start + half, start + infinite, of_other_format, start + b"\x0a\7", None], lambda _: 0)
    assert pipeline.catch_up()["dead_letters"] == 5
    listing = ("dead-letters", "list", pipeline.name, "--pipelines", str(pipeline.file.parent))
    values = json.loads(invoke(*listing, "--json").out)
    first, second = {"id": "a", "n": 0.5}, {"id": "b", "n": "Infinity"}
    of_other = None if has_registry else first
    assert [value.get("decoded") for value in reversed(values)] == [first, second, of_other, None, None]
    lines = invoke(*listing).out.splitlines()
    assert [line for line in lines if line.endswith('{"id": "a", "n": 0.5}')]
    if has_registry:
        registry.failures = [(503, "away")]
        away = invoke(*listing)
        assert "warning: values are shown encoded: the schema registry does not answer (http" in away.err
        assert len(away.out.splitlines()) == len(lines)


def test_a_schema_that_is_none_is_an_error_before_the_first_batch(pipeline: Pipeline) -> None:
    pipeline.source = {"format": "protobuf", "schema": {"file": "message {"}}
    pipeline.write().create_topic()
    pipeline.send([b"\0"])
    with pytest.raises(GlassflowError, match=r"^sources\[0\].schema: is no .proto file: .*; correct it$"):
        pipeline.catch_up()


def test_the_tutorial_does_what_it_says(pipeline: Pipeline, registry: Registry, tmp_path: Path) -> None:
    database = pipeline.name
    text, blocks = tutorial("schemas", pipeline, {
        "http://127.0.0.1:8081": registry.url,
        'TOPIC = "parcels"': f'TOPIC = "{pipeline.name}"',
        "topic: parcels": f"topic: {pipeline.name}",
    })  # fmt: skip
    pipeline.create_topic(1)
    (tmp_path / "produce.py").write_text(blocks["python"])
    subprocess.run([sys.executable, tmp_path / "produce.py"], check=True)
    pipeline.name = "parcels"
    pipeline.file.parent.mkdir()
    pipeline.file.write_text(blocks["yaml"])

    totals = pipeline.catch_up()

    figures = re.search(r"read (\d+), written (\d+), duplicates (\d+)", text)
    assert figures is not None
    assert [str(totals[name]) for name in ("read", "written", "duplicates")] == list(figures.groups())
    found = pipeline.query(blocks["sql"].replace("FROM parcels", f"FROM {database}.parcels"))
    assert [(row[0], str(row[1]), row[3]) for row in found] == [("p-100", "0.125", "south"), ("p-099", "12.375", None)]
    assert [f"{row[2]:%H:%M:%S.%f}"[:-3] for row in found] == ["12:01:40.000", "12:00:00.099"]
