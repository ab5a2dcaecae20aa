"""Records made to crash or block a batch, among good ones: each becomes a row or a dead letter, in one run."""

import json
from typing import Any

from tests.e2e.support import Pipeline

MILLION = 1_000_000
GOOD = 40


def record(number: int, **fields: Any) -> bytes:
    return json.dumps({"id": f"k{number}", "text": "t", "list": [1], "body": {"a": 1}} | fields).encode()


def nested(number: int, value: bytes) -> bytes:
    return record(number)[:-1] + b',"more":' + value + b"}"


def objects(depth: int, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {name: found}
    return found


# The record, and how the reason of its dead letter begins; None for a record that becomes a row.
HOSTILE: list[tuple[bytes, str | None]] = [
    (nested(100, b"[" * 100_000 + b"]" * 100_000), "invalid JSON: arrays and objects more than 1000 deep"),
    (nested(101, b'{"a":' * 100_000 + b"1" + b"}" * 100_000), "invalid JSON: arrays and objects more than 1000 deep"),
    (nested(102, b"1" * MILLION), "invalid JSON: a number of more than 1000 digits"),
    (nested(103, b"0." + b"1" * MILLION), "invalid JSON: a number of more than 1000 digits"),
    (nested(104, b"1e" + b"9" * MILLION), "invalid JSON: a number of more than 1000 digits"),
    (nested(105, b'{"' + b"n" * MILLION + b'":1}'), "invalid JSON: a name of more than 50000 bytes"),
    # The paths of a thousand nested objects, written out, would exceed the heap.
    (record(106, body=objects(900, "n" * 1000)), None),
    # Compared pair by pair, these would take days.
    (record(107, list=list(range(100_000))), None),
    (record(108, text="&".join(f"p{i}=1" for i in range(100_000))), None),
    # Patterns and numbers for which Java's own functions overflow the stack or never return.
    (record(109, text="ab" * 100_000), None),
    (record(110, text=",".join("12345") * 12), None),
    (record(111, text="1" * MILLION + "x"), None),
    (record(112, id="k" * MILLION), None),
]


def test_no_record_kills_or_holds_up_a_batch(pipeline: Pipeline) -> None:
    pipeline.fields = [
        {"name": "id", "type": "string"},
        {"name": "text", "type": "string"},
        {"name": "list", "type": "array"},
        {"name": "body", "type": "map"},
    ]
    outputs = [
        ("id", "id", "string"),
        ("number", "toFloat(text)", "float64"),
        ("asked", 'hasAnyKey(parseQuery(text), ["x"])', "bool"),
        ("seen", "uniq(list)", "array"),
        ("body", "body", "map"),
    ]
    pipeline.transforms = [
        {
            "type": "filter",
            "config": {"expression": 'not (text matches "^(.*?,){11}P" or text matches "^(a|b)*c$")'},
        },
        {
            "type": "stateless",
            "config": {
                "transforms": [
                    {"output_name": name, "expression": expression, "output_type": kind}
                    for name, expression, kind in outputs
                ]
            },
        },
    ]
    pipeline.columns = {
        "id": "String",
        "number": "Float64",
        "asked": "Bool",
        "seen": "Array(Int64)",
        "body": "JSON",
    }
    pipeline.write().create_topic(1)
    good = [record(number) for number in range(GOOD)]
    sent = [*good[:20], *(value for value, _ in HOSTILE), *good[20:]]
    pipeline.send(sent, lambda _: 0)

    totals = pipeline.catch_up()

    expected = {20 + index: reason for index, (_, reason) in enumerate(HOSTILE) if reason}
    found = dict(pipeline.query("SELECT offset, reason FROM {db}.glassflow_dead_letters"))
    assert {offset: reason[: len(expected.get(offset, "")) or None] for offset, reason in found.items()} == expected
    assert {name: count for name, count in totals.items() if count} == {
        "read": len(sent),
        "written": len(sent) - len(expected),
        "dead_letters": len(expected),
    }
    assert pipeline.query("SELECT uniqExact(id), sum(length(id) = 1000000) FROM {db}.events") == [
        (len(sent) - len(expected), 1)
    ]
