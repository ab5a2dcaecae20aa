"""The field that is proposed as the key, and the reason."""

from typing import Any

from glassflow_dagster.inference.fields import collect_fields
from glassflow_dagster.inference.keys import Key, key_candidates


def keys(events: list[dict[str, Any]], topic: str = "orders") -> list[Key]:
    return key_candidates(collect_fields(events).declared, events, topic)


def test_a_field_that_only_copies_share_is_unique() -> None:
    events = [{"n": number, "customer_id": number % 5, "order_id": f"o{number}"} for number in range(100)]
    found = keys(events + events[:10])
    assert [(key.name, key.is_unique) for key in found] == [("order_id", True), ("customer_id", False)]
    assert found[0].text == "100 values in 110 events; 10 repeats, all of them copies of an earlier event"
    assert found[1].text == "5 values in 110 events; 105 repeats, 95 of them in events that differ"


def test_without_repeats_the_text_says_so() -> None:
    [key] = keys([{"id": number} for number in range(3)])
    assert key.text == "3 values in 3 events, none repeated"


def test_the_events_own_id_goes_before_others_that_are_unique_by_chance() -> None:
    events = [{"user": {"id": number}, "session_id": number, "orderId": number, "id": number} for number in range(9)]
    assert [key.name for key in keys(events)] == ["orderId", "id", "user.id", "session_id"]
    assert [key.name for key in keys(events, "sessions")] == ["session_id", "id", "user.id", "orderId"]


def test_only_required_scalars_named_like_an_id_can_be_keys() -> None:
    event = {"id": 1.5, "a_id": True, "b_id": [1], "c_id": None, "paid": "x", "valid": 1, "d_id": 1}
    assert [key.name for key in keys([event, {**event, "d_id": "1"}])] == []
    assert [key.name for key in keys([event, {**event, "d_id": 2}])] == ["d_id"]
