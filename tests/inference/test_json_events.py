"""Which messages count as events, and how the others are reported."""

import pytest

from glassflow_dagster.inference.json_events import FROM_A_REGISTRY, read_json_events

ID = b"\x00\x00\x00\x00\x07"


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
    found = read_json_events([value, b'{"a": 1}', value])
    assert found.objects == [{"a": 1}]
    assert (found.skipped, found.messages) == ({what: 2}, 3)
    assert found.skipped_text == f"2 {what}"


def test_a_schemas_id_stands_before_all_events_or_before_none() -> None:
    event = b'{"a": 1}'
    framed = read_json_events([ID + event, ID + event, event, ID])
    assert (len(framed.objects), framed.with_schema) == (2, True)
    assert framed.skipped == {"without a schema's id": 1, FROM_A_REGISTRY: 1}
    plain = read_json_events([ID + event, event, event])
    assert (len(plain.objects), plain.with_schema, plain.skipped) == (2, False, {"with a schema's id": 1})
