"""The folder of definitions: all are valid, conversion changes nothing, and every part of the format is covered."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner
from pydantic import BaseModel, SecretStr

from glassflow_dagster.cli import main
from glassflow_dagster.definition.expressions.signatures import HELPERS
from glassflow_dagster.definition.formats.shapes import OlderDefinition
from glassflow_dagster.definition.load import convert_definition, load_pipeline, warnings
from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.definition.model.durations import format_duration
from glassflow_dagster.definition.model.join import OutputField
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.resources import TransformResources
from glassflow_dagster.definition.model.source import METADATA_FIELDS
from glassflow_dagster.definition.model.state import State
from glassflow_dagster.definition.model.types import FIELD_KINDS, parse_column_type
from glassflow_dagster.definition.schema import definition_schema
from tests.definitions.cases import CASES, FOLDER, VERSIONS, Case

NAMED = {"argnames": "case", "argvalues": CASES, "ids": lambda case: f"{case.version}-{case.name}"}
OLDER = [case for case in CASES if case.version != "v3"]
NEWER = [case for case in CASES if case.version == "v3"]

# Types that are written with Nullable and LowCardinality around them in the same way.
COLUMN_TYPES = {
    "Bool", "Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Float32", "Float64",
    "String", "FixedString", "UUID", "Enum8", "Enum16", "Date", "Date32", "DateTime", "DateTime64", "IPv4", "IPv6",
    "Decimal", "Decimal64", "Decimal256", "UInt256",
}  # fmt: skip
# Types that are covered without Nullable and LowCardinality.
OTHER_TYPES = {"Int128", "UInt128", "Int256", "Decimal32", "Decimal128", "Array", "Map", "Tuple", "JSON"}
LOW_CARDINALITIES = {
    "Int8", "Int16", "UInt16", "Float32", "String", "FixedString", "DateTime",
}  # fmt: skip
OUTPUT_TYPES = {"string", "int", "int64", "float64", "bool", "[]string"}

# Keys of the older formats that no definition covers: shared schema parts with keys of another part (a field's column
# where only its type is used), and extensions of v3.
LEFT_OUT = re.compile(
    r"""source\.topics\[\]\.(schema\.fields|schema_fields)\[\]\.(source_id|column_name|column_type)
    | sink\.mapping\[\]\.(source_id|type)
    | source\.connection_params\.(aws|oauth|settings)""",
    re.VERBOSE,
)


def test_there_are_definitions_of_every_version_in_both_notations_and_each_says_what_it_expects() -> None:
    assert len(CASES) >= 25
    notations = {(case.version, case.file.suffix) for case in CASES}
    assert notations == {(version, suffix) for version in VERSIONS for suffix in (".json", ".yaml")}
    names = [case.name for case in CASES]
    assert sorted(names) == sorted(file.stem for file in (FOLDER / "expected").iterdir())
    # All runs of a session share the names in ClickHouse and Kafka.
    places = [load_pipeline(case.file, case.environment) for case in CASES]
    for told in ("pipeline_id", "sink.full_table", "sink.connection_params.database"):
        found = [value_at(config, told) for config in places]
        assert len(set(map(str, found))) == len(found), told
    topics = [topic for config in places for source in config.sources for topic in source.topic_names]
    assert len(set(topics)) == len(topics)


def test_every_definition_is_valid() -> None:
    environment = {name: value for case in CASES for name, value in case.environment.items()}
    done = CliRunner().invoke(main, ["validate", *(str(case.file) for case in CASES)], env=environment)
    assert (done.exit_code, done.stdout) == (0, "")


@pytest.mark.parametrize(**NAMED)
def test_a_definition_means_what_its_format_says(case: Case) -> None:
    config = load_pipeline(case.file, case.environment)
    settings = case.sidecar.get("settings", {})
    assert {path: value_at(config, path) for path in settings} == settings
    found, expected = warnings(config), case.sidecar.get("warnings", [])
    assert len(found) == len(expected)
    assert all(text.startswith(beginning) for text, beginning in zip(found, expected, strict=True)), found


@pytest.mark.parametrize(**NAMED)
def test_a_converted_definition_is_the_same_pipeline(case: Case, tmp_path: Path) -> None:
    config = load_pipeline(case.file, case.environment)
    converted = tmp_path / "converted.yaml"
    converted.write_text(convert_definition(case.file, case.environment).yaml, encoding="utf-8")

    again = load_pipeline(converted, case.environment)

    assert again == config
    assert (again.digest, again.fingerprint) == (config.digest, config.fingerprint)
    assert convert_definition(converted, case.environment).yaml == converted.read_text(encoding="utf-8")
    # The conversion needs no variable and fills none in.
    assert convert_definition(case.file, {}).yaml == converted.read_text(encoding="utf-8")
    variables = set(re.findall(r"\$\{\w+", case.file.read_text(encoding="utf-8")))
    assert set(re.findall(r"\$\{\w+", converted.read_text(encoding="utf-8"))) == variables


@pytest.mark.parametrize("case", NEWER, ids=lambda case: case.name)
def test_the_published_schema_knows_the_definition(case: Case) -> None:
    # YAML reads times as timestamps, JSON has texts; null and empty texts are checked by the loader.
    written = json.loads(json.dumps(without_nulls(case.raw), default=str))
    found = jsonschema.Draft202012Validator(definition_schema()).iter_errors(written)
    assert [error.json_path for error in found] == []


def test_every_key_of_v3_is_in_a_definition() -> None:
    used = {path for case in NEWER for path in paths(case.raw)}
    # The topics of a pattern are known only where it runs: tests/e2e/test_topics.py. So is the store of a checkpoint:
    # tests/e2e/test_object_store.py.
    store = ["state", *(f"state.{key}" for key in State.model_fields)]
    assert set(schema_paths(definition_schema())) - used == {"sources[].topic_pattern", *store}


def test_every_key_of_the_older_formats_is_in_a_definition() -> None:
    used = {path for case in OLDER for path in paths(case.raw)}
    stage = ("replicas", "requests", "limits")
    known = {
        *schema_paths(OlderDefinition.model_json_schema()),
        *(f"source.connection_params.{key}" for key in KafkaConnection.model_fields),
        *(f"pipeline_resources.ingestor.{place}.{key}" for place in ("base", "left", "right") for key in stage),
        *(f"pipeline_resources.join.{key}" for key in stage),
        *(f"pipeline_resources.transform.{key}" for key in TransformResources.model_fields if key != "source_id"),
        *(f"pipeline_resources.sink.{key}" for key in stage),
        "pipeline_resources.nats.stream",
        "metadata.tags",
        *(f"join.fields[].{key}" for key in OutputField.model_fields),
        *(f"stateless_transformation.config.transform[].{key}" for key in ("expression", "output_name", "output_type")),
    }
    assert sorted(path for path in known - used if not LEFT_OUT.fullmatch(path)) == []


def test_every_word_of_the_format_is_in_a_definition() -> None:
    configs = [load_pipeline(case.file, case.environment) for case in CASES]
    types = [parse_column_type(mapping.column_type) for config in configs for mapping in config.sink.mapping]
    outputs = list(outputs_of(configs))
    expressions = " ".join(expression for expression, _ in outputs)

    assert FIELD_KINDS.keys() == {
        field.type for config in configs for source in config.sources for field in source.schema_fields
    }
    assert {kind.base.name for kind in types} == COLUMN_TYPES | OTHER_TYPES
    assert {kind.base.name for kind in types if kind.nullable} == COLUMN_TYPES
    assert {str(kind.base.name) for kind in types if kind.name == "LowCardinality"} >= LOW_CARDINALITIES
    assert {mapping.name for config in configs for mapping in config.sink.mapping} >= METADATA_FIELDS.keys()
    assert {kind for _, kind in outputs} >= OUTPUT_TYPES
    assert {name for name in HELPERS if re.search(rf"\b{name}\(", expressions)} == HELPERS.keys()


def test_every_kind_of_key_and_of_start_is_in_a_definition() -> None:
    configs = [load_pipeline(case.file, case.environment) for case in CASES]
    kinds = {config.source.schema_fields: config.dedup.key_fields for config in configs if config.dedup}
    keyed = {field.kind for fields, names in kinds.items() for field in fields if field.name in names}
    assert keyed == {"string", "int", "uint", "float", "bool"}
    assert any(len(names) > 1 for names in kinds.values())
    assert any(config.dedup is None for config in configs)
    starts = {str(config.source.start or config.source.consumer_group_initial_offset)[:4] for config in configs}
    assert starts == {"earl", "late", "comm", "2026"}


def value_at(config: PipelineConfig, path: str) -> Any:
    """Return the value at a path of attributes and indexes as a plain value."""
    found: Any = config
    for part in path.split("."):
        found = found[int(part)] if part.isdigit() else getattr(found, part)
    if isinstance(found, SecretStr):
        return found.get_secret_value()
    if isinstance(found, BaseModel):
        return found.model_dump()
    if isinstance(found, tuple):
        return list(found)
    return format_duration(found) if isinstance(found, timedelta) else found


def paths(part: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all keys of a definition; `[]` stands for the index of a list item."""
    if isinstance(part, dict):
        for key, value in part.items():
            inner = f"{path}.{key}" if path else str(key)
            yield inner
            yield from paths(value, inner)
    elif isinstance(part, list):
        for item in part:
            yield from paths(item, f"{path}[]")


def schema_paths(schema: dict[str, Any]) -> Iterator[str]:
    """Yield the paths of all keys that a JSON Schema allows, in the notation of `paths`."""
    parts = schema["$defs"]

    def walk(part: dict[str, Any], path: str) -> Iterator[str]:
        if "$ref" in part:
            yield from walk(parts[part["$ref"].rsplit("/", 1)[1]], path)
        for choice in (*part.get("anyOf", ()), *part.get("oneOf", ())):
            yield from walk(choice, path)
        if isinstance(part.get("items"), dict):
            yield from walk(part["items"], f"{path}[]")
        for key, value in part.get("properties", {}).items():
            inner = f"{path}.{key}" if path else key
            yield inner
            yield from walk(value, inner)

    yield from walk(schema, "")


def without_nulls(part: Any) -> Any:
    """Remove nulls, and empty texts except for keys where an empty text is a value."""
    if isinstance(part, list):
        return [without_nulls(item) for item in part]
    if not isinstance(part, dict):
        return part
    empty_is_a_value = ("default", "password", "version", "output_type")
    return {
        key: without_nulls(value)
        for key, value in part.items()
        if value is not None and (value != "" or key in empty_is_a_value)
    }


def outputs_of(configs: list[PipelineConfig]) -> Iterator[tuple[str, str]]:
    """Yield the expressions of all transforms with the types of their outputs."""
    for config in configs:
        for transform in config.transforms:
            if transform.type == "stateless":
                yield from ((output.expression, output.output_type) for output in transform.config.transforms)
