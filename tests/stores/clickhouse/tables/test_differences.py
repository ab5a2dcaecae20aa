"""Differences between a definition and its table, as text, without a server."""

from collections.abc import Iterable
from typing import Any

import pytest

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.types import parse_written_type
from glassflow_dagster.stores.clickhouse.table import Column, Table
from glassflow_dagster.stores.clickhouse.tables.ddl import new_columns
from glassflow_dagster.stores.clickhouse.tables.differences import Difference, differences, notes_on_creation
from tests.definition.joins import joined
from tests.stores.clickhouse.definitions import sms_status

AS_DEFINED = {
    "sms_id": "String",
    "status": "LowCardinality(String)",
    "updated_at": "DateTime",
    "recipient": "String",
    "ingested_at": ("DateTime", "DEFAULT"),
}
ENGINE = "ReplacingMergeTree(ingested_at) PARTITION BY toYYYYMM(updated_at) ORDER BY sms_id SETTINGS x = 1"
OPTIONAL = {"recipient": {"required": False}}


def table(columns: dict[str, Any] | None = None, **changes: Any) -> Table:
    """Return the table that the definition would create, with changed columns or properties."""
    listed = AS_DEFINED | (columns or {})
    parsed = {}
    for name, kind in listed.items():
        text, default = kind if isinstance(kind, tuple) else (kind, "")
        if text:
            parsed[name] = Column(parse_written_type(text), default, text)
    described = {
        "engine": "ReplacingMergeTree",
        "engine_full": ENGINE,
        "sorting_key": "sms_id",
        "partition_key": "toYYYYMM(updated_at)",
        "ttl": False,
        "rows": 0,
    }
    return Table("d", "t", columns=parsed, **(described | changes))


def stopping(found: Iterable[Difference]) -> list[str]:
    """Return the differences that stop the pipeline."""
    return [str(difference) for difference in found if difference.stops]


def notes(found: Iterable[Difference]) -> list[str]:
    """Return the differences that are only warnings."""
    return [str(difference) for difference in found if not difference.stops]


def test_what_the_definition_would_make_does_not_differ() -> None:
    assert list(differences(sms_status(), table())) == []


def test_every_mismatch_stops_the_pipeline_with_path_and_remedy() -> None:
    found = differences(
        sms_status(),
        table({
            "sms_id": "",
            "sms_idd": ("String", "DEFAULT"),
            "status": "Nullable(UInt8)",
            "updated_at": ("DateTime", "MATERIALIZED"),
            "recipient": "",
        }),
    )  # fmt: skip
    assert stopping(found) == [
        (
            "sink.mapping[0].column_name: d.t has no column 'sms_id'; did you mean 'sms_idd'? Else add it with "
            "glassflow-dagster table FILE --diff --alter"
        ),
        (
            "sink.mapping[1].column_type: is LowCardinality(String), but column 'status' of d.t is Nullable(UInt8), "
            "which takes int or uint or int128 or uint128, and 'status' is string; map a field that fits it and write "
            "UInt8 here, or leave the column out of the mapping, and every row gets its default"
        ),
        (
            "sink.mapping[2].column_name: d.t computes column 'updated_at' itself (MATERIALIZED); "
            "remove it from the mapping"
        ),
        (
            "sink.mapping[3].column_name: d.t has no column 'recipient'; add it with glassflow-dagster table FILE "
            "--diff --alter"
        ),
    ]


def test_a_column_of_another_kind_comes_with_the_expression_that_fills_it() -> None:
    mapping = [{"name": "recipient", "column_name": "n", "column_type": "Int64"}]
    config = sms_status({"recipient": {"type": "int"}}, mapping=mapping, create_table=None)
    [found] = stopping(differences(config, table({"n": "Bool"})))
    assert "map an output of a stateless transform, recipient == 1, and write Bool here" in found


def test_a_flattened_nested_is_mapped_by_its_own_columns() -> None:
    mapping = [{"name": "recipient", "column_name": "ports", "column_type": "Array(Tuple(host String, port Int64))"}]
    columns = {"ports.host": "Array(String)", "ports.a b": "Array(Int64)", "port": "String"}
    config = sms_status({"recipient": {"type": "array"}}, mapping=mapping)
    [found] = [found for found in differences(config, table(columns)) if found.stops]
    assert str(found) == (
        "sink.mapping[0].column_name: d.t has 'ports' as a flattened Nested, whose columns are ports.host "
        "Array(String), ports.a b Array(Int64); map those in its place, from outputs of a stateless transform: "
        'map(recipient, .host), map(recipient, #["a b"])'
    )
    assert found.missing is None  # `table FILE --diff --alter` adds nothing


@pytest.mark.parametrize(
    ("kind", "nullable"),
    [
        ("SimpleAggregateFunction(max, Int64)", "SimpleAggregateFunction(max, Nullable(Int64))"),
        ("Int64", "Nullable(Int64)"),
    ],
)
def test_the_advice_for_null_is_in_the_columns_own_type(kind: str, nullable: str) -> None:
    mapping = [{"name": "recipient", "column_name": "n", "column_type": "Int64"}]
    config = sms_status({"recipient": {"type": "int", "required": False}}, mapping=mapping, create_table=None)
    [note] = [note for note in notes(differences(config, table({"n": kind}))) if "NULL" in note]
    assert note.endswith(f"so such a record becomes a dead letter; make the column {nullable}")


def test_a_note_on_null_is_none_for_a_column_that_no_field_fills() -> None:
    mapping = [{"name": "recipient", "column_name": "v", "column_type": "String"}]
    found = list(differences(sms_status(OPTIONAL, mapping=mapping), table({"v": "Dynamic(max_types=3)"})))
    [text] = [str(each) for each in found if "mapping[0]" in each.path]
    assert text == (
        "sink.mapping[0].column_type: is String, but column 'v' of d.t is Dynamic(max_types=3), which no field fills; "
        "leave the column out of the mapping, and every row gets its default"
    )


def test_what_storage_alone_decides_is_no_difference() -> None:
    columns = {"status": "Nullable(String)", "recipient": "LowCardinality(String)", "updated_at": "DateTime('UTC')"}
    assert list(differences(sms_status(), table(columns))) == []


def test_an_engine_that_forgets_tokens_stops_the_pipeline() -> None:
    [found] = stopping(differences(sms_status(create_table=None), table(engine="Memory", engine_full="Memory")))
    assert found.startswith("sink.table: d.t is a Memory table, which does not recognise a repeated insert")


def test_an_optional_field_whose_column_takes_no_null_is_a_note() -> None:
    [note] = notes(differences(sms_status(OPTIONAL), table()))
    assert note == (
        "sink.mapping[3].column_type: field 'recipient' (required: false) may be null, but column 'recipient' "
        "(String) accepts no NULL, so such a record becomes a dead letter; make the column Nullable(String)"
    )
    assert list(differences(sms_status(OPTIONAL), table({"recipient": "LowCardinality(Nullable(String))"}))) == []


@pytest.mark.parametrize(
    ("kind", "column", "noted"), [("array", "Array(Int8)", True), ("map", "Map(String, String)", False)]
)
def test_an_optional_array_is_refused_where_it_is_null_and_a_map_is_empty(kind: str, column: str, noted: bool) -> None:
    config = sms_status(
        {"recipient": {"required": False, "type": kind}},
        mapping=[{"name": "recipient", "column_name": "recipient", "column_type": column}],
    )
    found = [note for note in notes(differences(config, table({"recipient": column}))) if "NULL" in note]
    assert [note.endswith("make the field required, or fill a Nullable(String), which keeps the JSON text")
            for note in found] == [True] * noted  # fmt: skip


def test_kafkas_key_may_be_null_too() -> None:
    mapping = [{"name": "_key", "column_name": "recipient", "column_type": "String"}]
    [note] = (note for note in notes(differences(sms_status(mapping=mapping), table())) if "NULL" in note)
    assert "Kafka's key may be null" in note


def test_what_a_left_event_without_a_match_lacks_is_made_nullable_and_noted() -> None:
    mapping = [{"name": "lot_title", "column_name": "lot_title", "column_type": "String"}]
    config = PipelineConfig.model_validate(joined(join__type="left", sink__mapping=mapping))
    assert [column.type for column in new_columns(config)] == ["Nullable(String)"]
    [note] = (note for note in notes(differences(config, table({"lot_title": "String"}))) if "NULL" in note)
    assert note == (
        "sink.mapping[0].column_type: field 'lot_title' (right source of a join with type: left) may be null, but "
        "column 'lot_title' (String) accepts no NULL, so such a record becomes a dead letter; make the column "
        "Nullable(String)"
    )


def test_columns_that_nothing_fills_are_notes() -> None:
    columns = {
        "mine": "Nullable(Int8)", "yours": "Tuple(a String)", "ours": ("Int8", "ALIAS"),
        "state": "AggregateFunction(uniq, UInt64)",
    }  # fmt: skip
    assert notes(differences(sms_status(), table(columns))) == [
        (
            "sink.mapping: nothing fills column 'mine' (Nullable(Int8)) of d.t, which has no default: every row gets "
            "NULL; map a field to it, or ignore this note"
        ),
        (
            "sink.mapping: nothing fills column 'yours' (Tuple(a String)) of d.t, which has no default: every row "
            "gets the type's empty value; map a field to it, or ignore this note"
        ),
        (
            "sink.mapping: nothing fills column 'state' (AggregateFunction(uniq, UInt64)) of d.t, which has no "
            "default: every row gets the type's empty value; no field can fill it"
        ),
    ]


@pytest.mark.parametrize(
    ("column", "note"),
    [
        ("", "columns[0]: d.t has no column 'ingested_at'; add it with"),
        (
            ("DateTime64(3)", "DEFAULT"),
            "columns[0].type: is DateTime, but column 'ingested_at' of d.t is DateTime64(3)",
        ),
        ("DateTime", "columns[0].default: column 'ingested_at' of d.t has no default; give it one: DEFAULT now()"),
    ],
)
def test_create_tables_own_columns_are_notes(column: Any, note: str) -> None:
    [found] = notes(differences(sms_status(), table({"ingested_at": column})))
    assert found.startswith(f"sink.create_table.{note}")


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"sorting_key": "sms_id, status"}, "order_by: is sms_id, but d.t has sms_id, status; create_table does not"),
        ({"partition_key": ""}, "partition_by: is toYYYYMM(updated_at), but d.t has none"),
        ({"ttl": True}, "ttl: is none, but d.t has one"),
        (
            {"engine": "MergeTree", "engine_full": "MergeTree ORDER BY sms_id"},
            "engine: is ReplacingMergeTree(ingested_at), but d.t has MergeTree;",
        ),
    ],
)
def test_another_way_of_making_the_table_is_a_note(changes: dict[str, Any], note: str) -> None:
    [found] = notes(differences(sms_status(), table(**changes)))
    assert found.startswith(f"sink.create_table.{note}")
    # A property that the definition does not state cannot differ.
    assert list(differences(sms_status(create_table=None), table(**changes))) == []


def test_where_a_tables_parts_are_kept_is_no_difference_but_no_replicas_are() -> None:
    kept = "SharedReplacingMergeTree('/clickhouse/{uuid}', '{replica}', ingested_at) ORDER BY sms_id"
    assert list(differences(sms_status(), table(engine="SharedReplacingMergeTree", engine_full=kept))) == []
    how = {"engine": "ReplicatedMergeTree('/p', 'r')", "order_by": "tuple()"}
    plain = table(engine="MergeTree", engine_full="MergeTree ORDER BY tuple()", sorting_key="", partition_key="")
    [found] = notes(differences(sms_status(create_table=how), plain))
    assert "not replicated" in found


def test_an_optional_field_in_the_order_is_told_before_the_table_is_made() -> None:
    assert list(notes_on_creation(sms_status(OPTIONAL))) == []
    how = {"order_by": "(sms_id, recipient)"}
    [note] = notes(notes_on_creation(sms_status(OPTIONAL, create_table=how)))
    assert "dead letter; make the field required, or remove 'recipient' from create_table's clauses" in note


def test_an_alias_of_a_type_does_not_differ_from_it() -> None:
    columns = [{"name": "n", "type": "DECIMAL(9,2)"}, {"name": "t", "type": "datetime64(3)", "default": "now()"}]
    config = sms_status(create_table={"order_by": "sms_id", "columns": columns})
    actual = table({"n": "Decimal(9, 2)", "t": ("DateTime64(3)", "DEFAULT"), "ingested_at": ""})
    assert [str(found) for found in differences(config, actual) if ".columns[" in found.path] == []
