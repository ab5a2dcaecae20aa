"""What a sample of a topic has beside a definition."""

from collections import Counter
from typing import Any

import pytest

from glassflow_dagster.definition.added_fields import AddedField
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import SchemaField
from glassflow_dagster.inference.events import Declared, Events
from glassflow_dagster.inference.new_fields import (
    STEADY_EVENTS,
    FieldConflict,
    conflicts,
    proposed,
    undeclared_fields,
    why_unsteady,
)
from tests.definition.rules.test_sink import BASE

FIELDS = [
    {"name": "id", "type": "string"},
    {"name": "n", "type": "int"},
    {"name": "address.zip", "type": "string", "required": False},
    {"name": "tags", "type": "map", "required": False},
    {"name": "free", "type": "any", "required": False},
]
CONFIG = PipelineConfig.model_validate(
    {**BASE, "sources": [{**BASE["sources"][0], "schema_fields": FIELDS}], "sink": {**BASE["sink"], "routes": []}}
)
KNOWN: dict[str, Any] = {"id": "a", "n": 1}


def sample(*events: dict[str, Any], times: int = STEADY_EVENTS, **declared: Declared | None) -> Events:
    return Events([event for event in events for _ in range(times)], Counter(), declared=declared or None)


def new(events: Events) -> list[str]:
    return [field.name for field in undeclared_fields(CONFIG, events, steady=STEADY_EVENTS)]


def test_a_field_is_new_when_enough_events_have_a_value_of_it() -> None:
    assert new(sample({**KNOWN, "colour": "red"})) == ["colour"]
    assert new(sample({**KNOWN, "colour": "red"}, times=STEADY_EVENTS - 1)) == []
    assert new(sample({**KNOWN, "colour": None})) == []


def test_parts_of_declared_fields_and_what_is_around_them_are_not_new() -> None:
    events = sample({**KNOWN, "address": {"zip": "1", "city": "Ulm"}, "tags": {"a": 1}, "free": {"b": 2}})
    assert new(events) == ["address.city"]
    # An object without a key stays whole in the sample.
    assert new(sample({**KNOWN, "address": {}})) == []


def test_a_field_with_the_name_of_metadata_is_not_new() -> None:
    assert new(sample({**KNOWN, "_offset": 1, "_topic": "t", "_other": 1})) == ["_other"]


def test_a_field_of_several_types_is_not_steady() -> None:
    [field] = undeclared_fields(CONFIG, sample({**KNOWN, "x": 1}, {**KNOWN, "x": "a"}), steady=STEADY_EVENTS)
    assert why_unsteady(field).startswith("has values of several types (number, string)")
    [field] = undeclared_fields(CONFIG, sample({**KNOWN, "x": 1}, {**KNOWN, "x": 1.5}), steady=STEADY_EVENTS)
    assert why_unsteady(field) == ""


def test_with_a_schema_a_field_is_new_that_it_declares() -> None:
    price = Declared("float", "Float64", "", optional=False)
    events = sample(KNOWN, times=1, id=None, n=None, price=price)
    [field] = undeclared_fields(CONFIG, events, steady=STEADY_EVENTS)
    assert proposed(field, ()) == AddedField("price", "float", "price", "Nullable(Float64)")


@pytest.mark.parametrize(
    ("value", "kind", "column_type"),
    [
        ("2026-01-01", "string", "Nullable(String)"),
        ("8c2f1f5e-6d8e-4c55-9a54-3c1f4f9f3a10", "string", "Nullable(String)"),
        (1, "int", "Nullable(Int64)"),
        (1_700_000_000, "int", "Nullable(Int64)"),
        (2**63, "uint", "Nullable(UInt64)"),
        (2**64, "uint256", "Nullable(UInt256)"),
        (-(2**64), "int256", "Nullable(Int256)"),
        (1.5, "float", "Nullable(Float64)"),
        (True, "bool", "Nullable(Bool)"),
        ([1, 2], "array", "Nullable(String)"),
        ({}, "map", "Nullable(String)"),
    ],
)
def test_a_column_is_the_widest_of_its_kind(value: Any, kind: str, column_type: str) -> None:
    [field] = undeclared_fields(CONFIG, sample({**KNOWN, "more": value}), steady=STEADY_EVENTS)
    found = proposed(field, ())
    assert (found.column, found.column_type) == ("more", column_type)
    assert found.type.startswith(kind.removesuffix("256"))


def test_a_column_has_a_name_that_no_other_field_fills() -> None:
    [field] = undeclared_fields(CONFIG, sample({**KNOWN, "address": {"city": "Ulm", "zip": "1"}}), steady=STEADY_EVENTS)
    assert proposed(field, ()).column == "address_city"
    assert proposed(field, {"address_city", "address_city_2"}).column == "address_city_3"


@pytest.mark.parametrize(
    ("event", "found"),
    [
        (KNOWN, []),
        ({"id": "a"}, [FieldConflict("n", "is missing or null in many events")]),
        ({"id": "a", "n": None}, [FieldConflict("n", "is missing or null in many events")]),
        ({"id": 5, "n": 1}, [FieldConflict("id", "is not of type string in many events")]),
        ({"id": "a", "n": 1.5}, [FieldConflict("n", "is not of type int in many events")]),
        ({"id": "a", "n": "1"}, [FieldConflict("n", "is not of type int in many events")]),
        ({"id": "a", "n": 3.0}, []),
        ({**KNOWN, "tags": [1]}, [FieldConflict("tags", "is not of type map in many events")]),
        ({**KNOWN, "free": [1]}, []),
    ],
)
def test_a_declared_field_that_many_events_lack_or_have_otherwise_is_told(
    event: dict[str, Any], found: list[FieldConflict]
) -> None:
    assert list(conflicts(CONFIG, sample(event))) == found
    assert list(conflicts(CONFIG, sample(event, times=STEADY_EVENTS - 1))) == []


def test_a_needed_field_that_the_schema_has_no_more_is_told_at_once() -> None:
    assert list(conflicts(CONFIG, sample({"id": "a"}, times=1, id=None))) == [
        FieldConflict("n", "is gone from the newest schema")
    ]


def test_a_field_of_the_key_is_neither_new_nor_in_conflict_with_the_values() -> None:
    of_key = SchemaField(name="_key.id", type="int")
    source = CONFIG.source.model_copy(update={"schema_fields": (*CONFIG.source.schema_fields, of_key)})
    config = CONFIG.model_copy(update={"sources": (source, *CONFIG.sources[1:])})
    events = sample({**KNOWN, "_key": {"id": "text"}, "_key.n": 1})
    assert list(conflicts(config, events)) == []
    assert undeclared_fields(config, events, steady=STEADY_EVENTS) == []
