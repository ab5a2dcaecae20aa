"""Records of Confluent's own serializers, with their schemas in a real registry (`make test-registry`).

The other tests of schemas have a registry of their own, which can fail in any way; this one shows that it answers as a
real one does.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format
from pyspark.sql import SparkSession

from glassflow_dagster.checks.exact.compare_keys import reconcile_keys
from glassflow_dagster.definition.load import load_pipeline
from tests.e2e.support import Pipeline, invoke
from tests.servers.apicurio import running_apicurio
from tests.stream.stages.test_protobuf import compiled

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif("GLASSFLOW_TEST_REGISTRY" not in os.environ, reason="downloads 150 MB: make test-registry"),
]

AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": ["null", "int"], "default": None}],
}
JSON = {
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "string"}, "n": {"type": ["integer", "null"]}},
    "required": ["id"],
}
PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { string name = 1; }
message Order { string id = 1; optional int32 n = 2; Unit unit = 3; map<string, int64> counts = 4; }
message Unit { string name = 1; google.protobuf.Timestamp since = 2; }
"""
EVENTS: list[dict[str, Any]] = [{"id": f"o{index}", "n": index if index % 2 else None} for index in range(20)]

Serialize = Callable[[dict[str, Any]], bytes]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_apicurio(tmp_path_factory.mktemp("apicurio")) as url:
        yield url


def serializer(name: str, registry: str, topic: str, folder: Path) -> Serialize:
    """Return Confluent's serializer of a format, which registers the schema."""
    client = SchemaRegistryClient({"url": registry})
    context = SerializationContext(topic, MessageField.VALUE)
    if name == "protobuf":
        order = compiled(PROTO, folder)("shop.Order")
        serialize = ProtobufSerializer(order, client)
        return lambda event: serialize(
            json_format.ParseDict({key: value for key, value in event.items() if value is not None}, order()), context
        )
    serialize = AvroSerializer(client, json.dumps(AVRO)) if name == "avro" else JSONSerializer(json.dumps(JSON), client)
    return lambda event: serialize(event, context)


def with_registry(pipeline: Pipeline, registry: str, name: str) -> Pipeline:
    pipeline.source = {"format": name, "schema_registry": {"url": registry}}
    pipeline.fields = [{"name": "id", "type": "string"}, {"name": "n", "type": "int", "required": False}]
    pipeline.columns = {"id": "String", "n": "Nullable(Int32)"}
    pipeline.write().create_topic()
    return pipeline


@pytest.mark.parametrize("name", ["avro", "protobuf", "json_schema"])
def test_each_record_is_a_row_once(
    pipeline: Pipeline, registry: str, name: str, spark: SparkSession, tmp_path: Path
) -> None:
    with_registry(pipeline, registry, name)
    serialize = serializer(name, registry, pipeline.name, tmp_path)
    values = [serialize(event) for event in EVENTS]
    pipeline.send([*values, *values[:5], values[0][:5], b"\0\0\0\xff\xff" + values[0][5:], b"{}"])

    totals = pipeline.catch_up()

    # JSON records are read without their schema, so that no id is unknown.
    unknown = 0 if name == "json_schema" else 1
    assert (totals["written"], totals["dead_letters"]) == (20, 2 + unknown)
    assert totals["duplicates"] == 6 - unknown
    assert pipeline.query("SELECT id, n FROM {db}.events ORDER BY id") == sorted(
        (event["id"], event["n"]) for event in EVENTS
    )
    found = reconcile_keys(spark, load_pipeline(pipeline.file), print)
    assert found.passed, found


@pytest.mark.parametrize("name", ["avro", "protobuf"])
def test_infer_and_the_list_of_dead_letters_read_the_schemas(
    pipeline: Pipeline, registry: str, name: str, tmp_path: Path
) -> None:
    with_registry(pipeline, registry, name)
    serialize = serializer(name, registry, pipeline.name, tmp_path)
    pipeline.send([serialize(event) for event in EVENTS])
    clickhouse = f"http://127.0.0.1:{pipeline.clickhouse_port}/{pipeline.name}"
    servers = ("--brokers", pipeline.brokers, "--clickhouse-url", clickhouse, "--schema-registry", registry)
    proposed = invoke("infer", pipeline.name, *servers)
    assert proposed.code == 0, proposed.err
    assert f"format: {name}" in proposed.out
    assert "{name: n, type: int, required: false}" in proposed.out

    # A column that is too narrow makes a dead letter.
    pipeline.columns = {"id": "String", "n": "Nullable(Int8)"}
    pipeline.write().send([serialize({"id": "large", "n": 1000})])
    assert pipeline.catch_up()["dead_letters"] == 1
    listed = invoke("dead-letters", "list", pipeline.name, "--pipelines", str(pipeline.file.parent), "--json")
    [letter] = json.loads(listed.out)
    assert (letter["decoded"]["id"], letter["decoded"]["n"]) == ("large", 1000)


def test_a_new_field_becomes_a_column(pipeline: Pipeline, registry: str, tmp_path: Path) -> None:
    """The registry has the newer schema under the same subject, and takes it as compatible."""
    with_registry(pipeline, registry, "avro")
    pipeline.more["schema_evolution"] = "add_columns"
    serialize = serializer("avro", registry, pipeline.name, tmp_path)
    pipeline.write().send([serialize(event) for event in EVENTS])
    pipeline.catch_up()
    newer = {**AVRO, "fields": [*AVRO["fields"], {"name": "city", "type": ["null", "string"], "default": None}]}
    client = SchemaRegistryClient({"url": registry})
    write = AvroSerializer(client, json.dumps(newer))
    context = SerializationContext(pipeline.name, MessageField.VALUE)
    pipeline.send([write({"id": f"n{index}", "n": 1, "city": "Bonn"}, context) for index in range(10)])
    pipeline.catch_up()
    assert pipeline.query("SELECT city, count() FROM {db}.events GROUP BY ALL ORDER BY ALL") == [
        ("Bonn", 10),
        (None, 20),
    ]


def test_a_schema_may_refer_to_another(pipeline: Pipeline, registry: str) -> None:
    with_registry(pipeline, registry, "protobuf")
    pipeline.fields = [*pipeline.fields, {"name": "unit.name", "type": "string"}]
    pipeline.columns = {**pipeline.columns, "unit.name": "Nullable(String)"}
    pipeline.write()
    client = SchemaRegistryClient({"url": registry})
    unit = 'syntax = "proto3"; package refer; message Unit { string name = 1; }'
    client.register_schema("unit", Schema(unit, "PROTOBUF"))
    order = """
    syntax = "proto3"; package refer; import "unit.proto";
    message Order { string id = 1; optional int32 n = 2; Unit unit = 3; }
    """
    reference = SchemaReference("unit.proto", "unit", 1)
    number = client.register_schema("order", Schema(order, "PROTOBUF", [reference]))
    pipeline.send([b"\0" + number.to_bytes(4, "big") + b"\0" + b"\x0a\1a\x10\5\x1a\4\x0a\2kg"])
    assert pipeline.catch_up()["written"] == 1
    assert pipeline.query("SELECT * FROM {db}.events") == [("a", 5, "kg")]
