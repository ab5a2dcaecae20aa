"""Which messages count as events, and how the others are reported."""

from typing import Any

import pytest

from glassflow_dagster.inference.json_events import FROM_A_REGISTRY, read_json_events
from glassflow_dagster.stores.kafka.records import Record

ID = b"\x00\x00\x00\x00\x07"


def record(value: bytes | None, headers: Any = ()) -> Record:
    return Record("t", 0, 0, 0, None, value, headers)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (None, "without a value"),
        (b"", "without a value"),
        (b"{", "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": 1} {}', "not JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": "\xff"}', "not in UTF-8"),
        (b"[{}]", "JSON other than an object"),
        (b"\x00\x00\x00\x00\x01\x08abc", FROM_A_REGISTRY),
    ],
)
def test_what_is_no_event_is_counted_by_reason(value: bytes | None, what: str) -> None:
    found = read_json_events(map(record, [value, b'{"a": 1}', value]))
    assert found.objects == [{"a": 1}]
    assert (found.skipped, found.messages) == ({what: 2}, 3)
    assert found.skipped_text == f"2 {what}"


def test_a_schemas_id_stands_before_all_events_or_before_none() -> None:
    event = b'{"a": 1}'
    framed = read_json_events(map(record, [ID + event, ID + event, event, ID]))
    assert (len(framed.objects), framed.with_schema) == (2, True)
    assert framed.skipped == {"without a schema's id": 1, FROM_A_REGISTRY: 1}
    plain = read_json_events(map(record, [ID + event, event, event]))
    assert (len(plain.objects), plain.with_schema, plain.skipped) == (2, False, {"with a schema's id": 1})


def test_a_schemas_id_may_be_a_uuid_or_in_a_header() -> None:
    event, unique = b'{"a": 1}', b"\x01" + bytes(16)
    headers = (("__value_schema_id", unique),)
    found = read_json_events([record(unique + event), record(event, headers), record(event, (("other", b""),))])
    assert (len(found.objects), found.with_schema, found.skipped) == (2, True, {"without a schema's id": 1})
    # A header without a value says that the id is in the value; too few bytes are none.
    found = read_json_events([record(ID + event, (("__value_schema_id", None),)), record(ID[:4])])
    assert (found.with_schema, found.skipped) == (True, {"not JSON": 1})
