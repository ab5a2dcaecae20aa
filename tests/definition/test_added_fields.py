"""The definition with fields that its pipeline took up."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from glassflow_dagster.definition.added_fields import AddedField, why_not_addable, with_added_fields, written_with
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.problems import DefinitionError
from tests.definition.changes import changed
from tests.definition.rules.test_sink import BASE

COLOUR = AddedField("colour", "string", "colour", "Nullable(String)")
CITY = AddedField("address.city", "string", "address_city", "Nullable(String)")
OUTPUTS = [{"expression": "id", "output_name": "id"}, {"expression": "n + 1", "output_name": "next"}]
STATELESS = [{"type": "stateless", "source_id": "events", "config": {"transforms": OUTPUTS}}]
EVOLVING = {"schema_evolution": "add_columns", "sink__routes": None}


def written(**changes: Any) -> dict[str, Any]:
    return changed(BASE, **EVOLVING, **changes)


def load(folder: Path, definition: dict[str, Any]) -> PipelineConfig:
    file = folder / "p.yaml"
    file.write_text(yaml.safe_dump(definition))
    return load_pipeline(file, {})


@pytest.mark.parametrize("changes", [{}, {"transforms": STATELESS}])
def test_the_definition_with_further_fields_is_that_of_a_file_with_them(
    tmp_path: Path, changes: dict[str, Any]
) -> None:
    config = load(tmp_path, written(**changes))
    effective = with_added_fields(config, [COLOUR, CITY])
    as_file = load(tmp_path, written_with(written(**changes), config, [COLOUR, CITY]))
    assert effective.digest == as_file.digest != config.digest
    # As any edit: batches before it may decide otherwise on their records.
    assert effective.digests == {effective.digest}


def test_what_the_file_declares_itself_is_the_files(tmp_path: Path) -> None:
    fields = [*BASE["sources"][0]["schema_fields"], {"name": "colour", "type": "string"}]
    definition = written(sources__0__schema_fields=fields)
    config = load(tmp_path, definition)
    assert with_added_fields(config, [COLOUR]) == config
    assert written_with(definition, config, [COLOUR]) == definition


def test_routes_without_a_mapping_of_their_own_get_the_column(tmp_path: Path) -> None:
    config = load(tmp_path, changed(BASE, schema_evolution="add_columns"))
    tables = with_added_fields(config, [COLOUR]).by_table
    assert [[mapping.column_name for mapping in table.sink.mapping] for table in tables] == [
        ["id", "colour"], ["id", "colour"], ["key"]
    ]  # fmt: skip


def test_a_mode_alone_changes_no_digest(tmp_path: Path) -> None:
    modes = ("ignore", "add_columns", "fail")
    assert len({load(tmp_path, {**written(), "schema_evolution": mode}).digest for mode in modes}) == 1


@pytest.mark.parametrize(
    ("changes", "field", "reason"),
    [
        ({}, COLOUR, ""),
        ({}, CITY, ""),
        ({"transforms": STATELESS}, CITY, ""),
        (
            {"transforms": STATELESS}, AddedField("a-b", "string", "a_b", "String"),
            "a stateless transform cannot name it",
        ),
        (
            {"transforms": STATELESS}, AddedField("nil", "string", "nil", "String"),
            "a stateless transform cannot name it",
        ),
        (
            {"transforms": STATELESS}, AddedField("next", "int", "next", "Int64"),
            "a stateless transform has an output of this name",
        ),
        (
            {"transforms": STATELESS}, AddedField("next.day", "int", "next_day", "Int64"),
            "a stateless transform has an output of this name",
        ),
        (
            {}, AddedField("id2", "string", "id", "String"),
            "sink.mapping[1].column_name: column 'id' is filled twice; keep one",
        ),
    ],
)  # fmt: skip
def test_a_field_that_has_no_way_to_the_table_is_refused(
    tmp_path: Path, changes: dict[str, Any], field: AddedField, reason: str
) -> None:
    assert why_not_addable(load(tmp_path, written(**changes)), field) == reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sources__0__format": "protobuf"}, "since the schema is in the definition, and changes with it; remove it"),
        ({"sources__0__format": "avro"}, "since the schema is in the definition, and changes with it; remove it"),
    ],
)
def test_where_new_fields_cannot_be_told_the_key_is_refused(
    tmp_path: Path, changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DefinitionError) as error:
        load(tmp_path, written(**changes))
    assert f"schema_evolution: add_columns has no effect here, since {reason}"[-60:] in str(error.value)
