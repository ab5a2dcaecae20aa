"""OTLP sources in definitions: GlassFlow's own with a topic added, and what is refused."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from glassflow_dagster.definition.load import convert_definition, load_content, load_pipeline, warnings
from glassflow_dagster.definition.model.otlp import FIELDS
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.problems import DefinitionError
from tests.definition.changes import changed
from tests.support import definition as v3

TRACES = {"type": "otlp.traces", "source_id": "spans", "topic": "spans", "connection_params": {"brokers": ["b:9092"]}}
DEFINITION = v3.definition(
    "otlp-spans",
    TRACES,
    v3.sink({"trace_id": "String", "duration_ns": "UInt64", "events": "String"}),
    v3.dedup("spans", "span_id", time_window="1h"),
)


def write(folder: Path, **changes: Any) -> Path:
    file = folder / "otlp.json"
    file.write_text(json.dumps(changed(DEFINITION, **changes)))
    return file


def problems(folder: Path, **changes: Any) -> list[str]:
    with pytest.raises(DefinitionError) as raised:
        load_pipeline(write(folder, **changes), {})
    return [f"{problem.path}: {problem.text}" for problem in raised.value.problems]


@pytest.mark.parametrize("signal", FIELDS)
def test_the_fields_follow_from_the_type_in_any_case(tmp_path: Path, signal: str) -> None:
    name, kind = FIELDS[signal][0]
    mapping = [v3.mapping(name, "String"), v3.mapping("attributes", "Map(String, String)")]
    changes = {"sources__0__type": f"OTLP.{signal.title()}", "sink__mapping": mapping, "transforms": []}
    config = load_pipeline(write(tmp_path, **changes), {})
    source = config.source
    assert (source.type, source.signal, source.format) == (f"otlp.{signal}", signal, "otlp_proto")
    assert [(field.name, field.type) for field in source.schema_fields] == list(FIELDS[signal])
    assert (source.schema_fields[0].kind, len(source.schema_fields)) == (kind, 14 if signal == "logs" else 22)
    # What a driver is sent, and keeps, means the same.
    again = load_content(config.content, {})
    assert (again.digest, again.source) == (config.digest, source)
    assert load_content(config.model_dump(mode="json", by_alias=True), {}).digest == config.digest


def test_attributes_that_a_mapping_or_a_key_names_are_fields(tmp_path: Path) -> None:
    mapping = [v3.mapping("resource_attributes.service.name", "String", "service")]
    route = {"table": "r", "filter": "true", "mapping": [v3.mapping("attributes.http.method", "String")]}
    changes = {"sink__mapping": mapping, "sink__routes": [route], "transforms__0__config__key": "attributes.id"}
    config = load_pipeline(write(tmp_path, **changes), {})
    added = config.source.schema_fields[len(FIELDS["traces"]) :]
    assert [(field.name, field.type, field.default) for field in added] == [
        (name, "string", "") for name in ("resource_attributes.service.name", "attributes.http.method", "attributes.id")
    ]
    # An empty text in an event without it.
    assert [(field.name, field.needed, field.default) for field in config.fields if field.name == "attributes.id"] == [
        ("attributes.id", False, "")
    ]


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        ("span_id", ["span_id"]),
        ('{"trace_id":trace_id,"span_id":span_id}', ["trace_id", "span_id"]),
        ("{ trace_id , span_id }", ["trace_id", "span_id"]),
        ("[trace_id,span_id]", ["trace_id", "span_id"]),
        ('{"s":resource_attributes.service\\.name,"n":name}', ["resource_attributes.service.name", "name"]),
        ("{span_id}", ["span_id"]),
        ("duration_ns", ["duration_ns"]),
    ],
)
def test_a_key_may_be_a_path_of_glassflow_to_several_fields(tmp_path: Path, key: str, fields: Sequence[str]) -> None:
    config = load_pipeline(write(tmp_path, transforms__0__config__key=key), {})
    assert config.dedup
    assert list(config.dedup.key_fields) == fields
    assert all(field.needed for field in config.fields if field.name in fields and "." not in field.name)


def test_a_field_that_only_some_metrics_have_may_be_a_key(tmp_path: Path) -> None:
    mapping = [v3.mapping("value_int", "Int64")]
    changes = {"sources__0__type": "otlp.metrics", "transforms__0__config__key": "value_int", "sink__mapping": mapping}
    config = load_pipeline(write(tmp_path, **changes), {})
    assert [field.needed for field in config.fields if field.name in ("value_int", "sum")] == [True, False]


def test_a_missing_connection_is_that_of_the_environment(tmp_path: Path) -> None:
    """As GlassFlow's definitions have none."""
    file = write(tmp_path, sources__0__connection_params=None)
    assert load_pipeline(file, {"GLASSFLOW_KAFKA_BROKERS": "a:1,b:2"}).connection.brokers == ("a:1", "b:2")
    kafka = json.dumps({"kafka": {"brokers": ["c:3"]}})
    assert load_pipeline(file, {"GLASSFLOW_CONNECTIONS": kafka}).connection.brokers == ("c:3",)


def test_conversion_adds_nothing(tmp_path: Path) -> None:
    assert convert_definition(write(tmp_path), {}).definition == DEFINITION


KAFKA = v3.source("other", v3.fields(id="string"))
MISSING = "is missing: OTLP requests are read from Kafka;"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"sources__0__topic": None}, f"sources[0].topic: {MISSING} add the topic that OpenTelemetry's collector"),
        ({"sources__0__connection_params": None}, f"sources[0].connection_params: {MISSING} add it, or set GLASSFLOW_"),
        (
            {"sources__0__schema_fields": v3.fields(id="string")},
            "sources[0].schema_fields: the fields of otlp.traces are fixed; remove them",
        ),
        (
            {"sources__0__schema_registry": {"url": "http://r:1"}},
            "sources[0].schema_registry: otlp.traces has no schema; remove it",
        ),
        ({"sources__0__schema": {"file": "x"}}, "sources[0].schema: otlp.traces has no schema; remove it"),
        ({"sources__0__format": "json"}, "sources[0].format: otlp.traces has the formats otlp_proto and otlp_json"),
        ({"sources": [TRACES, {**TRACES, "source_id": "b"}]}, "sources: at most one OTLP source is possible; keep one"),
        ({"sources": [TRACES, KAFKA]}, "sources: kafka and OTLP sources cannot be combined; keep one of them"),
        (
            {"resources": {"sources": [{"source_id": "spans", "replicas": 2}]}},
            "resources.sources[0]: OTLP sources have no resources of their own; remove it",
        ),
        (
            {"transforms__0__config__key": '{"a":trace_id.#}'},
            "transforms[0].config.key: '{\"a\":trace_id.#}' is no field",
        ),
        ({"transforms__0__config__key": "links"}, "transforms[0].config.key: 'links' is array; a key is a string"),
        ({"sink__mapping__0__name": "traceid"}, "sink.mapping[0].name: 'traceid' is no field of otlp.traces; did you"),
    ],
)
def test_what_is_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    found, *_ = problems(tmp_path, **changes)
    assert found.startswith(problem)


def test_a_join_is_refused(tmp_path: Path) -> None:
    side = {"source_id": "spans", "key": "trace_id", "time_window": "1h"}
    join = {"enabled": True, "type": "temporal", "id": "j", "left_source": side, "right_source": side,
            "output_fields": [{"source_id": "spans", "name": "trace_id"}]}  # fmt: skip
    assert "join: is not possible with an OTLP source; remove it" in problems(tmp_path, join=join)


def test_the_formats_are_of_otlp_sources_only(tmp_path: Path) -> None:
    changes = {"sources__0": v3.source("spans", v3.fields(trace_id="string"), format="otlp_json"), "transforms": []}
    [problem] = problems(tmp_path, sink__mapping=[v3.mapping("trace_id", "String")], **changes)
    assert problem == (
        "sources[0].format: otlp_json is of OTLP sources; use the type otlp.logs, otlp.metrics, otlp.traces"
    )


def test_a_stored_definition_keeps_the_fields_that_its_version_had(tmp_path: Path) -> None:
    """An open batch is finished with them, also by a later version that knows further fields."""
    content = load_pipeline(write(tmp_path), {}).content
    content["sources"][0]["schema_fields"].remove({"name": "links", "type": "array"})

    stored = load_content(content, {})

    assert "links" not in {field.name for field in stored.source.schema_fields}
    assert stored.content == content
    assert PipelineConfig.model_validate(content) == stored


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("parent_span_id == nil", "parent_span_id"),
        ("nil != trace_id", "trace_id"),
        ('(status_message ?? "x") == "x"', "status_message"),
        ('parent_span_id == ""', None),
        ('attributes["span_id"] == nil && attributes.span_id == nil', None),
    ],
)
def test_a_comparison_of_a_text_with_nil_is_a_warning(tmp_path: Path, expression: str, name: str | None) -> None:
    """GlassFlow omits empty texts."""
    outputs = [{"output_name": "trace_id", "expression": expression, "output_type": "bool"}]
    for transform, path in (
        ({"type": "filter", "config": {"expression": expression}}, "transforms[0].config.expression"),
        ({"type": "stateless", "config": {"transforms": outputs}}, "transforms[0].config.transforms[0].expression"),
    ):
        changes = {"transforms": [{**transform, "source_id": "spans"}]}
        changes["sink__mapping"] = [v3.mapping("trace_id", "Bool" if "bool" in str(transform) else "String")]
        found = warnings(load_pipeline(write(tmp_path, **changes), {}))
        expected = f'Compare it with "": {name} == ""'
        assert [text.split(": ", 1)[0] for text in found] == ([path] if name else [])
        assert all(text.endswith(expected) for text in found)
