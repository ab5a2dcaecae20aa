"""The rows of the dead letter table, built from rejected records."""

from typing import Any

import pyarrow as pa
import pytest

from glassflow_dagster.stores.kafka.records import Record, RecordPosition
from glassflow_dagster.stores.kafka.replay_headers import Replay, read_replay
from glassflow_dagster.stream.delivery.dead_letter_rows import (
    DeadLetterBatch,
    DeadLetterWithoutRaw,
    dead_letters_of_rows,
)

BATCH = DeadLetterBatch("p", "inc", "inc", 7, 1_700_000_000_000, "p.glassflow-replay", 4)
ORIGIN = ("attempt", "origin_topic", "origin_partition", "origin_offset", "passed_dedup")


def dead_letter(topic: str, stage: str, headers: list[tuple[str, bytes | None]], item: int = -1) -> dict[str, Any]:
    pairs = [{"name": name, "value": value} for name, value in headers]
    raw: dict[str, Any] = {
        "topic": topic,
        "partition": 3,
        "offset": 9,
        "timestamp": 5000,
        "key": None,
        "value": b"\xff",
    }
    types = pa.schema([("timestamp", pa.int64()), ("partition", pa.int32()), ("offset", pa.int64())])
    raw |= {"stage": stage, "reason": "why", "item": item, "only_table": "", "passed_dedup": stage == "insert"}
    columns = {
        name: pa.array([value], types.field(name).type if name in types.names else None) for name, value in raw.items()
    }
    kind = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
    found: dict[str, Any] = BATCH.rows(pa.table({**columns, "headers": pa.array([pairs], kind)})).to_pylist()[0]
    return found


@pytest.mark.parametrize(("item", "origin"), [(-1, 4), (7, 7)])
def test_an_event_of_a_record_keeps_its_item_through_replays(item: int, origin: int) -> None:
    """Replayed by itself it has no item; an event of a record that is split only now has its own."""
    assert dead_letter("source", "decode", [], item=7)["origin_item"] == 7
    headers = Replay("inc", "t", 1, 2, 3, passed_dedup=False, item=4 if item == -1 else -1).headers()
    found = dead_letter("p.glassflow-replay", "mapping", headers, item)
    assert [found[name] for name in ("origin_topic", "origin_offset", "item", "origin_item")] == ["t", 2, item, origin]
    assert found["headers"] == []


def test_a_record_of_the_source_is_its_own_origin_whatever_its_headers_say() -> None:
    sent = Replay("inc", "t", 1, 2, 3, passed_dedup=True).headers()
    found = dead_letter("source", "decode", [*sent, ("own", None)])
    assert [found[name] for name in ORIGIN] == [0, "source", 3, 9, False]
    assert len(found["headers"]) == 7
    assert (found["value"], found["expires_at"], found["batch_id"]) == (b"\xff", 4, 7)


def test_a_replayed_record_keeps_its_origin_and_that_it_claimed_its_key() -> None:
    sent = Replay("inc", "t", 1, 2, 3, passed_dedup=True).headers()
    found = dead_letter(BATCH.replay_topic, "decode", [*sent, ("own", None)])
    assert [found[name] for name in ORIGIN] == [3, "t", 1, 2, True]
    assert found["headers"] == [{"name": "own", "value": None}]
    assert (found["topic"], found["partition"], found["offset"]) == (BATCH.replay_topic, 3, 9)
    again = dead_letter(BATCH.replay_topic, "insert", Replay("inc", "t", 1, 2, 1, passed_dedup=False).headers())
    assert [again[name] for name in ORIGIN] == [1, "t", 1, 2, True]


def test_what_somebody_else_wrote_to_the_replay_topic_is_a_record_like_others() -> None:
    for headers in ([("own", b"1")], Replay("other", "t", 1, 2, 3, passed_dedup=True).headers()):
        found = dead_letter(BATCH.replay_topic, "decode", headers)
        assert [found[name] for name in ORIGIN] == [0, BATCH.replay_topic, 3, 9, False]
    assert read_replay([("glassflow-attempt", b"x"), ("glassflow-origin-offset", b"\xff")]) is None


def test_a_row_that_the_server_refused_gets_its_record_back_or_stands_in_for_it() -> None:
    rows = [
        DeadLetterWithoutRaw(RecordPosition("t", 0, 4), "insert", "violated", b"{}"),
        DeadLetterWithoutRaw(RecordPosition("t", 0, 8), "insert", "violated too", b'{"n": 8, "d": null}'),
    ]
    record = Record("t", 0, 4, 11, b"k", b"raw", (("h", None),))
    there, gone = BATCH.rows(dead_letters_of_rows(rows, {RecordPosition("t", 0, 4): record})).to_pylist()
    assert (there["value"], there["key"], there["reason"], there["passed_dedup"]) == (b"raw", b"k", "violated", True)
    assert there["headers"] == [{"name": "h", "value": None}]
    assert gone["value"] == b'{"n": 8, "d": null}'
    assert gone["reason"] == "violated too; Kafka no longer has the record: value is the row, as JSON"
    assert (gone["stage"], gone["origin_offset"]) == ("insert", 8)
