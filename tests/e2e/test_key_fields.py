"""Fields of the record's key, up to the table: JSON, Avro and Protobuf, with a registry and without."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pyspark.sql import SparkSession

from glassflow_dagster.checks.exact.compare_keys import reconcile_keys
from glassflow_dagster.checks.verify import verify_pipeline
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.driver.recovery.rebuild import rebuild_checkpoint
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stream.inline_or_job import INLINE_RECORDS_SETTING
from tests.e2e.support import Pipeline, cli, invoke, start, stop, tutorial
from tests.servers.registry import Registry, serving
from tests.support.sending import Sender
from tests.support.variants import one_of
from tests.support.waiting import wait_until

KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
MESSAGE = 'syntax = "proto3"; message Other { string no = 1; } message Key { int64 id = 1; }'
HEADER = "__key_schema_id"


class Sent(NamedTuple):
    """A record for the pipeline's topic."""

    key: bytes | None
    value: bytes | None = b'{"name":"x"}'
    headers: tuple[tuple[str, bytes], ...] = ()


def json_key(number: Any, **more: Any) -> bytes:
    return json.dumps({"id": number, **more}).encode()


def send(pipeline: Pipeline, records: Iterable[Sent]) -> None:
    """Send records to partition 0, in their order."""
    sender = Sender(pipeline.brokers, {"enable.idempotence": True})
    for record in records:
        sender.send(pipeline.name, record.value, record.key, 0, headers=list(record.headers))
    sender.flush()


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as running:
        yield running


@pytest.fixture
def keyed(pipeline: Pipeline) -> Pipeline:
    """Return a pipeline of records whose keys are JSON objects, deduplicated by a field of the key."""
    pipeline.source = {"key_format": "json"}
    pipeline.fields = [{"name": "name", "type": "string"}, {"name": "_key.id", "type": "int64"}]
    pipeline.columns = {"_key.id": "Int64", "name": "String"}
    pipeline.keys = ["_key.id"]
    pipeline.write().create_topic()
    return pipeline


def rows(pipeline: Pipeline) -> list[tuple[Any, ...]]:
    return pipeline.query("SELECT `_key.id`, name FROM {db}.events ORDER BY ALL")


def dead_letters(pipeline: Pipeline) -> list[tuple[str, bytes | None, bytes | None]]:
    """Return the reason, key and value of each record that could not be decoded."""
    found = pipeline.query(
        "SELECT reason, hex(key), hex(value) FROM {db}.glassflow_dead_letters WHERE stage = 'decode' ORDER BY offset"
    )
    return [(reason, _bytes(key), _bytes(value)) for reason, key, value in found]


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def replay(pipeline: Pipeline, where: str) -> None:
    done = invoke("dead-letters", "replay", pipeline.name, "--pipelines", str(pipeline.file.parent), "--where", where)
    assert done.code == 0, done.err


def require_exact(pipeline: Pipeline, spark: SparkSession) -> None:
    """Fail unless each record has the row that it should have."""
    found = reconcile_keys(spark, load_pipeline(pipeline.file), print)
    assert found.passed, found


@pytest.mark.parametrize("as_job", one_of([False, True]))
def test_records_are_deduplicated_filtered_and_routed_by_a_field_of_the_key(
    keyed: Pipeline, spark: SparkSession, jobs: list[int], *, as_job: bool
) -> None:
    keyed.fields.append({"name": "_key.shop.code", "type": "string", "required": False})
    keyed.columns["_key.shop.code"] = "Nullable(String)"
    keyed.transforms = [{"type": "filter", "config": {"expression": '_key.id >= 0 and _key contains "id"'}}]
    keyed.source["tombstones"] = "drop"
    keyed.sink = {"routes": [{"table": "of_a", "filter": '(_key.shop.code ?? "") == "a"'}]}
    if as_job:
        keyed.more["spark"] = {INLINE_RECORDS_SETTING: "0"}
    keyed.write()
    send(keyed, [
        Sent(json_key(1)), Sent(json_key(2, shop={"code": "a"})), Sent(json_key(1), b'{"name":"again"}'),
        Sent(json_key(-1)), Sent(json_key(1), None), Sent(None), Sent(b"k-1"), Sent(b"\xff\0"), Sent(json_key("1")),
        Sent(b"{}"), Sent(json_key(3), b"no"), Sent(json_key(4), b'{"name":"_"}'),
    ])  # fmt: skip

    totals = keyed.catch_up()

    assert (totals["written"], totals["duplicates"], totals["filtered"], totals["dead_letters"]) == (3, 1, 2, 6)
    assert bool(jobs) == as_job
    assert rows(keyed) == [(1, "x"), (4, "_")]
    assert keyed.query("SELECT `_key.id`, `_key.shop.code` FROM {db}.of_a") == [(2, "a")]
    assert [(reason.partition(": field")[0].partition(" '")[0], key) for reason, key, _ in dead_letters(keyed)] == [
        ("field", None),
        ("key: invalid JSON:", b"k-1"),
        ("key: invalid JSON: not in UTF-8, at byte 1", b"\xff\0"),
        ("key", json_key("1")),
        ("key", b"{}"),
        ("invalid JSON:", json_key(3)),
    ]
    assert [value for *_, value in dead_letters(keyed)] == [b'{"name":"x"}'] * 5 + [b"no"]
    require_exact(keyed, spark)


@pytest.mark.long
def test_a_replayed_record_has_the_key_that_it_had(keyed: Pipeline) -> None:
    keyed.columns["_key.id"] = "Int8"
    keyed.write()
    send(keyed, [Sent(json_key(300), headers=(("h", b"1"),)), Sent(b"\xff\0"), Sent(None), Sent(json_key(1))])
    assert keyed.catch_up()["dead_letters"] == 3
    keyed.client().command(f"ALTER TABLE {keyed.name}.events MODIFY COLUMN `_key.id` Int16")
    keyed.columns["_key.id"] = "Int16"
    keyed.write()

    replay(keyed, "offset < 3")
    totals = keyed.catch_up()

    assert (totals["written"], totals["dead_letters"]) == (1, 2)
    assert rows(keyed) == [(1, "x"), (300, "x")]
    consumer = Consumer(
        {"bootstrap.servers": keyed.brokers, "group.id": "replayed", "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(load_pipeline(keyed.file).replay_topic, 0, 0)])
    replayed = {message.key() for message in consumer.consume(3, timeout=30)}
    consumer.close()
    assert replayed == {json_key(300), b"\xff\0", None}


@pytest.mark.long
def test_a_lost_state_is_rebuilt_from_fields_of_the_key(keyed: Pipeline) -> None:
    send(keyed, [Sent(json_key(number)) for number in (1, 2, 3, 2)] + [Sent(b"garbage")])
    keyed.catch_up()
    shutil.rmtree(keyed.state / keyed.name)
    send(keyed, [Sent(json_key(number)) for number in (3, 4)] + [Sent(None)])

    totals = keyed.catch_up(rebuild=rebuild_checkpoint)

    assert (totals["written"], totals["duplicates"], totals["dead_letters"]) == (1, 1, 1)
    assert [number for number, _ in rows(keyed)] == [1, 2, 3, 4]
    found = verify_pipeline(load_pipeline(keyed.file), print)
    assert found.passed, "\n".join(found.lines())


@pytest.mark.long
def test_avro_keys_are_read_with_the_schemas_of_a_registry(
    keyed: Pipeline, registry: Registry, spark: SparkSession
) -> None:
    """Values are Avro, too, as Debezium writes them; a key may have its schema's id in a header."""
    keyed.source = {"format": "avro", "key_format": "avro", "schema_registry": {"url": registry.url}}
    keyed.write()
    value_schema = {"type": "record", "name": "Value", "fields": [{"name": "name", "type": "string"}]}
    client = SchemaRegistryClient({"url": registry.url})

    def serialized(schema: dict[str, Any], record: dict[str, Any], field: str) -> bytes:
        found = AvroSerializer(client, json.dumps(schema))(record, SerializationContext(keyed.name, field))
        assert isinstance(found, bytes)
        return found

    value = serialized(value_schema, {"name": "x"}, MessageField.VALUE)
    keys = [serialized(KEY, {"id": number}, MessageField.KEY) for number in (1, 2, 3, 7)]
    assert sorted(registry.subjects) == [f"{keyed.name}-key", f"{keyed.name}-value"]
    unknown = b"\0\0\0\0\x09"
    send(keyed, [
        *(Sent(key, value) for key in keys[:2]), Sent(keys[0], value),
        Sent(keys[2][5:], value, ((HEADER, keys[2][:5]),)),
        Sent(unknown + keys[3][5:], value), Sent(value, value), Sent(keys[0][:-1], value), Sent(b"text", value),
        Sent(None, value), Sent(keys[0], None),
    ])  # fmt: skip

    totals = keyed.catch_up()

    assert (totals["written"], totals["duplicates"], totals["dead_letters"]) == (3, 1, 6)
    assert rows(keyed) == [(1, "x"), (2, "x"), (3, "x")]
    assert [reason for reason, *_ in dead_letters(keyed)] == [
        "key: the schema registry has no schema with the id 9",
        "key: field 'id' is missing",
        "key: invalid Avro: it ends after 5 bytes, too early",
        "key: no schema id: the key begins neither with the byte 0 and a number nor with 1 and a UUID",
        "field '_key.id' is missing: the record has no key",
        "the record has no value",
    ]
    while len(registry.schemas) < 9:
        registry.register("events-key", {**KEY, "doc": f"version {len(registry.schemas)}"})
    require_exact(keyed, spark)
    # By now the registry knows the schema of this key.
    replay(keyed, "offset = 4")
    assert keyed.catch_up()["written"] == 1
    assert rows(keyed)[-1] == (7, "x")
    require_exact(keyed, spark)


@pytest.mark.long
def test_protobuf_keys_name_their_message_and_json_values_have_an_id(keyed: Pipeline, registry: Registry) -> None:
    number = registry.register("key", MESSAGE, kind="PROTOBUF")
    keyed.source = {"key_format": "protobuf", "schema_registry": {"url": registry.url}}
    keyed.write()
    # The schema's id, and the indexes of the message: one, the second.
    start = b"\0" + number.to_bytes(4, "big") + b"\2\2"
    value = b'\0\0\0\0\x63{"name":"x"}'
    send(keyed, [
        Sent(start + b"\x08\1", value), Sent(b"\x08\2", value, ((HEADER, start),)), Sent(start + b"\x08\1", value),
        Sent(start + b"\x08", value),
    ])  # fmt: skip
    totals = keyed.catch_up()
    assert (totals["written"], totals["duplicates"], totals["dead_letters"]) == (2, 1, 1)
    assert rows(keyed) == [(1, "x"), (2, "x")]
    # The schema of the keys only: that of JSON is not asked for.
    assert [path for path in registry.requests if path.startswith("/schemas/ids/")] == [f"/schemas/ids/{number}"]


def test_a_schema_of_keys_that_is_none_is_an_error_before_the_first_batch(keyed: Pipeline) -> None:
    keyed.source = {"key_format": "protobuf", "key_schema": {"file": "message {", "wire_format": "none"}}
    keyed.write()
    send(keyed, [Sent(b"")])
    with pytest.raises(GlassflowError, match=r"^sources\[0\].key_schema: is no .proto file: .*; correct it$"):
        keyed.catch_up()


@pytest.mark.long
def test_a_record_without_a_key_is_a_row_with_nulls_where_no_field_of_it_is_required(keyed: Pipeline) -> None:
    keyed.fields[1] |= {"required": False}
    keyed.columns["_key.id"] = "Nullable(Int64)"
    keyed.write(dedup=False)
    send(keyed, [Sent(None), Sent(json_key(1)), Sent(json_key(None))])
    assert keyed.catch_up()["written"] == 3
    assert rows(keyed) == [(1, "x"), (None, "x"), (None, "x")]


@pytest.mark.long
def test_a_pipeline_in_a_pool_reads_fields_of_the_key(keyed: Pipeline, registry: Registry) -> None:
    number = registry.register("key", KEY)
    keyed.source = {"key_format": "avro", "schema_registry": {"url": registry.url}}
    keyed.more["pool"] = "keys"
    keyed.write()
    start(keyed)
    try:
        start_of_key = b"\0" + number.to_bytes(4, "big")
        value = b'\0\0\0\0\x63{"name":"x"}'
        send(keyed, [Sent(start_of_key + key, value) for key in (b"\2", b"\4", b"\2")] + [Sent(b"no", value)])
        wait_until(lambda: keyed.query("EXISTS {db}.glassflow_ledger") == [(1,)], "the ledger is there")
        wait_until(lambda: keyed.ledger()["read"] == 4, "all records are read")
        assert rows(keyed) == [(1, "x"), (2, "x")]
        assert keyed.ledger()["dead_letters"] == 1
    finally:
        stop(keyed)
        assert invoke("pool", "stop", "keys", "--state", str(keyed.state)).code == 0


@pytest.mark.long
def test_the_tutorial_does_what_it_says(pipeline: Pipeline, tmp_path: Path) -> None:
    database, topic = pipeline.name, pipeline.name
    text, blocks = tutorial("keys", pipeline, {
        'TOPIC = "stock"': f'TOPIC = "{topic}"',
        "topic: stock": f"topic: {topic}",
    })  # fmt: skip
    pipeline.create_topic(1)
    (tmp_path / "produce.py").write_text(blocks["python"])
    subprocess.run([sys.executable, tmp_path / "produce.py"], check=True)
    pipeline.name = "stock"
    pipeline.file.parent.mkdir()
    pipeline.file.write_text(blocks["yaml"])

    totals = pipeline.catch_up()

    names = ("read", "written", "duplicates", "filtered", "dead_letters")
    figures = re.search(
        r"read (\d+), written (\d+), duplicates (\d+), filtered (\d+), late 0, dead letters (\d+)", text
    )
    assert figures is not None
    assert [str(totals[name]) for name in names] == list(figures.groups())
    _, table, reason, evaluated = re.findall(r"```text\n(.*?)\n```", text, re.DOTALL)
    rows_now = pipeline.query(blocks["sql"].replace("FROM stock", f"FROM {database}.stock"))
    assert [[str(value) for value in row] for row in rows_now] == [line.split() for line in table.splitlines()]
    listed = invoke("dead-letters", "list", "stock", "--pipelines", str(pipeline.file.parent))
    assert reason in listed.out
    (command,) = re.findall(r"^glassflow-dagster (eval .*)$", text, re.MULTILINE)
    shown = cli(*(str(pipeline.file) if word == "pipelines/stock.yaml" else word for word in shlex.split(command)))
    assert shown.out.strip() == evaluated


def test_infer_proposes_the_fields_of_the_keys(pipeline: Pipeline) -> None:
    pipeline.create_topic(1)
    send(pipeline, [Sent(json_key(number, shop={"code": "a"})) for number in range(3)])
    url = f"http://127.0.0.1:{pipeline.clickhouse_port}/{pipeline.name}"
    proposed = invoke("infer", pipeline.name, "--brokers", pipeline.brokers, "--clickhouse-url", url)
    assert proposed.code == 0, proposed.err
    pipeline.file.parent.mkdir()
    pipeline.file.write_text(proposed.out)
    assert pipeline.catch_up()["written"] == 3
    columns = pipeline.query(f"SELECT _key_id, _key_shop_code, name FROM {{db}}.{pipeline.name} ORDER BY _key_id")
    assert columns == [(number, "a", "x") for number in range(3)]
