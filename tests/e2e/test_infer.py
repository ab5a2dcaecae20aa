"""From a topic to rows: the definition that `infer` prints runs unchanged and behaves as its comments say."""

import base64
import json
import random
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import json_format

from tests.e2e.support import Pipeline, cli
from tests.e2e.test_schemas import serialized
from tests.servers.registry import Registry, serving
from tests.stream.stages.test_protobuf import compiled
from tests.support.variants import one_of

HOME = {"type": "record", "name": "Home", "fields": [{"name": "zip", "type": "long"}]}
USER = {"type": "record", "name": "User", "fields": [
    {"name": "name", "type": ["null", "string"]},
    {"name": "home", "type": HOME},
]}  # fmt: skip
ORDER = {"type": "record", "name": "Order", "fields": [
    {"name": "order_id", "type": "string"},
    {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "user", "type": USER},
]}  # fmt: skip


def order(number: int, generator: random.Random) -> dict[str, Any]:
    """Return an event with fields of many types."""
    event: dict[str, Any] = {
        "orderId": f"o{number}",
        "customer_id": generator.randrange(20),
        "total": generator.choice([3, 4.5]),
        "state": generator.choice(["new", "paid"]),
        "created_at": "2024-10-28T10:00:05.123Z",
        "day": "2024-10-28",
        "ts": 1_700_000_000 + number,
        "trace": f"6f9619ff-8b86-d011-b42d-{number:012x}",
        "big": 2**63 + number,
        "paid": number % 2 == 0,
        "tags": ["a", "b"],
        "user": {"name": None if number % 7 == 0 else "n", "home": {"zip": number}},
        "counts": {f"k{generator.randrange(5000)}": 1 for _ in range(3)},
        "dotted": {"x.y": 1},
        "odd: #'\"": number,
        "select": 1,
        "mixed": "x" if number % 50 == 0 else number,
    }
    if number % 9 == 0:
        del event["state"]
    return event


def infer(pipeline: Pipeline, *options: str) -> str:
    """Write the definition that is proposed for the pipeline's topic, and is valid; return its text in one line."""
    url = f"http://127.0.0.1:{pipeline.clickhouse_port}/{pipeline.name}"
    servers = ("--brokers", pipeline.brokers, "--clickhouse-url", url)
    inferred = cli("infer", pipeline.name, *servers, *options)
    assert inferred.code == 0, inferred.err
    pipeline.file.parent.mkdir()
    pipeline.file.write_text(inferred.out)
    assert cli("validate", str(pipeline.file)).code == 0
    return " ".join(inferred.out.replace("#", "").split())


def test_of_an_avro_topic_the_schema_has_the_types(pipeline: Pipeline) -> None:
    moment = datetime(2024, 10, 28, 10, 0, 5, 123_000, UTC)
    with serving(Registry()) as registry:
        events: list[dict[str, Any]] = [
            {
                "order_id": f"o{number}", "total": Decimal(number) / 100, "at": moment, "state": "PAID", "tags": ["a"],
                "user": {"name": None, "home": {"zip": number}},
            }
            for number in range(100)
        ]  # fmt: skip
        pipeline.create_topic(2)
        pipeline.send([*serialized(registry, pipeline.name, ORDER, [*events, *events[:20]]), b"\0\0\0\0\1x"])
        said = infer(pipeline, "--schema-registry", registry.url)
        assert "120 of them are Avro records, whose schema has the types." in said
        assert "The rest become dead letters: 1 not in its schema's Avro." in said
        totals = pipeline.catch_up()
    assert (totals["written"], totals["duplicates"], totals["dead_letters"]) == (100, 20, 1)
    columns = pipeline.query(
        f"SELECT name, type FROM system.columns WHERE database = '{{db}}' AND table = '{pipeline.name}'"
    )
    assert dict(columns) == {
        "order_id": "String", "total": "Decimal(9, 2)", "at": "DateTime64(3)", "state": "LowCardinality(String)",
        "tags": "Array(String)", "user_name": "Nullable(String)", "user_home_zip": "Int64",
        "ingested_at": "DateTime64(3)",
    }  # fmt: skip
    [row] = pipeline.query(f"SELECT total, at, tags, user_home_zip FROM {{db}}.{pipeline.name} WHERE order_id = 'o42'")
    assert row == (Decimal("0.42"), moment.replace(tzinfo=None), ["a"], 42)


SHOP = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Other { string name = 1; }
message Order {
  string order_id = 1; google.protobuf.Timestamp at = 2; State state = 3; repeated string tags = 4; User user = 5;
  map<string, int64> counts = 6; optional uint64 big = 7; oneof pay { int64 cents = 8; Card card = 9; }
  message User { string name = 1; Home home = 2; } message Home { uint32 zip = 1; } message Card { string no = 1; }
  enum State { NEW = 0; PAID = 1; }
}
"""


@pytest.mark.parametrize("in_header", one_of([False, True]))
def test_of_a_protobuf_topic_the_schema_has_the_types(pipeline: Pipeline, tmp_path: Path, in_header: bool) -> None:
    """The messages are those of Confluent's own serializer."""
    order_class = compiled(SHOP, tmp_path)("shop.Order")
    with serving(Registry()) as registry:
        registry.texts[base64.b64encode(order_class.DESCRIPTOR.file.serialized_pb).decode()] = SHOP
        orders = [
            {
                "order_id": f"o{index}", "at": "2024-10-28T10:00:05.123456789Z", "state": "PAID", "tags": ["a"],
                "user": {"name": "n", "home": {"zip": index}}, "counts": {"a": "1"},
                **({"big": str(2**64 - 1), "card": {"no": "c"}} if index % 2 else {"cents": "5"}),
            }
            for index in range(100)
        ]  # fmt: skip
        headers: list[tuple[str, bytes]] = []
        settings = {"schema.id.serializer": header_schema_id_serializer} if in_header else {}
        serializer = ProtobufSerializer(order_class, SchemaRegistryClient({"url": registry.url}), settings)
        context = SerializationContext(pipeline.name, MessageField.VALUE, headers)
        values = [serializer(json_format.ParseDict(order, order_class()), context) for order in orders]
        assert [name for name, _ in headers[-1:]] == (["__value_schema_id"] if in_header else [])
        broken = b"\x0a" if in_header else values[0][:7] + b"\x0a"
        pipeline.create_topic(2)
        pipeline.send([*values, *values[:20], broken], headers=headers[-1:])
        said = infer(pipeline, "--schema-registry", registry.url)
        assert "120 of them are Protobuf messages, whose schema has the types." in said
        assert "The rest become dead letters: 1 not decoded (invalid Protobuf" in said
        totals = pipeline.catch_up()
    assert (totals["written"], totals["duplicates"], totals["dead_letters"]) == (100, 20, 1)
    columns = pipeline.query(
        f"SELECT name, type FROM system.columns WHERE database = '{{db}}' AND table = '{pipeline.name}'"
    )
    assert dict(columns) == {
        "order_id": "String", "at": "Nullable(DateTime64(9))", "state": "LowCardinality(String)",
        "tags": "Array(String)", "user_name": "LowCardinality(Nullable(String))", "user_home_zip": "Nullable(UInt32)",
        "counts": "Map(String, Int64)", "big": "Nullable(UInt64)", "cents": "Nullable(Int64)",
        "card_no": "LowCardinality(Nullable(String))", "ingested_at": "DateTime64(3)",
    }  # fmt: skip
    names = "toString(at), state, tags, user_home_zip, counts, big, cents, card_no"
    found = pipeline.query(
        f"SELECT {names} FROM {{db}}.{pipeline.name} WHERE order_id IN ('o42', 'o43') ORDER BY order_id"
    )
    assert found == [
        ("2024-10-28 10:00:05.123456789", "PAID", ["a"], 42, {"a": 1}, None, 5, None),
        ("2024-10-28 10:00:05.123456789", "PAID", ["a"], 43, {"a": 1}, 2**64 - 1, None, "c"),
    ]


@pytest.mark.parametrize("start", one_of([b"", b"\0\0\0\0\7"]))
@pytest.mark.parametrize("name", ["order.proto", "order.avsc"])
@pytest.mark.long
def test_a_schema_may_be_in_a_file(pipeline: Pipeline, tmp_path: Path, name: str, start: bytes) -> None:
    avro = {"type": "record", "name": "Order", "fields": [
        {"name": "order_id", "type": "string"}, {"name": "n", "type": ["null", "int"]},
    ]}  # fmt: skip
    proto = """
    syntax = "proto3";
    message Other { string name = 1; }
    message Order { string order_id = 1; optional int32 n = 2; }
    """
    is_protobuf = name.endswith(".proto")
    (tmp_path / name).write_text(proto if is_protobuf else json.dumps(avro))
    identifiers = [f"o{number:03}".encode() for number in range(100)]
    contents = [b"\x0a\4" + each + b"\x10\5" if is_protobuf else b"\x08" + each + b"\2\x0a" for each in identifiers]
    path = b"\2\2" if is_protobuf and start else b""
    pipeline.create_topic(2)
    pipeline.send([*(start + path + each for each in contents), b"\7"])
    options = ("--schema", str(tmp_path / name), *(["--with-schema-id"] if start else []))
    # An id is followed by the message's index.
    said = infer(pipeline, *options, *(["--message-type", "Order"] if is_protobuf and not start else []))
    assert "The rest become dead letters: 1 " in said
    totals = pipeline.catch_up()
    assert (totals["written"], totals["dead_letters"]) == (100, 1)
    found = pipeline.query(f"SELECT order_id, n FROM {{db}}.{pipeline.name} ORDER BY order_id LIMIT 1")
    assert found == [("o000", 5)]
    columns = pipeline.query(
        f"SELECT name, type FROM system.columns WHERE database = '{{db}}' AND table = '{pipeline.name}'"
    )
    assert dict(columns) == {"order_id": "String", "n": "Nullable(Int32)", "ingested_at": "DateTime64(3)"}


def test_a_schema_that_fits_no_message_is_told(pipeline: Pipeline, tmp_path: Path) -> None:
    file = tmp_path / "order.proto"
    file.write_text('syntax = "proto3"; message Order { string id = 1; }')
    pipeline.create_topic()
    pipeline.send([{"a": 1}] * 3)
    inferred = cli("infer", pipeline.name, "--brokers", pipeline.brokers, "--schema", str(file))
    assert inferred.code == 1
    assert f"none of the 3 messages read is a record of {file} (3 not decoded (invalid Protobuf" in inferred.err
    assert "correct the schema, its message or --with-schema-id" in inferred.err


def test_the_definition_that_is_printed_runs_and_keeps_its_word(pipeline: Pipeline) -> None:
    generator = random.Random(20)
    orders = [order(number, generator) for number in range(300)]
    others = [b"x", None, b"[1]"]
    pipeline.create_topic(2)
    pipeline.send([*orders, *orders[:40], *others])
    said = infer(pipeline)
    assert "300 values in 340 events; 40 repeats, all of them copies of an earlier event" in said
    assert "333 number, 7 string: 7 become dead letters" in said

    # One of the 6 orders with a text in `mixed` was sent twice: it is a dead letter each time, not a duplicate.
    totals = pipeline.catch_up()
    expected = {"read": 343, "written": 294, "duplicates": 39, "dead_letters": 7 + 3}
    assert {key: totals[key] for key in expected} == expected
    rows = pipeline.query(
        f"SELECT count(), uniqExact(orderId), countIf(state IS NULL), min(user_home_zip), max(big), min(ts), "
        f"any(created_at), uniqExact(trace) FROM {{db}}.{pipeline.name}"
    )
    [(count, keys, no_state, first_zip, biggest, first_time, created, traces)] = rows
    assert (count, keys, traces) == (294, 294, 294)
    # Every ninth order has no state; the first one is a dead letter.
    assert (no_state, first_zip, biggest) == (33, 1, 2**63 + 299)
    assert (str(first_time), str(created)) == ("2023-11-14 22:13:21", "2024-10-28 10:00:05.123000")
    same = cli("table", str(pipeline.file), "--diff")
    assert (same.code, same.out) == (0, "")
