"""Fields of the record's key: decoded beside those of the value, and the reasons of dead letters."""

import struct
import uuid
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.definition.model.connections import KafkaConnection, SchemaRegistry
from glassflow_dagster.definition.model.source import SchemaField, Source, SourceSchema
from glassflow_dagster.stream.stages.decode.decode import decode
from glassflow_dagster.stream.stages.decode.formats import decoder_of
from glassflow_dagster.stream.stages.scope import field_scope

FIELDS = (
    SchemaField(name="_key.id", type="int64"),
    SchemaField(name="name", type="string"),
    SchemaField(name="_key.shop.code", type="string", required=False),
    SchemaField(name="_key.big", type="uint64", required=False),
    SchemaField(name="n", type="int64", default=7),
)
OPTIONAL = tuple(field.model_copy(update={"required": False}) for field in FIELDS)
SOURCE = Source(
    type="kafka",
    source_id="s",
    topic="t",
    connection_params=KafkaConnection(brokers=("b:1",)),
    schema_fields=FIELDS,
    key_format="json",
)
RECORD = """{"type": "record", "name": "Key", "fields": [
  {"name": "id", "type": "long"},
  {"name": "shop", "type": ["null", {"type": "record", "name": "Shop", "fields": [{"name": "code", "type": "string"}]}]}
]}"""
MESSAGE = """syntax = "proto3";
message Other { int64 other = 1; }
message Key { int64 id = 1; Shop shop = 2; message Shop { string code = 1; } }
"""
COLUMNS = "i int, key binary, value binary, headers array<struct<key string, value binary>>"
GOOD = b'{"name":"x"}'
UNIQUE = b"\1" + uuid.UUID(int=3).bytes


def source(key_format: str, *, registry: bool = False, **schema: str) -> Source:
    """Return a source with keys of a format; schema: the keys of key_schema."""
    found = SchemaRegistry(url="http://r") if registry else None
    changes = {"key_format": key_format, "key_schema": SourceSchema(**schema) if schema else None}
    return SOURCE.model_copy(update={**changes, "schema_registry": found})


def decoded(
    spark: SparkSession,
    of: Source,
    keys: list[bytes | None],
    fields: tuple[SchemaField, ...] = FIELDS,
    value: bytes | None = GOOD,
    headers: list[tuple[str, bytes | None]] | None = None,
) -> list[Row]:
    """Decode a record with each of the keys; all have the same value and headers."""
    records = spark.createDataFrame([(index, key, value, headers) for index, key in enumerate(keys)], COLUMNS)
    return decode(records, [decoder_of(of, fields, "r")]).orderBy("i").select("fields.*", "error").collect()


def found(row: Row) -> tuple[Any, ...]:
    """Return the fields of the key, and the name."""
    assert row.error is None, row.error
    return row["_key.id"], row["_key.shop.code"], row["_key.big"], row["name"]


def test_fields_of_key_and_value_are_in_the_order_of_their_declaration(spark: SparkSession) -> None:
    keys: list[bytes | None] = [b'{"id":1}', b'{"id":2,"shop":{"code":"a"},"big":18446744073709551615,"name":"no"}']
    rows = decoded(spark, SOURCE, keys)
    assert list(rows[0].asDict()) == [*(field.name for field in FIELDS), "_error", "error"]
    assert [found(row) for row in rows] == [(1, None, None, "x"), (2, "a", 18446744073709551615, "x")]


def test_a_dotted_name_is_first_looked_up_as_it_is(spark: SparkSession) -> None:
    (row,) = decoded(spark, SOURCE, [b'{"id":1,"shop":{"code":"nested"},"shop.code":"literal"}'])
    assert row["_key.shop.code"] == "literal"


REFUSED: list[tuple[bytes | None, str]] = [
    (None, "field '_key.id' is missing: the record has no key"),
    (b"", "key: the record's key is empty"),
    (b"17", "key: not a JSON object but number"),
    (b"k-17", "key: invalid JSON: 'k' is no value"),
    (b"\xff\0", "key: invalid JSON: not in UTF-8"),
    (b'{"id":1,"more":"\xc0\xaf"}', "key: invalid JSON: not in UTF-8, at byte 16"),
    (b"{}", "key: field 'id' is missing"),
    (b'{"id":null}', "key: field 'id' is null"),
    (b'{"id":"1"}', "key: field 'id': expected int, got string"),
    (b'{"id":1,"id":2}', "key: field 'id': is given twice"),
    (b'{"id":1} 2', "key: invalid JSON: something follows the object"),
]


def test_a_key_that_cannot_be_decoded_is_a_dead_letter_whose_reason_says_so(spark: SparkSession) -> None:
    rows = decoded(spark, SOURCE, [key for key, _ in REFUSED])
    for row, (key, reason) in zip(rows, REFUSED, strict=True):
        assert row.error.stage == "decode", key
        assert row.error.reason.startswith(reason), key
        assert row["_key.id"] is None
        assert row["name"] is None


def test_fields_of_a_record_without_a_key_are_missing(spark: SparkSession) -> None:
    without, with_one = decoded(spark, SOURCE, [None, b'{"id":1}'], OPTIONAL)
    assert found(without) == (None, None, None, "x")
    assert found(with_one) == (1, None, None, "x")


def test_a_default_is_the_value_of_a_field_that_the_key_lacks(spark: SparkSession) -> None:
    fields = (SchemaField(name="_key.id", type="int64", default=-1), *FIELDS[1:])
    records = spark.createDataFrame([(0, None, GOOD, []), (1, b"{}", GOOD, [])], COLUMNS)
    columns = field_scope(fields).mappable
    rows = decode(records, [decoder_of(SOURCE, fields, "")]).withColumn("batch_time", F.current_timestamp())
    assert [row.id for row in rows.select(columns["_key.id"].alias("id")).collect()] == [-1, -1]


def test_what_is_wrong_with_the_value_is_the_first_reason(spark: SparkSession) -> None:
    for value, reason in ((None, "the record has no value"), (b"{}", "field 'name' is missing")):
        rows = decoded(spark, SOURCE, [None, b"no", b'{"id":1}'], value=value)
        assert [row.error.reason for row in rows] == [reason] * 3


def test_only_the_key_may_have_fields(spark: SparkSession) -> None:
    fields = FIELDS[:1]
    good, bad = decoded(spark, SOURCE, [b'{"id":1}', b"{}"], fields, value=b'{"a":[1,{"b":2}]}')
    assert (good["_key.id"], good.error, bad.error.reason) == (1, None, "key: field 'id' is missing")
    (row,) = decoded(spark, SOURCE, [b'{"id":1}'], fields, value=b"[]")
    assert row.error.reason == "not a JSON object but array"


def test_json_keys_of_a_registry_have_a_schema_id_before_them_or_in_a_header(spark: SparkSession) -> None:
    of = source("json", registry=True)
    value, header = b"\0\0\0\0\1" + GOOD, [("__key_schema_id", b"\0\0\0\0\x09")]
    keys: list[bytes | None] = [b'\0\0\0\0\2{"id":1}', UNIQUE + b'{"id":2}', b'{"id":3}', b"\0\0", b"\0\0\0\0\2"]
    rows = decoded(spark, of, keys, value=value)
    assert [found(row)[0] for row in rows[:2]] == [1, 2]
    assert [row.error.reason for row in rows[2:]] == [
        "key: no schema id: the key begins neither with the byte 0 and a number nor with 1 and a UUID",
        "key: the key is too short to hold a schema id",
        "key: the record's key is empty",
    ]
    (in_header, _) = decoded(spark, of, [b'{"id":3}', None], OPTIONAL, value=value, headers=header)
    assert found(in_header)[0] == 3
    # The header of the value says nothing of the key, and the reverse.
    of_value = [("__value_schema_id", b"\0\0\0\0\1")]
    (row,) = decoded(spark, of, [b'\0\0\0\0\2{"id":4}'], value=GOOD, headers=of_value)
    assert found(row)[0] == 4
    (row,) = decoded(spark, source("json", registry=True, wire_format="none"), [b'{"id":5}'], value=value)
    assert found(row)[0] == 5


@pytest.mark.parametrize("wire_format", ["confluent", "none"])
def test_avro_keys_are_read_with_the_schema_of_the_definition(spark: SparkSession, wire_format: str) -> None:
    of = source("avro", file=RECORD, wire_format=wire_format)
    start = b"\0\0\0\0\1" if wire_format == "confluent" else b""
    keys: list[bytes | None] = [start + b"\x22\0", start + b"\x02\2\2a", start + b"\x22", start + b"\x22\0x", start]
    rows = decoded(spark, of, keys)
    assert [found(row) for row in rows[:2]] == [(17, None, None, "x"), (1, "a", None, "x")]
    assert rows[2].error.reason == f"key: invalid Avro: it ends after {len(start) + 1} bytes, too early"
    assert rows[3].error.reason == "key: invalid Avro: 1 bytes follow the record"
    assert rows[4].error.reason.startswith("key: invalid Avro")


def test_protobuf_keys_are_read_with_the_message_of_the_definition(spark: SparkSession) -> None:
    of = source("protobuf", file=MESSAGE, wire_format="none", message_type="Key")
    rows = decoded(spark, of, [b"\x08\x11\x12\3\x0a\1a", b"", b"\x08", None])
    # Without presence, a field that is not there has Protobuf's default.
    assert [found(row) for row in rows[:2]] == [(17, "a", None, "x"), (0, None, None, "x")]
    assert rows[2].error.reason.startswith("key: invalid Protobuf: it or a message in it ends too early")
    assert rows[3].error.reason == "field '_key.id' is missing: the record has no key"


def test_a_schema_id_in_the_header_precedes_the_indexes_of_a_protobuf_message(spark: SparkSession) -> None:
    of, key = source("protobuf", file=MESSAGE), b"\x08\x11"
    start = b"\0" + struct.pack(">I", 1) + b"\2\2"
    (in_key, without) = decoded(spark, of, [start + key, key])
    assert found(in_key)[0] == 17
    assert without.error.reason.startswith("key: no schema id: the key begins neither")
    (in_header,) = decoded(spark, of, [key], headers=[("__key_schema_id", start)])
    assert found(in_header)[0] == 17


def test_a_pipeline_without_fields_of_the_key_has_the_plan_that_it_had(spark: SparkSession) -> None:
    plain = SOURCE.model_copy(update={"key_format": None})
    fields = tuple(field for field in FIELDS if not field.is_of_key)
    records = spark.createDataFrame([(0, None, GOOD, [])], COLUMNS)
    plan, with_key = (
        decode(records, [decoder_of(of, declared, "")])._jdf.queryExecution().toString()
        for of, declared in ((plain, fields), (SOURCE, FIELDS))
    )
    assert "glassflow.StrictJson" in plan
    assert "glassflow.KeyFields" in with_key
    assert "glassflow.KeyFields" not in plan
