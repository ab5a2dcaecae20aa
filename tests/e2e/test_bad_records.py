"""200,000 records with bad ones of every kind: each a dead letter with its position or a row, in one run."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pytest

from tests.e2e.support import Pipeline

RECORDS = 200_000
BAD_SHARE = 0.05
PARTITIONS = 4
FIVE_MEGABYTES = 5 * 1024 * 1024

Row = tuple[str, int, float | None, datetime]


def json_of(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def good(place: int) -> dict[str, Any]:
    return {"id": f"k{place}", "n": place - RECORDS // 2, "f": place / 8, "at": "2024-10-28T10:00:05Z"}


# How to derive a bad record from a good one, and how the reason of its dead letter begins.
BAD: dict[str, tuple[Callable[[dict[str, Any]], bytes | None], str]] = {
    "not JSON": (lambda _: b"<xml/>", "invalid JSON: "),
    "truncated": (lambda e: json_of(**e)[:-5], "invalid JSON: "),
    "empty": (lambda _: b"", "the record's value is empty"),
    "tombstone": (lambda _: None, "the record has no value"),
    "invalid UTF-8": (lambda e: json_of(**e).replace(b'"k', b'"\xff\xfe'), "invalid JSON: "),
    # An overlong form of "k": a lenient decoder would read the key of another record.
    "overlong UTF-8": (lambda e: json_of(**e).replace(b'"k', b'"\xc1\xab'), "invalid JSON: not in UTF-8"),
    "an array": (lambda e: b"[" + json_of(**e) + b"]", "not a JSON object but array"),
    "two objects": (lambda e: json_of(**e) * 2, "invalid JSON: something follows the object"),
    "wrong type": (lambda e: json_of(**{**e, "n": str(e["n"])}), "field 'n': expected int, got string"),
    "a fraction in an int": (lambda e: json_of(**{**e, "n": 3.7}), "field 'n': expected int, got 3.7"),
    "missing key": (lambda e: json_of(n=e["n"], f=e["f"], at=e["at"]), "field 'id' is missing"),
    "null key": (lambda e: json_of(**{**e, "id": None}), "field 'id' is null"),
    "missing field": (lambda e: json_of(id=e["id"], f=e["f"], at=e["at"]), "field 'n' is missing"),
    "NaN": (lambda e: json_of(**{**e, "f": float("nan")}), "invalid JSON: NaN is not a number in JSON"),
    "an infinite number": (
        lambda e: json_of(**{**e, "f": "1e999"}).replace(b'"1e999"', b"1e999"),
        "field 'f': 1e999 does not fit into a 64-bit float",
    ),
    "past 2^63": (lambda e: json_of(**{**e, "n": 2**63}), "field 'n': 9223372036854775808 does not fit into 64 bits"),
    "out of the column's range": (
        lambda e: json_of(**{**e, "n": 2**40}),
        "column 'n' (Int32): 1099511627776 is out of",
    ),
    "duplicate field": (lambda e: json_of(**e)[:-1] + b',"id":"again"}', "field 'id': is given twice"),
    "deep nesting": (lambda _: b'{"id":' + b"[" * 5000, "invalid JSON: arrays and objects more than 1000 deep"),
    "half a surrogate pair": (lambda e: json_of(**e).replace(b'"k', b'"\\ud800'), "field 'id': holds half a surrogate"),
    "date out of range": (
        lambda e: json_of(**{**e, "at": "2107-01-01T00:00:00Z"}),
        "column 'at' (DateTime): '2107-",
    ),
    "no date": (
        lambda e: json_of(**{**e, "at": "2024-02-30T00:00:00Z"}),
        "column 'at' (DateTime): '2024-02-30T",
    ),
}
# Large records, sent once each: more of them would make the topic too large.
HUGE: dict[str, tuple[bytes, str | None]] = {
    "5 MB of nothing": (b"x" * FIVE_MEGABYTES, "invalid JSON: "),
    "5 MB cut off": (b'{"id":"' + b"x" * FIVE_MEGABYTES, "invalid JSON: "),
    "5 MB that no field wants": (json_of(**good(RECORDS), more="x" * FIVE_MEGABYTES), None),
}


@dataclass
class Sent:
    """The records that were sent, in order, and their expected rows and dead letters, computed without the product."""

    values: list[bytes | None]
    partitions: list[int]
    dead_letters: dict[tuple[int, int], str]
    rows: set[Row]
    duplicates: int


def draw_records(seed: int) -> Sent:
    draw = random.Random(seed)
    sent = Sent([], [], {}, set(), 0)
    offsets = [0] * PARTITIONS

    def add(value: bytes | None, reason: str | None, event: dict[str, Any] | None) -> None:
        partition = draw.randrange(PARTITIONS)
        sent.values.append(value)
        sent.partitions.append(partition)
        if reason is not None:
            sent.dead_letters[partition, offsets[partition]] = reason
        elif event is not None:
            row = (event["id"], event["n"], event["f"], datetime(2024, 10, 28, 10, 0, 5))
            sent.duplicates += row in sent.rows
            sent.rows.add(row)
        offsets[partition] += 1

    kinds = sorted(BAD)
    for place in range(RECORDS - len(HUGE)):
        event = good(place)
        if draw.random() < BAD_SHARE:
            make, reason = BAD[draw.choice(kinds)]
            add(make(event), reason, None)
        elif draw.random() < 0.1 and place:
            again = good(draw.randrange(place))
            add(json_of(**again), None, again)
        else:
            add(json_of(**event), None, event)
    for value, reason in HUGE.values():
        add(value, reason, None if reason else good(RECORDS))
    return sent


@pytest.mark.long
def test_each_bad_record_is_a_dead_letter_at_its_place_and_each_good_one_a_row(pipeline: Pipeline) -> None:
    sent = draw_records(20)
    pipeline.fields = [
        {"name": "id", "type": "string"},
        {"name": "n", "type": "int"},
        {"name": "f", "type": "float", "required": False},
        {"name": "at", "type": "string"},
    ]
    pipeline.columns = {"id": "String", "n": "Int32", "f": "Nullable(Float64)", "at": "DateTime"}
    pipeline.sink = {"max_batch_size": 20_000}
    pipeline.write().create_topic(PARTITIONS)
    assert pipeline.send(sent.values, lambda index: sent.partitions[index]) == RECORDS

    totals = pipeline.catch_up()

    assert {name: count for name, count in totals.items() if count} == {
        "read": RECORDS,
        "written": len(sent.rows),
        "duplicates": sent.duplicates,
        "dead_letters": len(sent.dead_letters),
    }
    found = pipeline.query("SELECT partition, offset, reason FROM {db}.glassflow_dead_letters")
    assert len(found) == len(sent.dead_letters)
    reasons = {(partition, offset): reason for partition, offset, reason in found}
    assert reasons.keys() == sent.dead_letters.keys()
    for place, reason in sent.dead_letters.items():
        assert reasons[place].startswith(reason), place
    rows = pipeline.query("SELECT id, n, f, at FROM {db}.events")
    assert len(rows) == len(sent.rows)
    assert set(rows) == sent.rows
