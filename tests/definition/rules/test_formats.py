"""The formats of values and keys: what is refused, and what an accepted definition means."""

import json
from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.nullable_names import nullable_names
from glassflow_dagster.definition.problems import DefinitionError
from tests.definition.changes import changed
from tests.support import definition as v3

RECORD = '{"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}'
MESSAGE = 'syntax = "proto3"; message Key { int64 id = 1; }'
REGISTRY = {"sources__0__schema_registry": {"url": "http://registry"}}
AVRO, PROTOBUF = {"sources__0__key_format": "avro"}, {"sources__0__key_format": "protobuf"}
NO_ID = {"wire_format": "none"}
DEFINITION = v3.definition(
    "customers",
    v3.source(
        "customers",
        [
            {"name": "name", "type": "string"},
            {"name": "_key.id", "type": "int64"},
            {"name": "_key.shop.code", "type": "string", "required": False},
        ],
        key_format="json",
    ),
    v3.sink({"name": "String", "_key.id": "Int64", "_key.shop.code": "Nullable(String)"}),
    v3.filter_transform("customers", '_key.id > 0 and (_key.shop.code ?? "") != "test" and _key contains "id"'),
    v3.dedup("customers", "_key.id", time_window="1h"),
)


def key_schema(**schema: str) -> dict[str, Any]:
    return {"sources__0__key_schema": schema}


def write(folder: Path, **changes: Any) -> Path:
    file = folder / "customers.json"
    file.write_text(json.dumps(changed(DEFINITION, **changes)))
    return file


ACCEPTED: list[tuple[dict[str, Any], tuple[bool, bool]]] = [
    ({}, (False, False)),
    (REGISTRY, (False, True)),
    (REGISTRY | key_schema(**NO_ID), (False, False)),
    (AVRO | REGISTRY, (True, True)),
    (AVRO | REGISTRY | key_schema(file=RECORD), (True, True)),
    (AVRO | REGISTRY | key_schema(file=RECORD, **NO_ID), (False, False)),
    (AVRO | key_schema(file=RECORD), (False, True)),
    (AVRO | key_schema(file=RECORD, **NO_ID), (False, False)),
    (PROTOBUF | REGISTRY | key_schema(message_type="shop.Key"), (True, True)),
    (PROTOBUF | REGISTRY | key_schema(file=MESSAGE, **NO_ID), (False, False)),
    (PROTOBUF | key_schema(file=MESSAGE, message_type="Key"), (False, True)),
]


@pytest.mark.parametrize(("changes", "expected"), ACCEPTED)
def test_keys_have_a_format_of_their_own(tmp_path: Path, changes: dict[str, Any], expected: tuple[bool, bool]) -> None:
    source = load_pipeline(write(tmp_path, **changes), {}).source
    assert source.key_encoding is not None
    assert (source.reads_registry, source.key_encoding.has_schema_id) == expected


REFUSED: list[tuple[dict[str, Any], str]] = [
    (
        {"sources__0__key_format": None},
        "sources[0].schema_fields[1].name: '_key.id' is a field of the record's key; add key_format: json, avro or",
    ),
    (
        {"sources__0__schema_fields__2__name": "_key."},
        "sources[0].schema_fields[2].name: '_key.' names no field of the key; write _key.NAME, or _key for all of it",
    ),
    ({"sources__0__key_format": "csv"}, "sources[0].key_format: must be 'json', 'avro' or 'protobuf'"),
    (
        {"sources__0__schema_fields": [{"name": "name", "type": "string"}]},
        "sources[0].key_format: no field is one of the key; declare one in schema_fields, such as _key.id, or",
    ),
    (
        {"sources__0__key_format": None, "sources__0__key_schema": {"file": RECORD}},
        "sources[0].key_schema: applies to key_format; add that, or remove it",
    ),
    (
        key_schema(file=RECORD),
        "sources[0].key_schema: format json has no schema; remove it, or add key_format: avro or",
    ),
    (key_schema(**NO_ID), "sources[0].key_schema: of JSON applies to a source with a schema_registry; remove it"),
    (AVRO, "sources[0].key_format: avro needs a schema; add key_schema.file or schema_registry"),
    (AVRO | REGISTRY | key_schema(**NO_ID), "sources[0].key_format: avro needs a schema; add key_schema.file"),
    (AVRO | key_schema(file='"string"'), "sources[0].key_schema.file: is not the schema of a record"),
    (AVRO | key_schema(file=RECORD, message_type="K"), "sources[0].key_schema.message_type: applies to protobuf only"),
    (
        PROTOBUF | REGISTRY | key_schema(file=MESSAGE),
        "sources[0].key_schema.file: each record of Protobuf has one schema; remove it",
    ),
    (
        {"transforms__1__config__key": "_key.shop.code"},
        "transforms[1].config.key: '_key.shop.code' is optional; a key must be present",
    ),
    (
        {"transforms__1__config__key": "_key.ids"},
        "transforms[1].config.key: '_key.ids' is not in schema_fields; did you",
    ),
    ({"transforms__0__config__expression": "_key.ids > 1"}, "transforms[0].config.expression: "),
]


@pytest.mark.parametrize(("changes", "problem"), REFUSED)
def test_what_does_not_fit_is_refused_with_a_remedy(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError) as raised:
        load_pipeline(write(tmp_path, **changes), {})
    found = [f"{each.path}: {each.text}" for each in raised.value.problems]
    assert any(each.startswith(problem) for each in found), found


def test_otlp_sources_have_no_fields_of_the_key(tmp_path: Path) -> None:
    source = {"type": "otlp.logs", "schema_fields": None, "key_format": "json", "key_schema": {"wire_format": "none"}}
    changes = {f"sources__0__{name}": value for name, value in source.items()}
    with pytest.raises(DefinitionError) as raised:
        load_pipeline(write(tmp_path, **changes, transforms=[], sink__mapping=[v3.mapping("body", "String")]), {})
    assert [f"{each.path}: {each.text}" for each in raised.value.problems] == [
        f"sources[0].{key}: otlp.logs has no fields of the key, only _key as a whole; remove it"
        for key in ("key_format", "key_schema")
    ]


def test_an_optional_field_of_the_key_has_a_nullable_column(tmp_path: Path) -> None:
    assert nullable_names(load_pipeline(write(tmp_path), {})).keys() == {"_key.shop.code", "_key"}


def test_with_a_registry_only_the_key_of_deduplication_is_required(tmp_path: Path) -> None:
    changes = AVRO | REGISTRY | {"transforms__1__config__key": "name"}
    config = load_pipeline(write(tmp_path, **changes), {})
    assert {field.name: field.needed for field in config.fields} == {
        "name": True, "_key.id": False, "_key.shop.code": False,
    }  # fmt: skip


def test_a_definition_without_fields_of_the_key_keeps_its_digest(tmp_path: Path) -> None:
    changes = {"sources__0__key_format": None, "sources__0__schema_fields": [{"name": "name", "type": "string"}],
               "transforms": [], "sink__mapping": [v3.mapping("name", "String")]}  # fmt: skip
    config = load_pipeline(write(tmp_path, **changes), {})
    assert not {"key_format", "key_schema"} & config.model_dump(mode="json")["sources"][0].keys()
    of_key = load_pipeline(write(tmp_path), {})
    assert of_key.digest != load_pipeline(write(tmp_path, **AVRO | REGISTRY), {}).digest
