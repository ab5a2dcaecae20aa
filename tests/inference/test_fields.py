"""The fields that are found in a sample of events."""

import json
import random
from typing import Any

import pytest

from glassflow_dagster.inference.fields import MAX_FIELDS, Field, Fields, collect_fields


def seen(*events: dict[str, Any]) -> dict[str, str]:
    """Return the kinds of the events' fields, with a question mark if optional."""
    return {field.name: field.kind + ("" if field.required else "?") for field in collect_fields(events).declared}


def only(*events: dict[str, Any]) -> Field:
    [field] = collect_fields(events).declared
    return field


def test_nested_objects_are_dotted_names_and_arrays_stay_whole() -> None:
    event = {"id": "a", "user": {"name": "n", "home": {"zip": 1}}, "tags": [{"a": 1}]}
    assert seen(event) == {"id": "string", "user.name": "string", "user.home.zip": "int", "tags": "array"}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, -5], "int"),
        ([2**53 + 1], "int"),
        ([2**63 - 1, -(2**63)], "int"),
        ([2**63, 0], "uint"),
        ([2**63, -1], "bigint"),
        ([2**64], "ubigint"),
        ([2**64, -1], "bigint"),
        ([2**256 - 1], "ubigint"),
        ([-(2**255)], "bigint"),
        ([2**256], "float"),
        ([2**255, -1], "float"),
        ([1, 2.5], "float"),
        ([1.0], "float"),
        ([True, False], "bool"),
        (["1"], "string"),
        ([[]], "array"),
        ([{}], "map"),
    ],
)
def test_the_values_decide_about_the_kind(values: list[Any], kind: str) -> None:
    assert seen(*({"f": value} for value in values)) == {"f": kind}


def test_a_field_that_is_missing_or_null_at_times_is_optional() -> None:
    field = only({"f": 1}, {"f": None}, {}, {})
    assert (field.required, field.missing, field.nulls, field.kind) == (False, 2, 1, "int")
    assert seen({"f": None}) == {"f": "string?"}


def test_of_several_types_the_most_frequent_counts() -> None:
    field = only({"f": "a"}, {"f": 1}, {"f": 2.5}, {"f": True})
    assert (field.kind, field.fitting, field.required) == ("float", [1, 2.5], True)
    assert field.types == {"number": 2, "string": 1, "bool": 1}


def test_where_most_events_have_an_object_the_others_lack_its_fields() -> None:
    events = [{"u": {"a": 1}}, {"u": {"a": 2}}, {"u": "x"}, {"u": None}, {}]
    found = collect_fields(events)
    assert [(field.name, field.missing) for field in found.declared] == [("u.a", 3)]
    assert found.not_objects == {"u": 1}
    # And where most values are not objects, the field has their kind.
    assert seen({"u": {"a": 1}}, {"u": "x"}, {"u": "y"}) == {"u": "string"}


def test_an_object_whose_keys_vary_is_a_map() -> None:
    generator = random.Random(7)
    varying = [{"counts": {f"user{generator.randrange(5000)}": 1 for _ in range(3)}} for _ in range(50)]
    assert seen(*varying) == {"counts": "map"}
    # Many keys that all events have in common are fields.
    wide = {"f": {f"k{number}": 1 for number in range(60)}}
    assert len(seen(wide, wide)) == 60


@pytest.mark.parametrize("inner", [{"x.y": 1}, {"": 1}, {}], ids=json.dumps)
def test_an_object_whose_fields_the_decoder_would_not_find_stays_whole(inner: dict[str, Any]) -> None:
    assert seen({"o": inner}) == {"o": "map"}
    assert seen({"p": {"o": inner, "z": 1}}) == {"p.o": "map", "p.z": "int"}
    assert seen({"a.b": {"c": 1}}) == {"a.b": "map"}


def test_a_literal_dotted_name_goes_before_the_path() -> None:
    field = only({"a.b": 1, "a": {"b": 2}}, {"a": {"b": 3}}, {"a": {"b": 4}, "a.b": 5})
    assert (field.name, field.values, field.required) == ("a.b", [1, 3, 5], True)


def test_what_a_definition_cannot_name_is_left_out() -> None:
    found = collect_fields([{"": 1, "${X}": 1, "\ud800": 1, "ok": 1}])
    assert [field.name for field in found.declared] == ["ok"]
    assert found.left_out == ("", "${X}", "\ud800")


def test_of_very_many_fields_the_most_frequent_are_kept_in_their_order() -> None:
    rare = {f"r{number}": 1 for number in range(MAX_FIELDS)}
    found = collect_fields([{"a": 1, **rare, "z": 1}, {"a": 1, "z": 1}])
    assert isinstance(found, Fields)
    names = [field.name for field in found.declared]
    assert (len(names), names[0], names[-1], len(found.left_out)) == (MAX_FIELDS, "a", "z", 2)
