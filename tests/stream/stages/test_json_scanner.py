"""The quick decoder of good records, beside Jackson: the same values, or none.

Records are drawn with a fixed seed, and most of them are damaged by a few bytes. tests/stream/stages/test_decode.py
says what is right.
"""

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

KINDS = ["string", "int", "uint", "float", "bool", "array", "map", "any", "decimal", "bigint", "ubigint"]
# A field of each kind, required and not; and names that are paths, or both.
FIELDS = [
    *([f"{kind}{required}", kind, bool(required)] for kind in KINDS for required in (0, 1)),
    ["o.text", "string", False], ["o", "map", False], ["o.p.n", "int", False], ["l.x", "int", False],
    ["\u00e9", "any", False],
]  # fmt: skip
GOOD: list[bytes] = [
    b"{}", b" \t\r\n{ } ", b'{"a":1}', b'{"a":{"b":[1,{"c":[]},"]",{}],"d":"}"},"b":[[],[[1]],true,false,null]}',
    b'{"string0":""}', b'{"string0":"a\\n\\"\\\\\\/\\b\\f\\r\\t\\u00e9\\u20ac\\ud83d\\ude00"}',
    '{"string0":"\u00e9\u20ac\U0001f600 and plain ascii of more than eight bytes"}'.encode(),
    b'{"int0":0,"uint0":0}', b'{"int0":-999999999999999999}', b'{"float0":-0.0}', b'{"float0":-0}', b'{"float0":1e-7}',
    b'{"float0":0.1}', b'{"float0":12345678901234567890.25}', b'{"float0":9007199254740994}', b'{"float0":1.5E+300}',
    b'{"bool0":true,"bool1":false}', b'{"array0":[1, "\\u00e9"],"map0":{"a" : 1}}', b'{"any0":"x","any1":-1.50}',
    b'{"any0":[1],"any1":{"a":null}}', b'{"decimal0":1.50,"decimal1":-0.0}', b'{"bigint0":-12345678901234567890123.0}',
    b'{"o":{"text":"x","p":{"n":5},"more":1}}', b'{"o.text":"x"}', b'{"o":null}', b'{"o":{}}', '{"\u00e9":1}'.encode(),
    b'{"log":"a \\"quoted\\" line\\n","string0":null}',
]  # fmt: skip
# What Jackson decides: dead letters, and good records in an unusual form.
LEFT: list[bytes] = [
    b"", b"[]", b"1", b"{", b'{"a"', b'{"a":', b'{"a":1', b'{"a":1,}', b"{,}", b'{"a":1}}', b'{"a":01}', b'{"a":1.}',
    b'{"a":.5}', b'{"a":+1}', b'{"a":-}', b'{"a":tru}', b'{"a":[1,]}', b'{"a":[,1]}', b'{"a":[1 2]}', b'{"a":{"b"}}',
    b'{"a":{"b":1,}}', b'{"a":"\x01"}', b'{"a":"\\x"}', b'{"a":"\\u12g4"}', b'{"a":"\\u00"}', b'{"a":"\xff"}',
    b'{"a":"\xc0\x80"}', b'{"a":"\xed\xa0\x80"}', b'{"a":"\xf4\x90\x80\x80"}', b'{"a":"\xe2\x82"}', b"\xef\xbb\xbf{}",
    b'{"int0":1.5}', b'{"int0":"1"}', b'{"int0":3.0}', b'{"int0":9223372036854775808}', b'{"uint0":-1}',
    b'{"float0":9007199254740993}', b'{"float0":-1e-400}',
    b'{"float0":1e999}', b'{"float0":"1"}', b'{"string0":"\\ud83d"}', b'{"string0":"\\ude00"}', b'{"string0":1}',
    b'{"string0":"a","string0":"b"}', b'{"string0":null,"string0":"b"}', b'{"o.text":"x","o":{"text":"y"}}',
    b'{"o":{"text":"x","text":"y"}}', b'{"o":[]}', b'{"array0":{}}', b'{"map0":[]}', b'{"decimal0":1e99}',
    b'{"ubigint0":-1}', b'{"bigint0":1.5}', b'{"str\\u0069ng0":"x"}', b'{"a":1}\x00', b'{"a":1} x',
    b'{"a":' + b"[" * 600 + b"]" * 600 + b"}", b'{"a":' + b"[" * 1001 + b"]" * 1001 + b"}",
    b'{"a":' + b"1" * 1001 + b"}",
    b'{"float0":' + b"1" * 1001 + b"}",
]  # fmt: skip


@pytest.fixture(scope="module")
def decoder(spark: SparkSession) -> Any:
    optional = [[name, kind, False] for name, kind, _ in FIELDS]
    return spark._jvm.glassflow.StrictJson(json.dumps(optional))


@pytest.fixture(scope="module")
def strict_decoder(spark: SparkSession) -> Any:
    return spark._jvm.glassflow.StrictJson(json.dumps(FIELDS))


def assert_same(found: Any, wanted: Any, record: bytes) -> None:
    """Compare two rows; as texts, too, as equal numbers may differ in their sign (-0.0)."""
    assert found.equals(wanted), record
    assert found.toString() == wanted.toString(), record


def drawn_value(draw: random.Random, depth: int = 0) -> Any:
    kind = draw.randrange(9 if depth < 3 else 6)
    if kind < 2:
        alphabet = 'ab "\\/\n\t\x7f\u00e9\u20ac\U0001f600'
        return "".join(draw.choice(alphabet) for _ in range(draw.randrange(20)))
    if kind == 2:
        return draw.choice([0, -1, 10**17, 10**18, 2**63, 2**64, 10**30, draw.randrange(-1000, 1000)])
    if kind == 3:
        return draw.choice([0.0, -0.0, 1e-7, 1.5, draw.random(), draw.uniform(-1e20, 1e20), 123.456])
    if kind < 6:
        return draw.choice([True, False, None])
    if kind == 6:
        return [drawn_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    names = ["a", "text", "p", "n", "x", *(field[0] for field in FIELDS)]
    return {draw.choice(names): drawn_value(draw, depth + 1) for _ in range(draw.randrange(5))}


def drawn_records(draw: random.Random) -> Iterator[bytes]:
    """Yield records: half of their fields have a value of their kind, and every third is damaged."""
    fitting = {
        "string": ["", "x", "\u00e9\n"], "int": [1, -5], "uint": [7], "float": [1.25, 3, 1e-9], "bool": [True],
        "array": [[1, "a"]], "map": [{"a": 1}], "any": [1.5, "x", None, {}], "decimal": [1.5, 100], "bigint": [10**30],
        "ubigint": [2**255],
    }  # fmt: skip
    while True:
        chosen = draw.sample(FIELDS, draw.randrange(len(FIELDS)))
        record = {
            name: draw.choice(fitting[str(kind)]) if draw.random() < 0.9 else drawn_value(draw)
            for name, kind, _ in chosen
        } | {f"more{draw.randrange(3)}": drawn_value(draw)}  # fmt: skip
        text = json.dumps(record, ensure_ascii=draw.random() < 0.5, indent=draw.choice([None, None, 1])).encode()
        if draw.random() < 0.3:
            damaged = bytearray(text)
            for _ in range(draw.randrange(1, 3)):
                position = draw.randrange(len(damaged))
                damaged[position : position + draw.randrange(2)] = draw.choice(
                    [b"", b'"', b"\\", b",", b"}", b"0", b"\xc3", b"."]
                )
            text = bytes(damaged)
        yield text


@pytest.mark.parametrize("record", GOOD, ids=lambda record: record.decode()[:40])
def test_good_records_are_read_without_jackson(decoder: Any, record: bytes) -> None:
    found = decoder.scan(record)
    assert found is not None
    assert_same(found, decoder.decodeByJackson(record), record)


@pytest.mark.parametrize("record", LEFT, ids=lambda record: repr(record[:40]))
def test_other_records_are_left_to_jackson(decoder: Any, record: bytes) -> None:
    assert decoder.scan(record) is None
    assert decoder.decode(record).equals(decoder.decodeByJackson(record))


def test_a_record_without_a_required_field_is_left_to_jackson(strict_decoder: Any) -> None:
    assert strict_decoder.scan(b'{"string1":"x"}') is None
    assert "is missing" in strict_decoder.decode(b'{"string1":"x"}').toString()


@pytest.mark.parametrize("seed", range(4))
def test_what_is_read_is_what_jackson_reads(decoder: Any, strict_decoder: Any, seed: int) -> None:
    draw, scanned = random.Random(seed), 0
    records = drawn_records(draw)
    for _ in range(500):
        record = next(records)
        for each in (decoder, strict_decoder):
            found = each.scan(record)
            if found is not None:
                scanned += 1
                assert_same(found, each.decodeByJackson(record), record)
    # Most are whole.
    assert scanned > 100
