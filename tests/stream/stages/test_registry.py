"""What is asked of a schema registry, how often, and what its answers lead to."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from glassflow_dagster.definition.model.connections import KafkaConnection, SchemaRegistry
from glassflow_dagster.definition.model.source import SchemaField, Source, SourceSchema
from glassflow_dagster.stream.stages.decode.decode import decode
from glassflow_dagster.stream.stages.decode.formats import decoder_of
from glassflow_dagster.stream.stages.decode.registry import registry_settings
from tests.servers.registry import Registry, serving

MOST_BYTES = 16 * 1024 * 1024
EVENT = {"type": "record", "name": "Event", "fields": [{"name": "id", "type": "string"}]}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving(Registry()) as running:
        yield running


class Store:
    """A SchemaStore of the JVM."""

    def __init__(self, spark: SparkSession, settings: SchemaRegistry, folder: Path | None, patience: float) -> None:
        jvm: Any = spark._jvm
        name = f"test-{id(self)}"
        jvm.glassflow.RegistrySettings.declare(name, json.dumps(registry_settings(settings, patience, folder)))
        self._store = jvm.glassflow.SchemaStore(jvm.glassflow.RegistrySettings.of(name))

    def find(self, schema_id: object) -> list[str] | None:
        found = self._store.find(str(schema_id))
        if found.isEmpty():
            return None
        texts = found.get().texts()
        return [texts.apply(index) for index in range(texts.length())]


def store(
    spark: SparkSession, registry: Registry, folder: Path | None = None, patience: float = 30, **keys: Any
) -> Store:
    return Store(spark, SchemaRegistry(**{"url": registry.url, **keys}), folder, patience)


def test_a_schema_is_asked_for_once_and_kept(spark: SparkSession, registry: Registry, tmp_path: Path) -> None:
    number = registry.register("events-value", EVENT)
    first = store(spark, registry, tmp_path / "schemas")
    assert [json.loads(text) for text in first.find(number) or ()] == [EVENT]
    first.find(number)
    assert registry.requests == ["/schemas/ids/1"]
    # A later driver, while the registry is away.
    registry.failures = [(500, "")] * 1000
    assert store(spark, registry, tmp_path / "schemas", patience=0).find(number)


def test_a_schema_is_found_by_its_uuid(spark: SparkSession, registry: Registry) -> None:
    registry.register("events-value", EVENT)
    assert store(spark, registry).find(registry.schemas[0]["guid"])


def test_references_come_before_the_schema_that_needs_them(spark: SparkSession, registry: Registry) -> None:
    registry.register("unit", {"type": "enum", "name": "Unit", "symbols": ["KG"]})
    unit = {"name": "Unit", "subject": "unit", "version": 1}
    weight = {"type": "record", "name": "Weight", "fields": [{"name": "unit", "type": "Unit"}]}
    registry.register("weight of a thing", weight, [unit])
    thing = {"type": "record", "name": "Thing", "fields": [{"name": "weight", "type": "Weight"}]}
    number = registry.register("thing", thing, [{"name": "Weight", "subject": "weight of a thing", "version": 1}, unit])
    names = [json.loads(text)["name"] for text in store(spark, registry).find(number) or ()]
    assert names == ["Unit", "Weight", "Thing"]


def test_schemas_that_refer_to_each_other_end(spark: SparkSession, registry: Registry) -> None:
    registry.register("a", EVENT, [{"name": "b", "subject": "b", "version": 1}])
    registry.register("b", OLD, [{"name": "a", "subject": "a", "version": 1}])
    assert store(spark, registry).find(1)
    assert len(registry.requests) == 3


def test_an_unknown_id_is_asked_for_once(spark: SparkSession, registry: Registry, tmp_path: Path) -> None:
    found = store(spark, registry, tmp_path / "schemas")
    assert (found.find(7), found.find(7)) == (None, None)
    assert registry.requests == ["/schemas/ids/7"]


def test_a_registry_that_is_away_is_waited_for(spark: SparkSession, registry: Registry) -> None:
    number = registry.register("events-value", EVENT)
    registry.failures = [(503, "away"), (500, ""), (429, "")]
    assert store(spark, registry).find(number)
    assert len(registry.requests) == 4


def test_another_address_is_asked_when_one_is_away(spark: SparkSession, registry: Registry) -> None:
    number = registry.register("events-value", EVENT)
    assert store(spark, registry, url=f"http://127.0.0.1:1, {registry.url}/").find(number)


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        ((503, ""), "answers 503; waited 0 s for it"),
        ((401, '{"error_code": 401, "message": "Unauthorized"}'), "correct schema_registry.api_key and api_secret"),
        ((403, ""), "answers 403"),
        ((404, "<html>no such page</html>"), "answers 404 (<html>no such page</html>)"),
        ((200, "<html>Welcome</html>"), "answers no JSON (<html>Welcome</html>); is it a schema registry?"),
        ((200, "{}"), "answers without a schema; is it a schema registry?"),
    ],
)
def test_a_registry_that_cannot_be_used_is_named(
    spark: SparkSession, registry: Registry, failure: tuple[int, str], expected: str
) -> None:
    registry.failures = [failure]
    with pytest.raises(Py4JJavaError) as raised:
        store(spark, registry, patience=0).find(1)
    message = raised.value.java_exception.getMessage()
    assert message.startswith(f"schema registry {registry.url}")
    assert expected in message


@pytest.mark.parametrize("status", [200, 404, 500])
def test_an_endless_answer_is_refused(spark: SparkSession, registry: Registry, status: int) -> None:
    registry.failures = [(status, " " * (MOST_BYTES + 1))]
    with pytest.raises(Py4JJavaError, match="answers with more than 16 MiB for one schema; is it a"):
        store(spark, registry).find(1)
    assert len(registry.requests) == 1


def test_a_schema_may_be_large_but_not_with_all_that_it_refers_to(spark: SparkSession, registry: Registry) -> None:
    large = json.dumps({"type": "enum", "name": "Unit", "symbols": ["KG"], "doc": "x" * (MOST_BYTES // 2)})
    names = ["one", "two"]
    for name in names:
        registry.register(name, large + " " * len(name))
    references = [{"name": name, "subject": name, "version": 1} for name in names]
    one, both = (registry.register("events-value", EVENT, references[:count]) for count in (1, 2))
    assert len((store(spark, registry).find(one) or ["", ""])[0]) > MOST_BYTES // 2
    with pytest.raises(Py4JJavaError, match="answers with more than 16 MiB for one schema"):
        store(spark, registry).find(both)


def test_an_id_that_is_none_for_the_registry_is_unknown(spark: SparkSession, registry: Registry) -> None:
    registry.failures = [(422, '{"error_code": 42201, "message": "not a schema id"}')]
    assert store(spark, registry, patience=0).find(4294967291) is None


def test_a_registry_without_uuids_does_not_know_one(spark: SparkSession, registry: Registry) -> None:
    unique = "00000000-0000-0000-0000-000000000009"
    registry.failures = [(404, "<html>no such page</html>"), (200, '["AVRO"]')]
    assert store(spark, registry, patience=0).find(unique) is None
    registry.failures = [(404, "<html>no such page</html>")] * 2
    with pytest.raises(Py4JJavaError, match="answers 404"):
        store(spark, registry, patience=0).find(unique)


def test_an_unknown_id_stays_unknown_in_a_repeated_batch_only(
    spark: SparkSession, registry: Registry, tmp_path: Path
) -> None:
    folder = tmp_path / "schemas"
    assert store(spark, registry, folder).find(1) is None
    registry.register("events-value", EVENT)
    # Outside of a task the batch has no number.
    assert store(spark, registry, folder).find(1) is None
    (folder / "unknown-").rename(folder / "unknown-7")
    assert store(spark, registry, folder).find(1) is not None
    assert not (folder / "unknown-7").exists()


def test_credentials_that_no_request_can_have_are_not_told(spark: SparkSession, registry: Registry) -> None:
    with pytest.raises(Py4JJavaError) as raised:
        store(spark, registry, patience=0, bearer_token="one\ntwo").find(1)
    message = raised.value.java_exception.getMessage()
    assert "credentials are not valid in a request" in message
    assert "ne\ntw" not in message
    assert "two" not in message


def test_an_address_where_nobody_listens_is_named(spark: SparkSession, registry: Registry) -> None:
    with pytest.raises(Py4JJavaError) as raised:
        store(spark, registry, patience=0, url="http://127.0.0.1:1").find(1)
    assert "schema registry http://127.0.0.1:1/schemas/ids/1: " in raised.value.java_exception.getMessage()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"api_key": "key", "api_secret": "secret"}, "Basic a2V5OnNlY3JldA=="),
        ({"bearer_token": "token"}, "Bearer token"),
    ],
)
def test_credentials_are_sent(spark: SparkSession, registry: Registry, keys: dict[str, str], expected: str) -> None:
    number = registry.register("events-value", EVENT)
    registry.authorization = expected
    assert store(spark, registry, **keys).find(number)
    with pytest.raises(Py4JJavaError, match="answers 401"):
        store(spark, registry).find(number)


OLD = {**EVENT, "fields": [{"name": "key", "type": "string"}, {"name": "n", "type": "int"}]}
READER = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "aliases": ["key"], "type": "string"},
        {"name": "n", "type": "long"},
        {"name": "unit", "type": {"type": "enum", "name": "Unit", "symbols": ["KG", "G"]}, "default": "KG"},
        {"name": "tags", "type": {"type": "array", "items": "string"}, "default": ["new"]},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def test_the_schema_of_a_definition_is_the_readers(spark: SparkSession, registry: Registry) -> None:
    """Its aliases and defaults stand for what a record's own schema does not have."""
    number = registry.register("events-value", OLD)
    fields = [
        SchemaField(name="id", type="string"), SchemaField(name="n", type="int"),
        SchemaField(name="unit", type="string"), SchemaField(name="tags", type="array"),
        SchemaField(name="note", type="string", required=False),
    ]  # fmt: skip
    source = Source(
        type="kafka", source_id="s", topic="t", connection_params=KafkaConnection(brokers=("b:1",)),
        schema_fields=tuple(fields), format="avro", schema=SourceSchema(file=json.dumps(READER)),
        schema_registry=SchemaRegistry(url=registry.url, api_key="me", api_secret="shh"),
    )  # fmt: skip
    assert source.schema_registry is not None
    settings = json.dumps(registry_settings(source.schema_registry, 30, None))
    spark._jvm.glassflow.RegistrySettings.declare("readers", settings)
    values = [b"\0" + number.to_bytes(4, "big") + b"\2x\x0a", b"\0\0\0\0\7", b"\0"]
    records = spark.createDataFrame(
        [(index, value, None) for index, value in enumerate(values)],
        "i int, value binary, headers array<struct<key string, value binary>>",
    )
    rows = decode(records, [decoder_of(source, fields, "readers")]).orderBy("i").select("fields.*", "error.reason")
    good, unknown, short = rows.drop("_error").collect()
    assert tuple(good) == ("x", 5, "KG", '["new"]', None, None)
    assert unknown.reason == "the schema registry has no schema with the id 7"
    assert short.reason == "the value is too short to hold a schema id"
    plan = rows._jdf.queryExecution().toString()
    assert "glassflow.AvroDecoder" in plan
    assert base64.b64encode(b"me:shh").decode() not in plan
