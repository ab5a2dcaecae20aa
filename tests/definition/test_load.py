"""Definitions that load, and the one-line error for each mistake."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from glassflow_dagster.definition.folder import find_definition
from glassflow_dagster.definition.load import load_pipeline, warnings
from glassflow_dagster.definition.model.pipeline import Metadata, PipelineConfig
from glassflow_dagster.definition.model.resources import Resources
from glassflow_dagster.definition.problems import DefinitionError
from glassflow_dagster.errors import GlassflowError
from tests.definition.changes import changed
from tests.support import definition as v3

SHIPPED = sorted(Path("pipelines").glob("*.yaml"))


def definition(**changes: Any) -> dict[str, Any]:
    """Return a valid definition; `changes` are paths with `__` for dots, None removes the key."""
    connection = {
        "host": "ch", "port": "9000", "http_port": "8123", "database": "ops", "username": "u", "password": "p",
        "secure": False,
    }  # fmt: skip
    fields = [*v3.fields(id="string"), {"name": "kg", "type": "float64", "required": False}]
    columns = {"id": "String", "kg": "Nullable(Float64)"}
    base = v3.definition(
        "parcel-scans",
        v3.source("scans", fields, "b:9092"),
        v3.sink(columns, connection, table="scans", max_batch_size=1000, max_delay_time="5s"),
        v3.dedup("scans", "id", time_window="1h30m"),
        name="Parcel scans",
    )
    return changed(base, **changes)


RECORD = '{"type": "record", "name": "Scan", "fields": [{"name": "id", "type": "string"}]}'
OAUTH = {"token_url": "https://issuer.test/token", "client_id": "etl", "client_secret": "s"}
REGISTRY = {"sources__0__schema_registry": {"url": "http://registry"}}


def avro(file: str = RECORD, **schema: str) -> dict[str, Any]:
    """Return changes that make the source one of Avro records."""
    return {"sources__0__format": "avro", "sources__0__schema": {"file": file, **schema}}


def registry(**keys: str) -> dict[str, Any]:
    """Return changes that give the source a schema registry."""
    return {"sources__0__schema_registry": {"url": "http://registry", **keys}}


def write(folder: Path, content: Any) -> Path:
    file = folder / "parcel-scans.yaml"
    file.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return file


@pytest.mark.parametrize("file", SHIPPED, ids=lambda f: f.stem)
def test_every_shipped_definition_is_valid_and_named_as_its_file(file: Path) -> None:
    assert load_pipeline(file, {}).pipeline_id == file.stem


def test_json_is_read_as_yaml_is(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text(json.dumps(definition()))
    assert load_pipeline(file, {}) == load_pipeline(write(tmp_path, definition()), {})


def test_durations_and_ports_are_read_as_glassflow_writes_them(tmp_path: Path) -> None:
    config = load_pipeline(write(tmp_path, definition()), {})
    assert config.dedup is not None
    assert config.dedup.time_window.total_seconds() == 5400
    assert config.sink.connection_params.http == 8123


def test_schemas_and_tombstones_leave_the_digest_of_other_definitions_alone(tmp_path: Path) -> None:
    """A checkpoint of an older release has the digest that the definition had then."""
    plain = load_pipeline(write(tmp_path, definition()), {})
    assert plain.digest == "3ab8a89131f2b243614845b547ed5c38afde82f35ee95902969f636d23a68d14"
    with_schema = load_pipeline(write(tmp_path, definition(**avro())), {})
    dropping = load_pipeline(write(tmp_path, definition(sources__0__tombstones="drop")), {})
    assert len({plain.digest, with_schema.digest, dropping.digest}) == 3
    assert PipelineConfig.model_validate(with_schema.model_dump(mode="json")).sources == with_schema.sources


# Values that GlassFlow's files spell out although they mean the default: path, written value, loaded value.
NOTHING_SAID: list[tuple[str, Any, Any]] = [
    ("version", None, "v3"),
    ("name", None, ""),
    ("join", None, None),
    ("transforms", None, ()),
    ("metadata", None, Metadata()),
    ("metadata", {"tags": None}, Metadata()),
    ("resources", {"sources": None, "transform": None, "sink": None, "nats": None}, Resources()),
    ("sources__0__type", "Kafka", "kafka"),
    ("sources__0__format", "", "json"),
    ("sources__0__schema_version", None, "1"),
    ("sources__0__consumer_group_initial_offset", "", "earliest"),
    ("sources__0__connection_params__kerberos_realm", "", ""),
    ("sources__0__connection_params__skip_auth", None, False),
    ("sink__connection_params__http_port", "", None),
    ("sink__max_batch_size", None, 1000),
    ("sink__max_delay_time", None, timedelta(seconds=60)),
    ("sink__max_delay_time", "0s", timedelta(seconds=60)),
]


@pytest.mark.parametrize(("key", "written", "meant"), NOTHING_SAID, ids=[f"{k}={w!r}" for k, w, _ in NOTHING_SAID])
def test_empty_values_mean_the_same_as_in_glassflow(tmp_path: Path, key: str, written: Any, meant: Any) -> None:
    raw = definition()
    *parents, last = [int(part) if part.isdigit() else part for part in key.split("__")]
    place: Any = raw
    for part in parents:
        place = place[part]
    place[last] = written
    found: Any = load_pipeline(write(tmp_path, raw), {})
    for part in (*parents, last):
        found = found[part] if isinstance(part, int) else getattr(found, str(part))
    assert found == meant


EVENT_CLOCK = {"transforms__0__config__clock": "event", "transforms__0__config__event_time": "id"}

MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"pipeline_id": "abc"}, "pipeline_id: String should have at least 5 characters"),
    ({"pipeline_id": "a b c d e"}, "pipeline_id: may hold letters, digits"),
    ({"version": "v9"}, "version: must be 'v3'"),
    ({"sources__0__topic": None}, "sources[0].topic: is missing; add it"),
    ({"sources__0__topci": "x"}, "sources[0].topci: unknown key; remove it or check its spelling"),
    ({"sources__0__type": "rabbit"}, "sources[0].type: must be 'kafka', 'otlp.logs', 'otlp.metrics' or 'otlp.traces'"),
    ({"sources__0__connection_params__brokers": []}, "sources[0].connection_params.brokers: "),
    ({"sources__0__connection_params__mechanism": "PLAIN"}, "sources[0].connection_params.username: is needed"),
    (
        {"sources__0__schema_fields__0__type": "money"},
        "sources[0].schema_fields[0].type: unknown field type 'money'",
    ),
    ({"sources__0__schema_fields__1__name": "id"}, "sources[0].schema_fields[1].name: 'id' is declared twice"),
    (
        {"transforms__0__source_id": "scan"},
        "transforms[0].source_id: no source is called 'scan'; did you mean 'scans'?",
    ),
    (
        {"transforms__0__config__key": "idd"},
        "transforms[0].config.key: 'idd' is not in schema_fields; did you mean 'id'?",
    ),
    ({"transforms__0__config__key": "kg"}, "transforms[0].config.key: 'kg' is optional"),
    ({"transforms__0__config__keys": ["id"]}, "transforms[0].config: name the key once"),
    (
        {"transforms__0__config__time_window": "5 minutes"},
        "transforms[0].config.time_window: '5 minutes' is not a duration",
    ),
    ({"transforms__0__config__time_window": 300}, "transforms[0].config.time_window: 300 is not a duration"),
    ({"transforms__0__config__time_window": "0s"}, "transforms[0].config.time_window: must be greater than zero"),
    (
        {"transforms__0__config__time_window": "500us"},
        "transforms[0].config.time_window: is shorter than 1ms, the resolution of batch times; choose 1ms",
    ),
    ({"transforms__0__config__time_window": "8d"}, "transforms[0].config.time_window: is longer than 7 days"),
    ({"transforms__0__config__clock": "wall"}, "transforms[0].config.clock: must be 'processing' or 'event'"),
    ({"transforms__0__config__late": "keep"}, "transforms[0].config.late: applies to clock: event only; add that, or"),
    ({"transforms__0__config__event_time": "id"}, "transforms[0].config.event_time: applies to clock: event only"),
    (
        {"transforms__0__config__allowed_lateness": "1h"},
        "transforms[0].config.allowed_lateness: applies to clock: event only",
    ),
    ({**EVENT_CLOCK, "transforms__0__config__late": "maybe"}, "transforms[0].config.late: must be 'drop', 'keep' or"),
    ({"transforms__0__config__clock": "event"}, "transforms[0].config.event_time: is needed for clock: event; name"),
    (
        {**EVENT_CLOCK, "transforms__0__config__event_time": "ids"},
        "transforms[0].config.event_time: 'ids' is not in schema_fields; did you mean 'id'?",
    ),
    ({**EVENT_CLOCK, "transforms__0__config__event_time": "kg"}, "transforms[0].config.event_time: 'kg' is optional"),
    (
        {**EVENT_CLOCK, "sources__0__schema_fields__0__type": "bool"},
        "transforms[0].config.event_time: 'id' is bool; a time is a string or a number",
    ),
    (
        {**EVENT_CLOCK, "transforms__0__config__event_time_unit": "ms"},
        "transforms[0].config.event_time_unit: 'id' is a string, which has no unit; remove it",
    ),
    (
        {**EVENT_CLOCK, "transforms__0__config__allowed_lateness": "8d"},
        "transforms[0].config.allowed_lateness: is longer than 7 days; choose 7d or less",
    ),
    (
        {
            **EVENT_CLOCK,
            "transforms__0__config__time_window": "1m",
            "transforms__0__config__allowed_lateness": "1d",
        },
        "transforms[0].config.allowed_lateness: is more than 1000 times time_window; choose 16h40m or less, or",
    ),
    ({"transforms__0__type": "filter"}, "transforms[0].config.expression: is missing; add it"),
    ({"transforms__0__type": "filtre"}, "transforms[0].type: must be 'dedup', 'filter' or 'stateless'"),
    ({"sources__0__start": "yesterday"}, "sources[0].start: must be one of earliest, latest, committed, or a time"),
    ({"sources__0__consumer_group": "g"}, "sources[0].consumer_group: applies to start: committed only"),
    ({"sources__0__format": "csv"}, "sources[0].format: must be 'json', 'json_schema', 'avro', 'protobuf', "),
    ({"sources__0__format": "avro"}, "sources[0].format: avro needs a schema; add schema.file or schema_registry"),
    ({"sources__0__schema": {"file": RECORD}}, "sources[0].schema: format json has no schema; remove it, or add"),
    (avro(file="{"), "sources[0].schema.file: is no Avro schema, which is JSON"),
    (avro(file='"string"'), "sources[0].schema.file: is not the schema of a record"),
    (avro(file='{"type": "record", "fields": [1]}'), "sources[0].schema.file: has no list of fields"),
    (avro(message_type="A"), "sources[0].schema.message_type: applies to protobuf only; remove it"),
    (avro(wire_format="none") | REGISTRY, "sources[0].schema.wire_format: none leaves nothing to ask"),
    (
        avro() | REGISTRY | {"sources__0__format": "protobuf"},
        "sources[0].schema.file: each record of Protobuf has one schema",
    ),
    (registry(url="localhost:8081"), "sources[0].schema_registry.url: 'localhost:8081' is not an address"),
    (registry(url=","), "sources[0].schema_registry.url: '' is not an address; write https://host:port"),
    (registry(url="http://me:shh@r"), "sources[0].schema_registry.url: holds a user; write it into api_key"),
    (registry(api_key="k", bearer_token="t"), "sources[0].schema_registry.bearer_token: is there beside api_key"),
    (registry(client_cert="c"), "sources[0].schema_registry.client_cert: needs client_key"),
    ({"sources__0__tombstones": "keep"}, "sources[0].tombstones: must be 'dead_letter' or 'drop'"),
    ({"sources__0__schema_fields__0__default": 7}, "sources[0].schema_fields[0].default: 7 is not of type string"),
    ({"sources__0__schema_fields__0__default": "x"}, "transforms[0].config.key: 'id' is optional"),
    ({"resources": {"sources": [{"source_id": "scan"}]}}, "resources.sources[0].source_id: no source is called 'scan'"),
    ({"resources": {"sink": {"replicas": 0}}}, "resources.sink.replicas: "),
    ({"spark": {"master": "local[4]"}}, "spark: 'master' is not a Spark setting; their names begin with 'spark.'"),
    ({"spark": {"spark.speculation": True}}, "spark: spark.speculation cannot be set: two attempts of a task at once"),
    ({"spark": {"spark.executor.cores": [1]}}, "spark: spark.executor.cores: [1] is not a value of a setting"),
    ({"spark": "spark.master"}, "spark: write settings as KEY: VALUE"),
    (
        {"pool": "small", "spark": {"spark.sql.shuffle.partitions": 1, "spark.driver.memory": "2g"}},
        (
            "spark: spark.driver.memory belongs to the JVM, which pool 'small' shares; give it to the pool: "
            "glassflow-dagster pool start small --conf spark.driver.memory=VALUE"
        ),
    ),
    ({"pool": "../small"}, "pool: may hold up to 100 letters, digits, '-' and '_' only, and starts with a letter or"),
    (
        {
            "pool": "small",
            "sources__0__connection_params__mechanism": "GSSAPI",
            "sources__0__connection_params__username": "u@REALM",
            "sources__0__connection_params__kerberos_keytab": "AAAA",
            "sources__0__connection_params__kerberos_config": "x",
            "sources__0__connection_params__kerberos_service_name": "kafka",
            "sources__0__connection_params__kerberos_realm": "REALM",
            "sources__0__connection_params__protocol": "SASL_PLAINTEXT",
        },
        "pool: GSSAPI needs a JVM of its own; remove it",
    ),
    (
        {"sources__0__connection_params__mechanism": "GSSAPI"},
        "sources[0].connection_params.kerberos_keytab: is needed for mechanism GSSAPI; add it",
    ),
    (
        {
            "sources__0__connection_params__mechanism": "OAUTHBEARER",
            "sources__0__connection_params__protocol": "SASL_SSL",
        },
        "sources[0].connection_params.oauth: is needed for mechanism OAUTHBEARER; add it",
    ),
    (
        {"sources__0__connection_params__oauth": {**OAUTH, "token_url": "issuer.test/token"}},
        "sources[0].connection_params.oauth.token_url: 'issuer.test/token' is not an address; write https://host/path",
    ),
    (
        {"sources__0__connection_params__oauth": OAUTH},
        "sources[0].connection_params.mechanism: is missing beside oauth; add mechanism: OAUTHBEARER, or remove oauth",
    ),
    (
        {
            "sources__0__connection_params__mechanism": "OAUTHBEARER",
            "sources__0__connection_params__protocol": "SASL_SSL",
            "sources__0__connection_params__oauth": {**OAUTH, "extensions": {"logicalCluster": "a,b=c"}},
        },
        "sources[0].connection_params.oauth.extensions: 'logicalCluster': a name has letters only, and a value no",
    ),
    (
        {
            "sources__0__connection_params__mechanism": "AWS_MSK_IAM",
            "sources__0__connection_params__protocol": "SASL_PLAINTEXT",
        },
        "sources[0].connection_params.protocol: Amazon MSK takes AWS_MSK_IAM over TLS only; use SASL_SSL",
    ),
    (
        {
            "sources__0__connection_params__mechanism": "AWS_MSK_IAM",
            "sources__0__connection_params__protocol": "SASL_SSL",
        },
        "sources[0].connection_params.aws.region: is not in the brokers' names; add it",
    ),
    (
        {
            "sources__0__connection_params__mechanism": "AWS_MSK_IAM",
            "sources__0__connection_params__protocol": "SASL_SSL",
            "sources__0__connection_params__aws": {"region": "eu-west-1", "profile": "etl", "role_arn": "arn:aws:r"},
        },
        "sources[0].connection_params.aws.role_arn: and profile exclude each other; keep one",
    ),
    (
        {
            "pool": "small",
            "sources__0__connection_params__mechanism": "AWS_MSK_IAM",
            "sources__0__connection_params__protocol": "SASL_SSL",
            "sources__0__connection_params__aws": {"region": "eu-west-1"},
        },
        "pool: AWS_MSK_IAM needs a JVM of its own; remove it",
    ),
    ({"sources__0__topic": None}, "sources[0].topic: is missing; add it, or topics: [NAME, ...]"),
    (
        {"sources__0__topic": None, "sources__0__topic_pattern": "orders[.*"},
        "sources[0].topic_pattern: is no regular expression (missing ]: [.*); correct it",
    ),
    (
        {"sources__0__connection_params__settings": {"group.id": "mine"}},
        "sources[0].connection_params.settings: group.id cannot be set: the checkpoint has the offsets, and no group",
    ),
    (
        {"sources__0__connection_params__settings": {"sasl.jaas.config": "x"}},
        "sources[0].connection_params.settings: sasl.jaas.config cannot be set: write mechanism and its keys; remove",
    ),
    (
        {"sources__0__connection_params__settings": {"client.rak": "a"}},
        "sources[0].connection_params.settings: client.rak is not passed on to Kafka's clients; these are: client.dns",
    ),
    (
        {"sources__0__connection_params__settings": {"client.rack": ["a"]}},
        "sources[0].connection_params.settings: client.rack: ['a'] is not a value of it; write a text",
    ),
    (
        {"sources__0__connection_params__settings": {"request.timeout.ms": 600_000}},
        "sources[0].connection_params.settings: request.timeout.ms: 600000 is not a whole number from 10 to 300000",
    ),
    (
        {"sources__0__connection_params__settings": {"fetch.min.bytes": 1.5}},
        "sources[0].connection_params.settings: fetch.min.bytes: 1.5 is not a whole number from 0 to",
    ),
    (
        {"sources__0__connection_params__settings": {"client.dns.lookup": "default"}},
        "sources[0].connection_params.settings: client.dns.lookup: 'default' is not a value of it; write use_all_dns",
    ),
    (
        {
            "sources__0__connection_params__mechanism": "OAUTHBEARER",
            "sources__0__connection_params__protocol": "SASL_SSL",
            "sources__0__connection_params__oauth": {**OAUTH, "token_url": "https://a:b@issuer.test"},
        },
        "sources[0].connection_params.oauth.token_url: holds a user; write it into client_id and client_secret",
    ),
    (
        {"sources__0__connection_params__oauth": {**OAUTH, "client_secret": ""}},
        "sources[0].connection_params.oauth.client_secret: ",
    ),
    ({"sources__0__topics": ["a"]}, "sources[0].topics: is there beside topic; keep one of them"),
    (
        {"sources__0__topic": None, "sources__0__topics": ["a", "b", "a"]},
        "sources[0].topics[2]: 'a' is there twice; keep one",
    ),
    (
        {"sources__0__connection_params__client_cert": "x"},
        "sources[0].connection_params.client_key: is missing; set the client's certificate and its key together",
    ),
    (
        {"sink__connection_params__client_key": "x"},
        "sink.connection_params.client_cert: is missing; set the client's certificate and its key together",
    ),
    (
        {"sink__connection_params__root_ca": "x"},
        "sink.connection_params.root_ca: applies to secure: true only; add that, or remove it",
    ),
    ({"checks": {"max_unmatched": "5%"}}, "checks.max_unmatched: applies to a join only; remove it"),
    ({"checks": {"every": "daily"}}, "checks.every: is not a cron schedule; write five fields"),
    ({"sink__bookkeeping_engine": "ReplacingMergeTree"}, "sink.bookkeeping_engine: must be MergeTree, Replicated"),
    ({"sink__max_batch_size": 0}, "sink.max_batch_size: "),
    ({"sink__mapping__0__name": "ID"}, "sink.mapping[0].name: 'ID' is not in schema_fields; did you mean"),
    ({"sink__mapping__1__column_name": "id"}, "sink.mapping[1].column_name: column 'id' is filled twice"),
    (
        {"sink__mapping__0__column_type": "Array(Float16)"},
        "sink.mapping[0].column_type: unsupported ClickHouse column type 'Float16'",
    ),
    ({"sink__mapping__0__column_type": "String("}, "sink.mapping[0].column_type: 'String(' is not a ClickHouse type"),
    (
        {"sink__mapping__0__column_type": "Int32"},
        "sink.mapping[0].column_type: Int32 takes int or uint or int128 or uint128, but field 'id' is",
    ),
    (
        {"sink__create_table": {"engine": "Log"}},
        "sink.create_table.engine: Log does not recognise a repeated insert; use an engine of the MergeTree family, or",
    ),
    ({"sink__delivery": "twice"}, "sink.delivery: "),
    ({"sink__deduplication_window": "never"}, "sink.deduplication_window: "),
    (
        {"sink__create_table": {"partition_by": "toDate(now())"}},
        "sink.create_table.partition_by: calls now(), which may put a repeated row into another",
    ),
    (
        {
            "sink__create_table": {
                "partition_by": "toYYYYMM(seen)",
                "columns": [{"name": "seen", "type": "DateTime", "default": "now()"}],
            }
        },
        "sink.create_table.partition_by: uses column 'seen', which the server fills with now(), so a",
    ),
    ({"sink__table": "${TABLE}"}, "sink.table: variable TABLE is not set; set it, or write ${TABLE:-default}"),
]


@pytest.mark.parametrize(("change", "line"), MISTAKES, ids=[line[:50] for _, line in MISTAKES])
def test_a_mistake_gets_a_line_with_file_field_and_remedy(tmp_path: Path, change: dict[str, Any], line: str) -> None:
    file = write(tmp_path, definition(**change))
    with pytest.raises(DefinitionError) as raised:
        load_pipeline(file, {})
    assert [text for text in str(raised.value).splitlines() if text.startswith(f"{file}: {line}")], str(raised.value)


@pytest.mark.parametrize("engine", [" ReplacingMergeTree(n)", "SharedMergeTree", "Distributed('c', 'd', 't', id)"])
def test_engines_that_may_recognise_a_repeated_insert_are_looked_at_when_the_pipeline_starts(
    tmp_path: Path, engine: str
) -> None:
    found = load_pipeline(write(tmp_path, definition(sink__create_table={"engine": engine})), {})
    assert found.sink.create_table is not None
    assert found.sink.create_table.engine == engine


def test_delivery_at_least_once_takes_any_engine_and_changes_no_row_or_block(tmp_path: Path) -> None:
    exact = load_pipeline(write(tmp_path, definition()), {})
    table = {"engine": "Log"}
    twice = load_pipeline(write(tmp_path, definition(sink__delivery="at_least_once", sink__create_table=table)), {})
    assert exact.sink.delivery == "exactly_once"
    window = load_pipeline(write(tmp_path, definition(sink__deduplication_window="require")), {})
    assert window.digest == exact.digest
    # So a batch begun before the edit can be finished after it; the driver is restarted, though.
    assert twice.digest == exact.digest
    assert twice.fingerprint != exact.fingerprint


def test_a_mistake_inside_a_list_does_not_make_the_list_too_short(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError) as raised:
        load_pipeline(
            write(tmp_path, definition(sources__0__format="xml", sink__mapping__0__name="", sink__mapping__1=None))
        )
    assert [problem.path for problem in raised.value.problems] == ["sources[0].format", "sink.mapping[0].name"]


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    file = write(tmp_path, definition(sink__mapping__0__name="ID", transforms__0__config__key="idd"))
    with pytest.raises(DefinitionError) as raised:
        load_pipeline(file, {})
    assert len(str(raised.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("changes", "paths"),
    [
        # Kinds that do not fit beside a type that does not exist, of a column and of a field.
        (
            {"sink__mapping__0__column_type": "Float16", "sink__mapping__1__column_type": "UUID"},
            {"sink.mapping[0].column_type", "sink.mapping[1].column_type"},
        ),
        (
            {"sources__0__schema_fields__0__type": "txt", "sink__mapping__1__column_type": "UUID"},
            {"sources[0].schema_fields[0].type", "sink.mapping[1].column_type"},
        ),
        (
            {"sink__mapping__0__column_type": "Dynamic", "sink__colour": "red", "transforms__0__config__key": "idd"},
            {"sink.mapping[0].column_type", "sink.colour", "transforms[0].config.key"},
        ),
        # What follows from the type alone is not told.
        (
            {"sources__0__schema_fields__0__type": "object2", "sink__mapping__0__column_type": "Map(String, String)"},
            {"sources[0].schema_fields[0].type"},
        ),
    ],
)
def test_types_that_do_not_exist_hide_no_other_mistake(
    tmp_path: Path, changes: dict[str, Any], paths: set[str]
) -> None:
    with pytest.raises(DefinitionError) as raised:
        load_pipeline(write(tmp_path, definition(**changes)), {})
    assert sorted(problem.path for problem in raised.value.problems) == sorted(paths)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", "is neither YAML nor JSON"),
        ("a: 2024-99-99", "is neither YAML nor JSON: month must be in 1..12"),
        ("9" * 5000, "is neither YAML nor JSON"),
        ("[" * 5000, "is nested too deeply"),
        ("- 1", "is not a pipeline definition"),
        ("", "is not a pipeline definition"),
    ],
)
def test_a_file_that_is_no_definition_is_named(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(DefinitionError, match=line):
        load_pipeline(write(tmp_path, text), {})


def nested(levels: int, line: str) -> str:
    """Return YAML lines each of which repeats the previous one ten times by aliases."""
    repeated = [f"l{n}: &l{n} {line.format(', '.join([f'*l{n - 1}'] * 10))}" for n in range(1, levels)]
    return "\n".join(["l0: &l0 {a: 0}", *repeated])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (nested(30, "[{}]"), r"line 6, column \d+: with this alias, aliases repeat more than 200,000 characters"),
        (
            nested(30, "{{<<: [{}]}}"),
            r"line 6, column \d+: with this alias, aliases repeat more than 200,000 characters",
        ),
        (f"a: &a {'x' * 1000}\nb: [{'*a, ' * 1000}]", r"line 2, column \d+: with this alias"),
        ("a: &a\n  b: [1, *a]", "line 2, column 10: this alias refers to a node that contains it; write out"),
    ],
    ids=["lists", "merges", "texts", "itself"],
)
def test_aliases_that_stand_for_too_much_are_refused_at_their_place(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(DefinitionError, match=line):
        load_pipeline(write(tmp_path, text), {})


def test_anchors_and_aliases_may_share_what_is_the_same(tmp_path: Path) -> None:
    text = yaml.safe_dump(definition()).replace("name: Parcel scans", "name: &name Parcel scans")
    config = load_pipeline(write(tmp_path, f"{text}metadata: {{<<: {{tags: [*name]}}}}"), {})
    assert config.metadata
    assert config.metadata.tags == (config.name,)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="no such file"):
        load_pipeline(tmp_path / "none.yaml", {})


def test_a_secret_never_stands_in_an_error_or_a_dump(tmp_path: Path) -> None:
    content = definition(sink__connection_params__password="${PASSWORD}", sink__mapping__0__name="ID")
    with pytest.raises(DefinitionError) as raised:
        load_pipeline(write(tmp_path, content), {"PASSWORD": "hush: 'hush'"})
    good = load_pipeline(
        write(tmp_path, definition(sink__connection_params__password="${PASSWORD}")), {"PASSWORD": "hush"}
    )
    assert "hush" not in str(raised.value) + repr(good) + good.model_dump_json()
    assert good.sink.connection_params.password.get_secret_value() == "hush"


def test_the_event_clock_is_as_late_as_its_window_and_drops_what_is_later_unless_told(tmp_path: Path) -> None:
    plain = load_pipeline(write(tmp_path, definition(**EVENT_CLOCK)), {}).dedup
    assert plain is not None
    assert (plain.lateness, plain.when_late, plain.time_unit) == (plain.time_window, "drop", "s")
    told = {"late": "dead_letter", "allowed_lateness": "0s", "event_time_unit": "ns"}
    changes = {f"transforms__0__config__{name}": value for name, value in told.items()}
    number = {"sources__0__schema_fields__0__type": "int", "sink__mapping__0__column_type": "Int64"}
    content = definition(**EVENT_CLOCK, **changes, **number)
    config = load_pipeline(write(tmp_path, content), {})
    assert config.dedup is not None
    assert (config.dedup.lateness.total_seconds(), config.dedup.when_late) == (0, "dead_letter")
    assert PipelineConfig.model_validate(config.model_dump(mode="json", by_alias=True)).dedup == config.dedup


def test_variables_have_defaults(tmp_path: Path) -> None:
    file = write(tmp_path, definition(sink__table="${TABLE:-scans_raw}"))
    assert load_pipeline(file, {}).sink.table == "scans_raw"
    assert load_pipeline(file, {"TABLE": "other"}).sink.table == "other"


def test_the_environment_replaces_the_servers(tmp_path: Path) -> None:
    environment = {"GLASSFLOW_KAFKA_BROKERS": "k1:1,k2:2", "GLASSFLOW_CLICKHOUSE_URL": "http://me:s%40crt@here:1234"}
    config = load_pipeline(write(tmp_path, definition()), environment)
    assert config.source.connection_params.brokers == ("k1:1", "k2:2")
    connection = config.sink.connection_params
    assert (connection.host, connection.http, connection.username, connection.secure) == ("here", 1234, "me", False)
    assert connection.password.get_secret_value() == "s@crt"
    assert connection.database == "ops"


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GlassflowError, match="GLASSFLOW_CLICKHOUSE_URL: is not an address"):
        load_pipeline(write(tmp_path, definition()), {"GLASSFLOW_CLICKHOUSE_URL": "localhost"})


def test_a_pipeline_is_found_by_its_id_whatever_its_file_is_called(tmp_path: Path) -> None:
    (tmp_path / "copied.json").write_text(json.dumps(definition()))
    found = find_definition("parcel-scans", tmp_path, {})
    assert (found.origin.file, found.pipeline_id) == (tmp_path / "copied.json", "parcel-scans")


def test_an_unknown_pipeline_is_told_with_the_nearest_name(tmp_path: Path) -> None:
    write(tmp_path, definition())
    with pytest.raises(GlassflowError, match="no pipeline is called 'parcel-scan'; did you mean 'parcel-scans'"):
        find_definition("parcel-scan", tmp_path, {})


def test_replicas_are_partitions_and_cores_and_the_rest_is_one_warning(tmp_path: Path) -> None:
    asked = {
        "nats": {"stream": {"maxAge": "12h"}},
        "sources": [{"source_id": "scans", "replicas": 2, "requests": {"cpu": "500m"}}],
        "transform": [{"source_id": "scans", "replicas": 3, "storage": {"size": "20Gi"}}],
        "sink": {"replicas": 4},
    }
    config = load_pipeline(write(tmp_path, definition(resources=asked)), {})
    assert config.resources
    assert (config.resources.state_partitions, config.resources.cores) == (3, 4)
    (warning,) = warnings(config)
    assert warning.startswith("resources (nats, sources[0].requests, transform[0].storage) has no effect here; ")
    assert warnings(load_pipeline(write(tmp_path, definition(resources={"sink": {"replicas": 1}})), {})) == []


def test_only_what_cuts_blocks_is_in_the_digest(tmp_path: Path) -> None:
    base = load_pipeline(write(tmp_path, definition()), {})
    renamed = load_pipeline(write(tmp_path, definition(name="Other", sink__connection_params__host="elsewhere")), {})
    resized = load_pipeline(write(tmp_path, definition(sink__max_batch_size=7)), {})
    assert base.digest == renamed.digest != resized.digest
    assert base.fingerprint != renamed.fingerprint


def test_sparks_settings_are_texts_and_change_no_block(tmp_path: Path) -> None:
    given = {"spark.driver.memory": "2g", "spark.ui.enabled": True, "spark.task.maxFailures": 8}
    plain = load_pipeline(write(tmp_path, definition()), {})
    config = load_pipeline(write(tmp_path, definition(spark=given)), {})
    assert config.spark == {"spark.driver.memory": "2g", "spark.ui.enabled": "true", "spark.task.maxFailures": "8"}
    assert config.digest == plain.digest
    # A running driver is restarted with them.
    assert config.fingerprint != plain.fingerprint
    assert "spark" not in plain.model_dump()


def test_fields_are_read_where_glassflows_sdk_writes_them(tmp_path: Path) -> None:
    written = definition()
    expected = load_pipeline(write(tmp_path, written), {})
    source = written["sources"][0]
    source["schema"] = {"fields": source.pop("schema_fields"), "parsed_fields": None, "file": None}
    assert load_pipeline(write(tmp_path, written), {}) == expected
    source["schema"] = {"fields": [{"name": "id"}]}
    with pytest.raises(DefinitionError, match=r"sources\[0\].schema_fields\[0\].type: is missing; add it"):
        load_pipeline(write(tmp_path, written), {})
