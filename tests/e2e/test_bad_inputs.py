"""Bad input as one list: each ends as a dead letter with its reason, or as an error that names place and remedy.

Whatever is wrong with a record, the records beside it are rows, and no record is without an outcome. Whatever is wrong
with a registry or a schema, nothing is lost by it: once it is right, every record is read.
"""

import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import fastavro
import pytest

from glassflow_dagster.checks.verify import verify_pipeline
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.driver.options import RunOptions
from glassflow_dagster.driver.run import run_pipeline
from glassflow_dagster.errors import GlassflowError
from tests.e2e.support import Pipeline
from tests.servers.registry import Registry, serving
from tests.support.variants import one_of, some_of

AVRO = {"type": "record", "name": "Event", "fields": [
    {"name": "id", "type": "string"},
    {"name": "n", "type": "int"},
    {"name": "more", "type": ["null", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}]},
    {"name": "list", "type": {"type": "array", "items": "long"}},
]}  # fmt: skip
PROTOBUF = """
syntax = "proto3";
message Event { string id = 1; optional int32 n = 2; Event inner = 3; }
"""
OTHER_PROTOBUF = 'syntax = "proto3"; message Other { string name = 1; }'
SCHEMA_ID, OTHER_ID, JSON_ID = 1, 2, 3


def avro(event: dict[str, Any], schema: dict[str, Any] = AVRO) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), event)
    return stream.getvalue()


def of_schema(content: bytes, number: int = SCHEMA_ID, before: bytes = b"") -> bytes:
    """Return a value in Confluent's wire format. before: what stands between the id and the content."""
    return b"\0" + number.to_bytes(4, "big") + before + content


@dataclass(frozen=True)
class Format:
    """A format, an event of it as bytes by its number, and bad records: value -> a part of the reason."""

    source: dict[str, Any]
    register: Callable[[Registry], object]
    good: Callable[[int], bytes]
    bad: dict[bytes | None, str]


def good_json(number: int) -> bytes:
    return json.dumps({"id": f"k{number}", "n": number}).encode()


def good_avro(number: int) -> bytes:
    return of_schema(avro({"id": f"k{number}", "n": number, "more": "A", "list": [1, 2]}))


def good_protobuf(number: int) -> bytes:
    key = f"k{number}".encode()
    return of_schema(b"\x0a" + bytes([len(key)]) + key + b"\x10" + bytes([number]), before=b"\0")


GOOD_AVRO, GOOD_PROTOBUF = good_avro(1)[5:], good_protobuf(1)[6:]
ID_ONLY = {**AVRO, "fields": AVRO["fields"][:1]}

FORMATS = {
    "json": Format(
        {},
        lambda _: None,
        good_json,
        {
            None: "the record has no value",
            b"": "the record's value is empty",
            b"no json": "invalid JSON",
            b'{"id": "a", "n": 1': "invalid JSON",
            b'{"id": "a", "n": 1}{"id": "b"}': "something follows the object",
            b"[1, 2]": "not a JSON object",
            b"null": "not a JSON object",
            b'{"id": "a", "n": "1"}': "field 'n'",
            b'{"id": "a", "n": 1.5}': "field 'n'",
            b'{"id": "a", "n": 99999999999}': "column 'n'",
            b'{"id": "a", "n": NaN}': "invalid JSON",
            b'{"id": "a"}': "field 'n' is missing",
            b'{"id": null, "n": 1}': "field 'id' is null",
            b'{"id": "a\xff", "n": 1}': "not in UTF-8",
            b'{"id": "a", "n": 1, "x": ' + b"[" * 5_000 + b"]" * 5_000 + b"}": "invalid JSON",
            '{"id": "a", "n": 1}'.encode("utf-16"): "invalid JSON",
        },
    ),
    "json_schema": Format(
        {"format": "json_schema", "schema_registry": {"url": "http://127.0.0.1:1"}},
        lambda _: None,
        lambda number: of_schema(good_json(number)),
        {
            good_json(1): "no schema id",
            b"\0\0\0": "too short to hold a schema id",
            of_schema(b"no json"): "invalid JSON",
            of_schema(b'{"n": 1}'): "field 'id' is missing",
        },
    ),
    "avro": Format(
        {"format": "avro"},
        lambda registry: registry.register("events-value", AVRO),
        good_avro,
        {
            None: "the record has no value",
            b"": "the value is empty; a schema id begins it",
            b"\0\0": "too short to hold a schema id",
            b"\x07" + good_avro(1)[1:]: "no schema id",
            good_json(1): "no schema id",
            of_schema(GOOD_AVRO, 99): "the schema registry has no schema with the id 99",
            of_schema(GOOD_AVRO, 2**32 - 1): "no schema with the id",
            of_schema(b""): "it ends after",
            of_schema(GOOD_AVRO[:-1]): "invalid Avro",
            of_schema(GOOD_AVRO[:2]): "invalid Avro",
            of_schema(GOOD_AVRO + b"x"): "1 bytes follow the record",
            of_schema(b"\x04\xff\xfe\x02\0\0"): "a text that is not UTF-8",
            of_schema(b"\xff" * 11): "a number of more than ten bytes",
            of_schema(b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"): "bytes are announced",
            of_schema(b"\x02a\x02\x06"): "branch 3 of a union that has 2",
            of_schema(b"\x02a\x02\0\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"): "items are announced",
            of_schema(avro({"id": "a"}, ID_ONLY), OTHER_ID): "field 'n' is missing",
            of_schema(b"{}", JSON_ID): "schema 3 is of type JSON, not AVRO",
        },
    ),
    "protobuf": Format(
        {"format": "protobuf"},
        lambda registry: registry.register("events-value", PROTOBUF, kind="PROTOBUF"),
        good_protobuf,
        {
            None: "the record has no value",
            b"": "the value is empty; a schema id begins it",
            b"\0\0\0\0": "too short to hold a schema id",
            b"\x07" + good_protobuf(1)[1:]: "no schema id",
            of_schema(GOOD_PROTOBUF, 99, b"\0"): "the schema registry has no schema with the id 99",
            of_schema(b""): "too early",
            of_schema(GOOD_PROTOBUF, before=b"\2\x12"): "no message 9 in the schema",
            of_schema(GOOD_PROTOBUF, before=b"\xfe\xff\xff\xff\x0f"): "indexes of a message",
            of_schema(b"\x0a\x05ab", before=b"\0"): "5 bytes are announced and 2 are left",
            of_schema(b"\x0a\1\xff", before=b"\0"): "a text that is not UTF-8",
            of_schema(b"\x08\1", before=b"\0"): "wire type 0, and 2 in the schema",
            of_schema(b"\x10", before=b"\0"): "too early",
            of_schema(b"\x0f", before=b"\0"): "wire type 7",
            of_schema(b"\0\0", before=b"\0"): "no field's number",
            of_schema(b"\x0a\1a", before=b"\0"): "field 'n' is missing or null",
            of_schema(b"\x0a\1a", OTHER_ID, b"\0"): "is missing",
        },
    ),
}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as running:
        yield running


def require_counted(pipeline: Pipeline) -> None:
    report = verify_pipeline(load_pipeline(pipeline.file), print)
    assert report.counts.passed, report.counts.description


@pytest.mark.parametrize("name", one_of(list(FORMATS)))
def test_a_bad_record_is_a_dead_letter_with_its_bytes_and_the_reason(
    pipeline: Pipeline, registry: Registry, name: str
) -> None:
    form = FORMATS[name]
    form.register(registry)
    if name == "avro":
        registry.register("other", ID_ONLY)
        registry.register("json", '{"type": "object"}', kind="JSON")
    if name == "protobuf":
        registry.register("other", OTHER_PROTOBUF, kind="PROTOBUF")
    own = {"schema_registry": {"url": registry.url}} if form.source else {}
    pipeline.source = {**own, **form.source}
    pipeline.fields = [{**field, "required": True} for field in pipeline.fields]
    pipeline.write().create_topic()
    # A good record before each bad one, so that none of the batch's parts is without one.
    values = [value for number, bad in enumerate(form.bad) for value in (form.good(number), bad)]
    pipeline.send(values, lambda _: 0)

    totals = pipeline.catch_up()

    found = pipeline.query("SELECT offset, value, stage, reason FROM {db}.glassflow_dead_letters ORDER BY offset")
    assert [offset for offset, *_ in found] == [2 * number + 1 for number in range(len(form.bad))]
    for (value, expected), (_, _, _, reason) in zip(form.bad.items(), found, strict=True):
        assert expected in reason, (value, reason)
    hashed = pipeline.query("SELECT hex(value), value IS NULL FROM {db}.glassflow_dead_letters ORDER BY offset")
    assert hashed == [
        ((value or b"").hex().upper() if value is not None else None, value is None) for value in form.bad
    ]
    assert (totals["written"], totals["dead_letters"]) == (len(form.bad), len(form.bad))
    require_counted(pipeline)


# What the registry does -> a part of the error.
REGISTRIES: dict[str, tuple[tuple[int, str] | None, str]] = {
    "not there": (None, r"schema registry http://127\.0\.0\.1:1/schemas/ids/1: .*; waited \d+ s for it"),
    "401": ((401, "{}"), r"answers 401 \(\{\}\); correct schema_registry.api_key and api_secret, or bearer_token"),
    "403": ((403, "no"), r"answers 403 \(no\); correct schema_registry.api_key"),
    "404 of another server": ((404, "<html>"), r"answers 404 \(<html>\); correct schema_registry.url"),
    "500": ((500, ""), r"answers 500; waited \d+ s for it"),
    "429": ((429, ""), r"answers 429; waited \d+ s for it"),
    "garbage": ((200, "<html>"), r"answers no JSON \(<html>\); is it a schema registry\?"),
    "no schema": ((200, "{}"), r"answers without a schema; is it a schema registry\?"),
}


@pytest.mark.parametrize("case", some_of(list(REGISTRIES), 3))
@pytest.mark.long
def test_a_registry_that_cannot_be_used_is_named_and_loses_nothing(
    pipeline: Pipeline, registry: Registry, case: str
) -> None:
    answer, expected = REGISTRIES[case]
    registry.register("events-value", AVRO)
    url = registry.url if answer else "http://127.0.0.1:1"
    pipeline.source = {"format": "avro", "schema_registry": {"url": url}}
    pipeline.write().create_topic()
    pipeline.send([good_avro(number) for number in range(3)])
    registry.failures = [answer] * 1_000 if answer else []
    with pytest.raises(GlassflowError) as error:
        run_pipeline(
            load_pipeline(pipeline.file), RunOptions(pipeline.state, until_caught_up=True, timeout_seconds=2), print
        )
    assert re.search(expected, str(error.value)), error.value
    assert pipeline.query("SELECT count() FROM {db}.glassflow_dead_letters") == [(0,)]
    registry.failures = []
    pipeline.source["schema_registry"] = {"url": registry.url}
    assert pipeline.write().catch_up()["written"] == 3
    require_counted(pipeline)


CYCLE = """
syntax = "proto3";
import "b.proto";
message Event { string id = 1; int32 n = 2; B b = 3; }
"""
CYCLE_B = """
syntax = "proto3";
import "a.proto";
message B { string name = 1; }
"""

# What is wrong with a definition's schema -> its format, the text and message_type, and a part of the error.
SCHEMAS: dict[str, tuple[str, dict[str, Any], str]] = {
    "no JSON": ("avro", {"file": "record"}, r"sources\[0\].schema.file: is no Avro schema, which is JSON"),
    "no Avro": ("avro", {"file": '{"type": "recrod"}'}, r"sources\[0\].schema"),
    "an unknown type": (
        "avro", {"file": '{"type": "record", "name": "E", "fields": [{"name": "id", "type": "text"}]}'},
        r"sources\[0\].schema",
    ),
    "Avro without fields": ("avro", {"file": '{"type": "record", "name": "E"}'}, r"sources\[0\].schema"),
    "no record": ("avro", {"file": '"string"', "wire_format": "none"}, r"sources\[0\].schema"),
    "no .proto file": ("protobuf", {"file": "message {"}, r"sources\[0\].schema: is no .proto file: .*; correct it"),
    "empty": ("protobuf", {"file": "// nothing"}, r"sources\[0\].schema: .*; correct it"),
    "no such message": (
        "protobuf", {"file": PROTOBUF, "message_type": "Nobody"},
        r"sources\[0\].schema: no message 'Nobody' in the schema; correct it",
    ),
    "an undefined type": (
        "protobuf", {"file": 'syntax = "proto3"; message E { string id = 1; Missing n = 2; }'},
        r"sources\[0\].schema: it refers to 'Missing', which it does not define; correct it",
    ),
    "a field's number twice": (
        "protobuf", {"file": 'syntax = "proto3"; message E { string id = 1; int32 n = 1; }'},
        r"sources\[0\].schema: 'id' and 'n' of E have the number 1; correct it",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", some_of(list(SCHEMAS), 3))
def test_a_schema_that_is_none_is_named_before_a_record_is_read(pipeline: Pipeline, case: str) -> None:
    name, schema, expected = SCHEMAS[case]
    pipeline.source = {"format": name, "schema": {"wire_format": "none", **schema}}
    pipeline.write().create_topic()
    pipeline.send([b"\0"])
    with pytest.raises(GlassflowError) as error:
        pipeline.catch_up()
    assert re.search(expected, str(error.value)), error.value


def test_schemas_that_refer_to_each_other_are_read(pipeline: Pipeline, registry: Registry) -> None:
    pipeline.source = {"format": "protobuf", "schema_registry": {"url": registry.url}}
    pipeline.write().create_topic()
    registry.register("a", CYCLE, [{"name": "b.proto", "subject": "b", "version": 1}], "PROTOBUF")
    registry.register("b", CYCLE_B, [{"name": "a.proto", "subject": "a", "version": 1}], "PROTOBUF")
    pipeline.send([good_protobuf(1), of_schema(b"\x0a\1a\x10\5\x1a\3\x0a\1b", before=b"\0")])
    totals = pipeline.catch_up()
    assert (totals["written"], totals["dead_letters"]) == (2, 0)
