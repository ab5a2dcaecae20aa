"""Definitions in GlassFlow's older formats: their meaning in v3, and the positions at which errors are reported."""

import base64
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from glassflow_dagster.cli import main
from glassflow_dagster.definition.formats.rewrite import is_older, rewrite
from glassflow_dagster.definition.formats.shapes import check_shape
from glassflow_dagster.definition.load import convert_definition, load_pipeline, warnings
from glassflow_dagster.definition.problems import DefinitionError
from glassflow_dagster.definition.stages import plan_stages
from glassflow_dagster.driver import jvm
from glassflow_dagster.stream.spark import without_pandas
from tests.definition.changes import changed

# From the article that introduced GlassFlow's deduplication: no version, mapping, protocol or mechanism.
ARTICLE: dict[str, Any] = {
    "pipeline_id": "sms-status-dedup",
    "source": {
        "type": "kafka",
        "connection_params": {"brokers": ["kafka:9092"]},
        "topics": [
            {
                "name": "sms_status_events",
                "schema": {
                    "type": "json",
                    "fields": [
                        {"name": "sms_id", "type": "string"},
                        {"name": "status", "type": "string"},
                        {"name": "updated_at", "type": "string"},
                        {"name": "recipient", "type": "string"},
                    ],
                },
                "deduplication": {
                    "enabled": True,
                    "id_field": "sms_id",
                    "id_field_type": "string",
                    "time_window": "5m",
                },
            }
        ],
    },
    "sink": {
        "type": "clickhouse",
        "host": "clickhouse-server",
        "port": 9000,
        "database": "analytics",
        "table": "sms_statuses_latest",
        "username": "default",
        "password": "",
        "max_batch_size": 10000,
        "max_delay_time": "1s",
    },
}
V1: dict[str, Any] = {
    "pipeline_id": "meter-readings-v1",
    "source": {
        "type": "kafka",
        "provider": "confluent",
        "connection_params": {
            "brokers": ["kafka.energy.test:9092"],
            "protocol": "SASL_PLAINTEXT",
            "mechanism": "PLAIN",
            "username": "etl",
            "password": "not-a-real-secret",
        },
        "topics": [
            {
                "name": "meter_readings",
                "consumer_group_initial_offset": "earliest",
                "replicas": 1,
                "schema": {
                    "type": "json",
                    "fields": [
                        {"name": "reading_id", "type": "string"},
                        {"name": "kwh", "type": "float64"},
                        {"name": "read_at", "type": "string"},
                    ],
                },
                "deduplication": {
                    "enabled": True,
                    "id_field": "reading_id",
                    "id_field_type": "string",
                    "time_window": "12h",
                },
            }
        ],
    },
    "join": {"enabled": False},
    "sink": {
        "type": "clickhouse",
        "provider": "self-hosted",
        "host": "ch.energy.test",
        "port": "9000",
        "http_port": "8123",
        "database": "grid",
        "username": "writer",
        "password": "bm90LWEtcmVhbC1zZWNyZXQ=",
        "secure": False,
        "table": "meter_readings",
        "max_batch_size": 10000,
        "max_delay_time": "10s",
        "table_mapping": [
            {
                "source_id": "meter_readings",
                "field_name": "reading_id",
                "column_name": "reading_id",
                "column_type": "UUID",
            },
            {"source_id": "meter_readings", "field_name": "kwh", "column_name": "kwh", "column_type": "Float64"},
            {"source_id": "meter_readings", "field_name": "read_at", "column_name": "at", "column_type": "DateTime"},
        ],
    },
}
V2: dict[str, Any] = {
    "version": "v2",
    "pipeline_id": "ride-fares-v2",
    "name": "Rides with fares",
    "source": {
        "type": "kafka",
        "connection_params": {"brokers": ["kafka.city.test:9092"], "protocol": "PLAINTEXT", "mechanism": "NO_AUTH"},
        "topics": [
            {
                "id": "rides",
                "name": "city.rides",
                "consumer_group_initial_offset": "latest",
                "replicas": 2,
                "deduplication": {
                    "enabled": True,
                    "key": "ride_id",
                    "id_field_type": "string",
                    "time_window": "1h",
                },
            },
        ],
    },
    "join": {"enabled": False},
    "filter": {"enabled": False, "expression": ""},
    "schema": {
        "fields": [
            {
                "source_id": "rides",
                "name": "ride_id",
                "type": "string",
                "column_name": "ride",
                "column_type": "UUID",
            },
            {"source_id": "rides", "name": "km", "type": "float64", "column_name": "km", "column_type": "Float64"},
            {"source_id": "rides", "name": "note", "type": "string"},
        ]
    },
    "sink": {
        "type": "clickhouse",
        "connection_params": {
            "host": "ch.city.test",
            "port": "9440",
            "database": "mobility",
            "username": "writer",
            "password": "bm90LWEtcmVhbC1zZWNyZXQ=",
            "secure": True,
        },
        "table": "rides",
        "max_batch_size": 5000,
        "max_delay_time": "30s",
    },
    "pipeline_resources": {"ingestor": {"base": {"replicas": 2}}, "sink": {"replicas": 1}},
    "metadata": {"tags": ["mobility"]},
}
JOIN: dict[str, Any] = {
    **V2,
    "source": {
        **V2["source"],
        "topics": [
            *V2["source"]["topics"],
            {"name": "fares", "replicas": 1, "deduplication": {"enabled": False}},
        ],
    },
    "join": {
        "enabled": True,
        "type": "temporal",
        "sources": [
            {"source_id": "fares", "join_key": "ride_id", "time_window": "2h", "orientation": "right"},
            {"source_id": "rides", "join_key": "ride_id", "time_window": "30m", "orientation": "left"},
        ],
    },
    "schema": {
        "fields": [
            *V2["schema"]["fields"],
            {"source_id": "fares", "name": "ride_id", "type": "string"},
            {
                "source_id": "fares",
                "name": "amount",
                "type": "float64",
                "column_name": "fare",
                "column_type": "Float64",
            },
        ]
    },
}
JOIN_BY_NAMES = changed(
    JOIN,
    schema=None,
    source__topics__0__schema_fields=[{"name": "ride_id", "type": "string"}, {"name": "km", "type": "float64"}],
    source__topics__1__schema_fields=[{"name": "ride_id", "type": "string"}, {"name": "amount", "type": "float64"}],
    join__id="rides-with-fares",
    join__fields=[
        {"source_id": "rides", "name": "ride_id", "output_name": "ride"},
        {"source_id": "fares", "name": "amount", "output_name": "fare"},
    ],
    sink__mapping=[
        {"name": "ride", "column_name": "ride_id", "column_type": "UUID"},
        {"name": "fare", "column_name": "amount", "column_type": "Float64"},
    ],
)


def write(folder: Path, definition: dict[str, Any], name: str = "old.json") -> Path:
    file = folder / name
    file.write_text(json.dumps(definition), encoding="utf-8")
    return file


def v3(definition: dict[str, Any]) -> dict[str, Any]:
    check_shape(definition)
    found = rewrite(definition)
    assert found.problems == ()
    return found.definition


def mapping(*names: str) -> list[dict[str, str]]:
    return [
        {"source_id": "sms_status_events", "field_name": n, "column_name": n, "column_type": "string"} for n in names
    ]


def test_formats_are_told_apart_by_content() -> None:
    assert [is_older(d) for d in (ARTICLE, V1, V2, JOIN)] == [True] * 4
    assert is_older({"version": "v1"})
    assert is_older({"version": "2.0.0"})
    assert is_older({"version": "", "source": {}})
    assert not is_older({"version": "v3", "source": {}})
    assert not is_older({"sources": []})
    assert not is_older({"sources": [], "source": {}})


def test_a_v1_definition_has_its_v3_form(tmp_path: Path) -> None:
    config = load_pipeline(write(tmp_path, V1), {})
    assert (config.pipeline_id, config.source.source_id, config.source.topic) == (
        "meter-readings-v1", "meter_readings", "meter_readings",
    )  # fmt: skip
    assert config.source.connection_params.mechanism == "PLAIN"
    assert config.source.connection_params.password
    assert config.source.connection_params.password.get_secret_value() == "not-a-real-secret"
    assert [(f.name, f.type) for f in config.source.schema_fields] == [
        ("reading_id", "string"), ("kwh", "float64"), ("read_at", "string"),
    ]  # fmt: skip
    assert config.dedup
    assert (config.dedup.key_fields, config.dedup.time_window.total_seconds()) == (("reading_id",), 12 * 3600)
    connection = config.sink.connection_params
    assert (connection.host, connection.http, connection.database) == ("ch.energy.test", 8123, "grid")
    assert connection.password.get_secret_value() == "not-a-real-secret"
    assert config.sink.max_batch_size == 10000
    assert [(m.name, m.column_name, m.column_type) for m in config.sink.mapping] == [
        ("reading_id", "reading_id", "UUID"), ("kwh", "kwh", "Float64"), ("read_at", "at", "DateTime"),
    ]  # fmt: skip
    assert warnings(config) == []


def test_a_v2_definition_has_its_v3_form(tmp_path: Path) -> None:
    config = load_pipeline(write(tmp_path, V2), {})
    assert (config.source.source_id, config.source.topic) == ("rides", "city.rides")
    assert config.source.consumer_group_initial_offset == "latest"
    assert [f.name for f in config.source.schema_fields] == ["ride_id", "km", "note"]
    assert [(m.name, m.column_name) for m in config.sink.mapping] == [("ride_id", "ride"), ("km", "km")]
    assert config.dedup
    assert config.dedup.key_fields == ("ride_id",)
    assert config.sink.connection_params.http == 8443
    assert config.sink.connection_params.password.get_secret_value() == "not-a-real-secret"
    assert config.metadata.tags == ("mobility",)
    assert config.resources
    assert config.resources.model_dump(exclude_defaults=True) == {
        "sources": ({"source_id": "rides", "replicas": 2},),
        "sink": {"replicas": 1},
    }


def test_the_article_needs_nothing_but_a_mapping(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError) as raised:
        load_pipeline(write(tmp_path, ARTICLE), {})
    [line] = str(raised.value).splitlines()
    assert "sink.table_mapping: is missing, so no column would be filled; add a list" in line
    assert '"field_name": "sms_id", "column_name": "sms_id"' in line
    assert "(fields: sms_id, status, updated_at, recipient)" in line
    config = load_pipeline(write(tmp_path, changed(ARTICLE, sink__table_mapping=mapping("sms_id", "status"))), {})
    assert config.sink.connection_params.password.get_secret_value() == ""
    assert config.sink.connection_params.http == 8123
    assert [m.column_type for m in config.sink.mapping] == ["String", "String"]


def test_yaml_is_read_as_json_is(tmp_path: Path) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(yaml.safe_dump(V1))
    assert load_pipeline(file, {}) == load_pipeline(write(tmp_path, V1), {})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("uuid", "UUID"),
        ("datetime", "DateTime"),
        ("lowcardinality(nullable(string))", "LowCardinality(Nullable(String))"),
        ("enum8('string' = 1)", "Enum8('string' = 1)"),
        ("DateTime64(3)", "DateTime64(3)"),
    ],
)
def test_column_types_in_lower_case_are_the_usual_ones(old: str, new: str) -> None:
    definition = v3(changed(V1, sink__table_mapping__0__column_type=old))
    assert definition["sink"]["mapping"][0]["column_type"] == new


def test_the_latest_v2_names_fields_and_columns_as_v3_does(tmp_path: Path) -> None:
    late = changed(V1, version="v2", source__topics__0__schema=None, sink__table_mapping=None)
    late["source"]["topics"][0]["schema_fields"] = V1["source"]["topics"][0]["schema"]["fields"]
    late["sink"]["mapping"] = [
        {"name": m["field_name"], **{k: m[k] for k in ("column_name", "column_type")}}
        for m in V1["sink"]["table_mapping"]
    ]
    assert load_pipeline(write(tmp_path, late), {}) == load_pipeline(write(tmp_path, V1), {})


def test_a_mapping_may_be_repeated_but_not_contradicted() -> None:
    repeated = [{k: f[k] for k in ("name", "column_name", "column_type")} for f in V2["schema"]["fields"][:2]]
    assert v3(changed(V2, sink__mapping=repeated)) == v3(V2)
    assert [p.path for p in rewrite(changed(V2, sink__mapping=repeated[:1])).problems] == ["schema.fields"]


def test_deduplication_that_is_off_or_left_out_is_none() -> None:
    for off in ({"enabled": False}, {"enabled": False, "id_field": "x", "time_window": ""}, {}):
        assert "transforms" not in v3(changed(V1, source__topics__0__deduplication=off))
    assert "transforms" not in v3(changed(V1, source__topics__0__deduplication=None))


def test_a_filter_that_dropped_what_matches_keeps_the_rest() -> None:
    definition = v3({**V1, "filter": {"enabled": True, "expression": "kwh < 0 or reading_id == ''"}})
    assert definition["transforms"][0] == {
        "type": "filter",
        "source_id": "meter_readings",
        "config": {"expression": "not (kwh < 0 or reading_id == '')"},
    }
    assert [t["type"] for t in definition["transforms"]] == ["filter", "dedup"]


def test_a_comment_in_a_filter_does_not_swallow_the_parenthesis() -> None:
    definition = v3({**V1, "filter": {"enabled": True, "expression": "kwh < 0 // broken meters"}})
    assert definition["transforms"][0]["config"]["expression"] == "not (kwh < 0 // broken meters\n)"


def test_expressions_become_a_stateless_transform_after_dedup() -> None:
    outputs = [{"expression": "upper(note)", "output_name": "note_up", "output_type": "string"}]
    old = changed(V2, schema__fields__2={"source_id": "shout", "name": "note_up", "type": "string",
                                         "column_name": "note", "column_type": "String"})  # fmt: skip
    old["stateless_transformation"] = {
        "enabled": True,
        "id": "shout",
        "type": "expr_lang_transform",
        "source_id": "rides",
        "config": {"transform": outputs},
    }
    definition = v3(old)
    assert definition["transforms"][1] == {
        "type": "stateless", "source_id": "rides", "config": {"transforms": outputs},
    }  # fmt: skip
    assert [f["name"] for f in definition["sources"][0]["schema_fields"]] == ["ride_id", "km", "note"]
    assert definition["sources"][0]["schema_fields"][2] == {"name": "note", "type": "any", "required": False}
    assert definition["sink"]["mapping"][2] == {"name": "note_up", "column_name": "note", "column_type": "String"}


@pytest.mark.parametrize(
    ("expression", "added"),
    [
        ("kwh < 0 and site.name == 'x'", ["site"]),
        ("any(tags, .name == kwh) or any(tags, # in banned)", ["tags", "banned"]),
        ("tariff == nil or tariff > ${LIMIT}", ["tariff"]),
        ("kwh < 0 and _partition == 1", []),
    ],
)
def test_a_field_that_only_an_expression_names_is_any_value_and_a_warning(
    expression: str, added: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "old.json"
    file.write_text(json.dumps({**V1, "filter": {"enabled": True, "expression": expression}}), encoding="utf-8")
    fields = load_pipeline(file, {"LIMIT": "3"}).source.fields
    assert [(f.name, f.kind, f.needed) for f in fields[3:]] == [(name, "any", False) for name in added]
    told = [text for text in convert_definition(file, {}).warnings if text.startswith("filter.expression")]
    assert [text.split(": ")[1].split(" ")[0] for text in told] == [repr(name) for name in added]
    assert load_pipeline(file, {"LIMIT": "3"}).origin.rewriting_warnings == tuple(told)


def test_a_slip_in_an_expression_is_a_warning_with_the_name_that_was_meant(tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text(json.dumps({**V1, "filter": {"enabled": True, "expression": "kwhh < 0"}}), encoding="utf-8")
    done = CliRunner().invoke(main, ["validate", str(file)])
    assert done.exit_code == 0
    assert "warning: filter.expression: 'kwhh' is not declared" in done.output
    assert "did you mean 'kwh'?" in done.output


def test_a_switched_off_expression_declares_nothing() -> None:
    definition = v3({**V1, "filter": {"enabled": False, "expression": "kwhh < 0"}})
    assert [field["name"] for field in definition["sources"][0]["schema_fields"]] == ["reading_id", "kwh", "read_at"]


def test_a_join_names_its_output_by_columns() -> None:
    definition = v3(JOIN)
    assert definition["join"] == {
        "enabled": True,
        "type": "temporal",
        "left_source": {"source_id": "rides", "key": "ride_id", "time_window": "30m"},
        "right_source": {"source_id": "fares", "key": "ride_id", "time_window": "2h"},
        "output_fields": [
            {"source_id": "rides", "name": "ride_id", "output_name": "ride"},
            {"source_id": "rides", "name": "km", "output_name": "km"},
            {"source_id": "fares", "name": "amount", "output_name": "fare"},
        ],
    }
    assert [m["name"] for m in definition["sink"]["mapping"]] == ["ride", "km", "fare"]
    assert [s["source_id"] for s in definition["sources"]] == ["rides", "fares"]
    assert [[f["name"] for f in s["schema_fields"]] for s in definition["sources"]] == [
        ["ride_id", "km", "note"], ["ride_id", "amount"],
    ]  # fmt: skip


def test_a_join_has_its_v3_form(tmp_path: Path) -> None:
    config = load_pipeline(write(tmp_path, JOIN), {})
    assert config.topics[:2] == ("city.rides", "fares")
    assert config.join
    assert (config.join.id, config.join.keeps_unmatched, config.join.match, config.join.clock) == (
        "join", False, "latest", "processing",
    )  # fmt: skip
    assert [(side.source_id, side.key_fields, side.time_window.total_seconds()) for side in config.join.sides] == [
        ("rides", ("ride_id",), 1800), ("fares", ("ride_id",), 7200),
    ]  # fmt: skip
    assert [config.dedup_of(source) is not None for source in config.inputs] == [True, False]
    assert [(m.name, m.column_name) for m in config.sink.mapping] == [("ride", "ride"), ("km", "km"), ("fare", "fare")]


def test_a_join_of_v1_names_its_output_by_the_table_mapping(tmp_path: Path) -> None:
    old = changed(JOIN, version="v1", schema=None)
    for topic, fields in zip(old["source"]["topics"], ([0, 1, 2], [3, 4]), strict=True):
        declared = [{key: JOIN["schema"]["fields"][i][key] for key in ("name", "type")} for i in fields]
        topic["schema"] = {"type": "json", "fields": declared}
    old["sink"]["table_mapping"] = [
        {"source_id": f["source_id"], "field_name": f["name"], **{k: f[k] for k in ("column_name", "column_type")}}
        for f in JOIN["schema"]["fields"]
        if "column_name" in f
    ]
    assert load_pipeline(write(tmp_path, old), {}) == load_pipeline(write(tmp_path, JOIN), {})


def test_one_field_may_fill_two_columns_of_a_join(tmp_path: Path) -> None:
    twice = {**JOIN["schema"]["fields"][0], "column_name": "ride_text", "column_type": "String"}
    old = changed(JOIN, schema__fields=[*JOIN["schema"]["fields"], twice])
    config = load_pipeline(write(tmp_path, old), {})
    assert config.join
    assert [(o.name, o.joined_name) for o in config.join.output_fields if o.source_id == "rides"] == [
        ("ride_id", "ride"), ("km", "km"), ("ride_id", "ride_text"),
    ]  # fmt: skip
    assert [f.name for f in config.source.schema_fields] == ["ride_id", "km", "note"]


def test_the_latest_v2_names_what_a_join_puts_out(tmp_path: Path) -> None:
    config = load_pipeline(write(tmp_path, JOIN_BY_NAMES), {})
    assert config.join
    assert config.join.id == "rides-with-fares"
    assert [output.joined_name for output in config.join.output_fields] == ["ride", "fare"]
    assert [mapping.name for mapping in config.sink.mapping] == ["ride", "fare"]


@pytest.mark.parametrize(
    "mapping",
    [
        [("rides", "ride_id", "ride_id", "UUID"), ("fares", "amount", "amount", "Float64")],
        [("rides-with-fares", "ride", "ride_id", "UUID"), ("rides-with-fares", "fare", "amount", "Float64")],
    ],
)
def test_a_table_mapping_beside_the_output_of_a_join_names_fields_of_either(
    tmp_path: Path, mapping: list[tuple[str, ...]]
) -> None:
    keys = ("source_id", "field_name", "column_name", "column_type")
    old = changed(JOIN_BY_NAMES, sink__mapping=None)
    old["sink"]["table_mapping"] = [dict(zip(keys, entry, strict=True)) for entry in mapping]
    assert load_pipeline(write(tmp_path, old), {}) == load_pipeline(write(tmp_path, JOIN_BY_NAMES), {})


@pytest.mark.parametrize(("stream", "expression"), [("rides", "km < 0"), ("fares", "amount < 0"), ("join", "fare < 0")])
def test_a_filter_that_says_where_it_stands_goes_with_a_join(tmp_path: Path, stream: str, expression: str) -> None:
    old = changed(JOIN, filter={"enabled": True, "expression": expression, "source_id": stream})
    stages = plan_stages(load_pipeline(write(tmp_path, old), {}))
    found = {**stages.before, "join": stages.steps}
    assert {name for name, steps in found.items() if steps} == {stream}


@pytest.mark.parametrize("old", [JOIN, JOIN_BY_NAMES], ids=["schema", "names"])
def test_a_converted_join_loads_as_the_older_one(tmp_path: Path, old: dict[str, Any]) -> None:
    file, new = write(tmp_path, old), tmp_path / "new.yaml"
    new.write_text(convert_definition(file, {}).yaml, encoding="utf-8")
    assert load_pipeline(new, {}) == load_pipeline(file, {})
    assert convert_definition(new, {}) == convert_definition(file, {})


def test_resources_move_to_the_sources_they_were_for() -> None:
    old = changed(JOIN, pipeline_resources={
        "ingestor": {"left": {"replicas": 3}, "right": {"replicas": 4}},
        "transform": {"storage": {"size": "20Gi"}},
        "nats": {"stream": {"maxAge": "12h"}},
    })  # fmt: skip
    assert v3(old)["resources"] == {
        "nats": {"stream": {"maxAge": "12h"}},
        "sources": [{"source_id": "rides", "replicas": 3}, {"source_id": "fares", "replicas": 4}],
        "transform": [
            {"source_id": "rides", "storage": {"size": "20Gi"}},
            {"source_id": "fares", "storage": {"size": "20Gi"}},
        ],
    }


IGNORED: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    (V1, {"sink__flush": "1s", "labels": {"a": 1}}, ["labels", "sink.flush"]),
    (V1, {"source__connection_params__sasl_tls_enable": True}, ["source.connection_params.sasl_tls_enable"]),
    (V2, {"version": "2.0.0", "schema__fields__0__pk": True}, ["schema.fields[0].pk"]),
    (JOIN, {"join__sources__0__join_key_type": "string", "join__sources__1__join_key_type": "string",
            "source__connection_params__sasl_tls_enable": True},
     ["join.sources[0].join_key_type", "join.sources[1].join_key_type",
      "source.connection_params.sasl_tls_enable"]),
    (JOIN_BY_NAMES, {"join__fields__0__kind": "string"}, ["join.fields[0].kind"]),
]  # fmt: skip


@pytest.mark.parametrize(("base", "added", "places"), IGNORED, ids=[places[-1] for _, _, places in IGNORED])
def test_an_unknown_key_is_ignored_as_it_was_and_told_once(
    base: dict[str, Any], added: dict[str, Any], places: list[str], tmp_path: Path
) -> None:
    plain, file = write(tmp_path, base, "plain.json"), write(tmp_path, changed(base, **added))
    said = [f"{place}: unknown key, which is ignored; remove it or check its spelling" for place in places]

    assert load_pipeline(file, {}) == load_pipeline(plain, {})
    assert convert_definition(file, {}).yaml == convert_definition(plain, {}).yaml
    ignored = load_pipeline(file, {}).origin.rewriting_warnings
    assert sorted(ignored) == sorted(said)
    done = CliRunner().invoke(main, ["validate", str(file)])
    assert done.exit_code == 0
    assert [line for line in done.stderr.splitlines() if "unknown key" in line] == [
        f"{file}: warning: {text}" for text in ignored
    ]


def test_an_unknown_key_is_told_where_a_pipeline_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jvm, "prepare_jvm", Mock())
    monkeypatch.setattr(without_pandas, "leave_out_testing", Mock())
    monkeypatch.setenv("GLASSFLOW_CLICKHOUSE_URL", "http://default:@127.0.0.1:1")
    file = write(tmp_path, changed(V1, sink__flush="1s"))
    done = CliRunner().invoke(main, ["run", str(file), "--state", str(tmp_path / "state"), "--timeout", "0.1"])
    assert done.exit_code == 1
    assert done.stderr.count(f"{file}: warning: sink.flush: unknown key, which is ignored") == 1


MISTAKES: list[tuple[dict[str, Any], str]] = [
    (changed(V1, sink__table=None, sink__tabel="x"), "sink.tabel: unknown key, which is ignored; remove it or check"),
    (changed(V1, sink__table=None, source__connection_params__borkers=[]),
     "source.connection_params.borkers: unknown key, which is ignored"),
    (changed(V1, source__topics=None), "source.topics: is missing; add it"),
    (changed(V1, source__topics=[]), "source.topics: "),
    (changed(V1, sink="clickhouse"), "sink: must be an object with keys; correct it"),
    (changed(V1, source__topics__0__name=None), "source.topics[0].name: is missing; add it"),
    (changed(V1, sink__host=None), "sink.host: is missing; add it"),
    (changed(V2, sink__connection_params__host=None), "sink.connection_params.host: is missing; add it"),
    (changed(V1, sink__port="high"), "sink.port: "),
    (changed(V1, source__topics__0__schema__fields__1__type="money"),
     "source.topics[0].schema.fields[1].type: unknown field type 'money'"),
    (changed(V2, schema__fields__1__type="money"), "schema.fields[1].type: unknown field type 'money'"),
    (changed(V1, source__topics__0__deduplication__id_field="id"),
     "source.topics[0].deduplication.id_field: 'id' is not in schema_fields"),
    (changed(V2, source__topics__0__deduplication__key="id"),
     "source.topics[0].deduplication.key: 'id' is not in schema_fields"),
    (changed(V1, source__topics__0__deduplication__key="kwh"),
     "source.topics[0].deduplication.key: differs from id_field, which means the same; keep one"),
    (changed(V1, source__topics__0__deduplication__id_field=None),
     "source.topics[0].deduplication.id_field: is missing; name the field"),
    (changed(V1, source__topics__0__deduplication__enabled=None),
     "source.topics[0].deduplication.enabled: is missing; write true or false"),
    (changed(V1, source__topics__0__deduplication__time_window="1 day"),
     "source.topics[0].deduplication.time_window: '1 day' is not a duration"),
    (changed(V1, sink__table_mapping__1__column_type="Float16"), "sink.table_mapping[1].column_type: unsupported"),
    (changed(V1, sink__table_mapping__1__field_name="kw"), "sink.table_mapping[1].field_name: 'kw' is not in"),
    (changed(V1, sink__table_mapping__1__source_id="meters"), "sink.table_mapping[1].source_id: no topic is called"),
    (changed(V1, sink__mapping=[{"name": "kwh"}]), "sink.mapping: lists other columns than sink.table_mapping; keep"),
    (changed(V1, sink__connection_params={"host": "other"}), "sink.host: differs from connection_params.host"),
    (changed(V1, sink__table_mapping=None), "sink.table_mapping: is missing, so no column would be filled"),
    (changed(V2, schema__fields=[{"name": "ride_id", "type": "string"}]), "schema.fields: names no column"),
    (changed(V1, sink__password="s3cr3t!"), "sink.password: is not base64, which v1 and v2 passwords must be; write"),
    (changed(V1, sink__password=base64.b64encode(b"a${HOME}").decode()), "sink.password: contains ${...} when decoded"),
    (changed(V1, source__topics__0__schema__type="avro"), "source.topics[0].schema.type: must be 'json'"),
    (changed(V1, sink__table="${TABLE}"), "sink.table: variable TABLE is not set"),
    ({**V1, "filter": {"enabled": True}}, "filter.expression: is missing or empty"),
    ({**V1, "filter": {"enabled": True, "expression": "kwhh < < 0"}}, "filter.expression: unexpected"),
    (changed(JOIN, join__sources__1__orientation="right"), "join.sources: has 0 sources with orientation 'left'"),
    (changed(JOIN, join__sources__1=None), "join.sources: has 0 sources with orientation 'left'; write one"),
    (changed(JOIN, join__sources__1__orientation="middle"),
     "join.sources[1].orientation: 'middle' is not an orientation; write left or right"),
    (changed(JOIN, join__sources__1__orientation=None), "join.sources[1].orientation: is missing; write left or right"),
    (changed(JOIN, join__sources__0__join_key=None), "join.sources[0].join_key: is missing; name the field"),
    (changed(JOIN, join__sources__0__key="amount"), "join.sources[0].key: differs from join_key, which means the same"),
    (changed(JOIN, join__sources__0__join_key="ride"), "join.sources[0].join_key: 'ride' is not in schema_fields; did"),
    (changed(JOIN, join__sources__0__join_key="amount"),
     "join.sources[0].join_key: 'amount' is float, but 'ride_id' of the left source is string"),
    (changed(JOIN, join__sources__0__source_id="fare"), "join.sources[0].source_id: no source is called 'fare'; did"),
    (changed(JOIN, join__sources__0__time_window=None), "join.sources[0].time_window: is missing; add it"),
    (changed(JOIN, join__sources__0__time_window="8d"), "join.sources[0].time_window: is longer than 7 days"),
    (changed(JOIN, join__enabled=None), "join.enabled: is missing; write true or false"),
    (changed(JOIN, join__type="outer"), "join.type: must be 'temporal', 'inner' or 'left'"),
    (changed(JOIN, schema__fields__4__column_name="km"),
     "schema.fields[4].column_name: 'km' is the name of join.output_fields[1] too; give one"),
    (changed(JOIN, source__topics__1__name="city.rides", source__topics__1__id="fares"),
     "source.topics[1].name: 'city.rides' is the topic of sources[0] too"),
    (changed(JOIN, filter={"enabled": True, "expression": "km < 0"}),
     "filter.source_id: is missing; with a join, write 'rides' or 'fares' for a filter before it, or"),
    ({**JOIN, "stateless_transformation": {"enabled": True, "source_id": "rides", "config": {"transform": []}}},
     "stateless_transformation.enabled: cannot be combined with a join in v1 and v2; write false, and add a stateless"),
    (changed(JOIN_BY_NAMES, join__fields=None),
     "join.fields: is missing; list source_id, name and output_name of each joined field"),
    (changed(JOIN_BY_NAMES, join__fields__0__name="ride"), "join.fields[0].name: 'ride' is not in schema_fields of"),
    (changed(JOIN_BY_NAMES, sink__mapping__1__name="fares"),
     "sink.mapping[1].name: 'fares' is not among join.output_fields; did you mean 'fare'?"),
    (changed(JOIN, join__fields=[{"source_id": "rides", "name": "ride_id"}]),
     "schema.fields[1].name: 'km' of 'rides' is not among join.fields; list it there"),
    (changed(JOIN, schema__fields__0__source_id=None), "schema.fields[0].source_id: is missing; use one of rides"),
]  # fmt: skip


@pytest.mark.parametrize(("definition", "line"), MISTAKES, ids=[line[:60] for _, line in MISTAKES])
def test_a_mistake_is_told_at_its_place_in_the_older_file(tmp_path: Path, definition: Any, line: str) -> None:
    file = write(tmp_path, definition)
    with pytest.raises(DefinitionError) as raised:
        load_pipeline(file, {})
    lines = str(raised.value).splitlines()
    assert [text for text in lines if text.startswith(f"{file}: {line}")], lines
    assert "s3cr3t" not in str(raised.value)


def test_all_mistakes_are_told_at_once_and_each_place_once(tmp_path: Path) -> None:
    wrong = changed(ARTICLE, sink__password="?", sink__port="high", source__topics__0__name=None)
    with pytest.raises(DefinitionError) as raised:
        load_pipeline(write(tmp_path, wrong), {})
    places = [problem.path for problem in raised.value.problems]
    assert sorted(set(places)) == sorted(places)
    assert {"sink.password", "sink.port", "sink.table_mapping", "source.topics[0].name"} <= set(places)


def test_a_variable_stays_a_reference_and_is_taken_as_it_is(tmp_path: Path) -> None:
    file = write(tmp_path, changed(V1, sink__password="${CH_PASSWORD}", sink__host="${CH_HOST:-ch}"))
    converted = convert_definition(file, {})
    assert converted.definition["sink"]["connection_params"]["password"] == "${CH_PASSWORD}"
    assert "password: ${CH_PASSWORD}" in converted.yaml
    assert "host: ${CH_HOST:-ch}" in converted.yaml
    config = load_pipeline(file, {"CH_PASSWORD": "plain!"})
    assert config.sink.connection_params.password.get_secret_value() == "plain!"


def test_convert_prints_v3_and_warns_of_the_password_that_stands_in_it(tmp_path: Path) -> None:
    found = CliRunner().invoke(main, ["convert", str(write(tmp_path, V1))])
    assert found.exit_code == 0
    assert yaml.safe_load(found.stdout) == v3(V1)
    assert [line.split(": ")[2] for line in found.stderr.splitlines()] == [
        "sources[0].connection_params.password",
        "sink.connection_params.password",
    ]
    assert "not-a-real-secret" not in found.stderr


def test_convert_refuses_what_is_not_accepted(tmp_path: Path) -> None:
    for wrong in (ARTICLE, changed(V1, sink__host=None), {"pipeline_id": "nothing-else"}):
        found = CliRunner().invoke(main, ["convert", str(write(tmp_path, wrong))])
        assert (found.exit_code, found.stdout) == (1, "")
        assert found.stderr


def test_convert_gives_a_v3_definition_back() -> None:
    shipped = Path(__file__).parents[3] / "pipelines" / "flights.yaml"
    assert convert_definition(shipped, {}).definition == yaml.safe_load(shipped.read_text())


NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}(\.[a-z]{1,4})?", fullmatch=True)
# Text that YAML could misread: words, numbers, dates, signs, other scripts, line breaks.
TEXTS = st.one_of(
    st.sampled_from(
        ["no", "null", "1e3", "0x1f", "2024-01-01", "~", "- a", "a: b", "#x", "'", '"', "\ttab", "a\nb", "\x85"]
    ),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="$"), min_size=1, max_size=12),
)
# A table may be in a database of its own, `DATABASE.TABLE`; neither part may be empty.
TABLES = TEXTS.filter(lambda text: all(text.split(".")))
KINDS = {"string": ["String", "string", "LowCardinality(String)"], "int64": ["Int64", "int64"], "float": ["Float64"]}


@st.composite
def older_definitions(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a definition of one topic that mixes the older formats' variants."""
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    fields = [{"name": name, "type": draw(st.sampled_from(sorted(KINDS)))} for name in names]
    columns = [
        {"column_name": f"c{i}", "column_type": draw(st.sampled_from(KINDS[f["type"]]))} for i, f in enumerate(fields)
    ]
    topic: dict[str, Any] = {"name": draw(TEXTS), "replicas": draw(st.integers(1, 3))}
    if draw(st.booleans()):
        topic["id"] = draw(TEXTS)
    source_id = topic.get("id", topic["name"])
    dedup = {draw(st.sampled_from(["id_field", "key"])): draw(st.sampled_from(names)), "id_field_type": "string"}
    topic["deduplication"] = draw(
        st.sampled_from([{"enabled": False}, {}, {"enabled": True, "time_window": "1h30m", **dedup}])
    )
    password = base64.b64encode(draw(TEXTS).encode()).decode()
    connection = {
        "host": draw(TEXTS),
        "port": draw(st.sampled_from([9000, "9440", "8123"])),
        "database": draw(TEXTS),
        "username": draw(TEXTS),
        "password": draw(st.sampled_from(["", password, "${PASSWORD:-x}"])),
    }
    nested = draw(st.booleans())
    sink: dict[str, Any] = {"type": "clickhouse", "table": draw(TABLES)}
    sink |= {"connection_params": connection} if nested else connection
    definition: dict[str, Any] = {
        "pipeline_id": draw(st.from_regex(r"[a-z0-9]{5,9}", fullmatch=True)),
        "name": draw(TEXTS),
        "source": {"type": "kafka", "connection_params": {"brokers": [draw(TEXTS)]}, "topics": [topic]},
        "sink": sink,
    }
    owner = draw(st.sampled_from([{}, {"source_id": source_id}]))
    shape = draw(st.sampled_from(["v1", "v2", "late v2"]))
    if shape == "v1":
        topic["schema"] = {"type": "json", "fields": fields}
        sink["table_mapping"] = [{**owner, "field_name": f["name"], **c} for f, c in zip(fields, columns, strict=True)]
    elif shape == "v2":
        definition["schema"] = {"fields": [{**owner, **f, **c} for f, c in zip(fields, columns, strict=True)]}
    else:
        topic["schema_fields"] = fields
        sink["mapping"] = [{"name": f["name"], **c} for f, c in zip(fields, columns, strict=True)]
    version = draw(st.sampled_from([{}, {"version": shape[-2:]}]))
    return {**version, **definition}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(older_definitions())
def test_the_converted_file_loads_as_the_older_one(tmp_path_factory: pytest.TempPathFactory, old: Any) -> None:
    folder = tmp_path_factory.mktemp("older")
    file, new = write(folder, old), folder / "new.yaml"
    config = load_pipeline(file, {})
    new.write_text(convert_definition(file, {}).yaml, encoding="utf-8")
    again = load_pipeline(new, {})
    assert again == config
    assert again.fingerprint == config.fingerprint
    assert convert_definition(new, {}).definition == convert_definition(file, {}).definition
    topic = old["source"]["topics"][0]
    assert (config.source.source_id, config.source.topic) == (topic.get("id", topic["name"]), topic["name"])
    assert (config.dedup is not None) == bool(topic["deduplication"].get("enabled"))
    given_password = old["sink"].get("connection_params", old["sink"])["password"]
    plain = "x" if "$" in given_password else base64.b64decode(given_password).decode()
    assert config.sink.connection_params.password.get_secret_value() == plain
