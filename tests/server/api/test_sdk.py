"""GlassFlow's SDK from PyPI, unmodified: each public method of both editions against the API."""

import copy
import json
import uuid
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import clickhouse_connect
import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic

from tests.server.api.conftest import Api, deduplicating
from tests.server.api.sdk import public_methods, recorded
from tests.servers.stack import Stack
from tests.support import definition as v3
from tests.support.sending import send
from tests.support.waiting import wait_until

# What needs a running pipeline; all other methods are called without one.
WITH_DRIVER = {
    "etl.Client.create_pipeline", "etl.Client.get_pipeline", "etl.Pipeline.create", "etl.Pipeline.get",
    "etl.Pipeline.health", "etl.Pipeline.update", "etl.Pipeline.rename", "etl.Pipeline.stop", "etl.Pipeline.resume",
    "etl.Pipeline.delete", "etl.Pipeline.dlq", "etl.DLQ.state", "etl.DLQ.consume", "etl.DLQ.purge",
    "ee.Client.get_pipeline", "ee.Pipeline.get", "ee.Pipeline.health", "ee.Pipeline.dlq", "ee.DLQ.state",
    "ee.DLQ.list", "ee.DLQ.list_iter", "ee.DLQ.consume", "ee.DLQ.reprocess", "ee.DLQ.reprocess_all", "ee.DLQ.discard",
    "ee.DLQ.discard_all", "ee.DLQ.purge",
}  # fmt: skip


@pytest.mark.parametrize("edition", ["etl", "ee"])
def test_definitions_by_the_sdk(api: Api, sdk: SimpleNamespace, tmp_path: Path, edition: str) -> None:
    module = getattr(sdk, edition)
    with recorded(sdk.etl, sdk.ee) as called:
        _use_definitions(api, module, sdk.errors, tmp_path)
    assert {*public_methods(module)} - called - WITH_DRIVER == set()


def _use_definitions(api: Api, module: Any, errors: Any, folder: Path) -> None:
    """Call what needs no running pipeline."""
    client = module.Client(host=api.url)
    client.disable_usagestats()
    assert client.list_pipelines() == []
    config = deduplicating()
    assert module.Pipeline.validate_config(config)
    created = client.create_pipeline(config)
    assert str(created.status) == "Created"
    with pytest.raises(errors.ConflictError, match="already exists"):
        client.create_pipeline(module.PipelineConfig.model_validate(config))
    api.wait_for("orders-clean", "Failed")  # these tests start no driver
    got = client.get_pipeline("orders-clean")
    expected = created.to_dict()
    expected["sink"]["connection_params"]["password"] = "********"
    assert got.to_dict() == expected
    assert str(got.status) == "Failed"
    [entry] = client.list_pipelines()
    assert (entry["pipeline_id"], entry["status"]) == ("orders-clean", "Failed")
    assert module.Pipeline(api.url, "orders-clean").get({"orders": "1"}).config == got.config
    with pytest.raises(errors.ValidationError, match="Invalid schema selection"):
        got.get({"orders": "7"})

    got.rename("New name")
    assert got.health()["pipeline_name"] == "New name"
    assert got.dlq.pipeline_id == "orders-clean"
    # The secret is not in what the SDK got and sends back, and stays.
    got.update({"sink": {"max_batch_size": 7}})
    assert client.get_pipeline("orders-clean").config.sink.max_batch_size == 7
    from glassflow_dagster.definition.load import load_pipeline

    stored = load_pipeline(api.folder / "orders-clean.yaml", {})
    assert stored.sink.connection_params.password.get_secret_value() == "s3cret"
    api.wait_for("orders-clean", "Failed")
    got.resume()
    api.wait_for("orders-clean", "Failed")
    with pytest.raises(errors.InvalidStatusTransitionError, match="from Failed to Stopping"):
        got.stop()
    client.stop_pipeline("orders-clean", terminate=True)
    api.wait_for("orders-clean", "Stopped")

    _write_and_read_files(module, client, got, folder)
    client.delete_pipeline("orders-clean")
    got.pipeline_id = "from-yaml"
    api.wait_for("from-yaml", "Failed")
    got.delete()
    _meet_errors(api, module, client, errors)
    _migrate(client)


def _write_and_read_files(module: Any, client: Any, got: Any, folder: Path) -> None:
    as_yaml, as_json = folder / "p.yaml", folder / "p.json"
    for file, write, read, name in (
        (as_yaml, got.to_yaml, module.Pipeline.from_yaml, "pipeline_config_yaml_path"),
        (as_json, got.to_json, module.Pipeline.from_json, "pipeline_config_json_path"),
    ):
        write(str(file))
        definition = {**yaml.safe_load(file.read_text()), "pipeline_id": f"from-{file.suffix[1:]}"}
        definition["sink"]["connection_params"]["password"] = "another"
        definition["sink"]["table"] = file.suffix[1:]
        file.write_text(json.dumps(definition))
        assert read(str(file), host=client.host).to_dict()["sink"]["table"] == file.suffix[1:]
        created = client.create_pipeline(**{name: str(file)})
        assert client.get_pipeline(created.pipeline_id).to_dict()["pipeline_id"] == definition["pipeline_id"]


def _meet_errors(api: Api, module: Any, client: Any, errors: Any) -> None:
    for call in (
        lambda: client.get_pipeline("nothing"), lambda: client.delete_pipeline("nothing"),
        lambda: client.stop_pipeline("nothing"), module.Pipeline(api.url, "nothing").dlq.state,
        module.Pipeline(api.url, "nothing").resume,
    ):  # fmt: skip
        with pytest.raises(errors.PipelineNotFoundError, match="'nothing' not found"):
            call()
    wrong = deduplicating("wrong-column")
    wrong["sink"]["mapping"][0]["name"] = "misspelt"
    with pytest.raises(errors.PipelineInvalidConfigurationError, match=r"sink\.mapping\[0\]\.name: .*misspelt"):
        client.create_pipeline(wrong)
    masked = deduplicating("masked-one", password="********")
    with pytest.raises(errors.PipelineInvalidConfigurationError, match="no secret is stored here"):
        client.create_pipeline(masked)
    if hasattr(module.Pipeline, "get_streams"):
        with pytest.raises(errors.APIError, match="feature not implemented for this version") as raised:
            module.Pipeline(api.url, "from-json").get_streams()
        assert raised.value.status_code == 501


def _migrate(client: Any) -> None:
    v2 = {
        "version": "v2", "pipeline_id": "rides-v2", "name": "Rides",
        "source": {
            "type": "kafka",
            "connection_params": {"brokers": ["127.0.0.1:1"], "protocol": "PLAINTEXT", "mechanism": "NO_AUTH"},
            "topics": [{"name": "rides", "consumer_group_initial_offset": "earliest",
                        "deduplication": {"enabled": True, "id_field": "id", "time_window": "1h"}}],
        },
        "schema": {"fields": [{"source_id": "rides", "name": "id", "type": "string", "column_name": "id",
                               "column_type": "String"}]},
        "sink": {"type": "clickhouse", "table": "rides", "max_batch_size": 10, "max_delay_time": "1s",
                 "connection_params": {"host": "127.0.0.1", "port": "9000", "database": "d", "username": "u",
                                       "password": "czNjcmV0", "secure": False}},
    }  # fmt: skip
    migrated = client.migrate_pipeline_v2_to_v3(v2)
    assert migrated.sink.connection_params.password == "s3cret"
    assert [field.name for field in migrated.sources[0].schema_fields] == ["id"]
    assert migrated.transforms[0].config.key == "id"


def test_the_sdk_sends_a_token_that_is_in_its_address(serve: Callable[..., Api], sdk: SimpleNamespace) -> None:
    api = serve("t0ken")
    assert sdk.etl.Client(host=api.url.replace("//", "//api:t0ken@")).list_pipelines() == []
    with pytest.raises(sdk.errors.APIError, match="401"):
        sdk.etl.Client(host=api.url).list_pipelines()


class Flow:
    """The topic, table and definition of a deduplicating pipeline on the embedded servers."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.name = f"sdk{uuid.uuid4().hex[:10]}"
        self.client = clickhouse_connect.get_client(
            host="127.0.0.1", port=stack.clickhouse_port, autogenerate_session_id=False
        )
        self.client.command(f"CREATE DATABASE {self.name}")
        self.client.command(f"CREATE TABLE {self.name}.orders (id String, n Int64) ENGINE MergeTree ORDER BY id")
        admin = AdminClient({"bootstrap.servers": stack.kafka})
        admin.create_topics([NewTopic(self.name, 1)])[self.name].result(60)

    @property
    def definition(self) -> dict[str, Any]:
        """The definition as a user of the SDK writes it: no key that GlassFlow does not know."""
        return v3.definition(
            self.name,
            v3.source(
                "orders", v3.fields(id="string", n="int"), self.stack.kafka, topic=self.name,
                consumer_group_initial_offset="earliest",
            ),
            v3.sink(
                {"id": "String", "n": "Int64"}, v3.clickhouse(self.stack.clickhouse_port, self.name), table="orders",
                max_batch_size=1000, max_delay_time="200ms",
            ),
            v3.dedup("orders", "id", time_window="1h"),
        )  # fmt: skip

    def send(self, *values: bytes) -> None:
        send(self.stack.kafka, self.name, values)

    def rows(self) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.client.query(f"SELECT id, n FROM {self.name}.orders ORDER BY n").result_rows]

    def wait_for_rows(self, *rows: tuple[str, int]) -> None:
        wait_until(lambda: self.rows() == [*rows], f"the table has {rows}", evidence=self.rows)


def event(key: str, number: int) -> bytes:
    return json.dumps({"id": key, "n": number}).encode()


@pytest.mark.timeout(900)
@pytest.mark.long
def test_a_deduplicating_pipeline_by_the_sdk(serve: Callable[..., Api], stack: Stack, sdk: SimpleNamespace) -> None:
    """It is created, runs, is edited, stopped, terminated, resumed and deleted; its table has each key once."""
    api, flow = serve(), Flow(stack)
    flow.send(event("a", 1), event("b", 2), event("a", 3), b"no json", event("c", 4))
    with recorded(sdk.etl, sdk.ee) as called:
        pipeline = sdk.etl.Client(host=api.url).create_pipeline(flow.definition)
        api.wait_for(flow.name, "Running")
        flow.wait_for_rows(("a", 1), ("b", 2), ("c", 4))
        _wait_for_outcomes(api, flow, read=5, written=3, duplicates=1, dead_letters=1)
        _consume(pipeline, flow)
        _manage_dead_letters(api, sdk, flow)
        _stop_edit_and_resume(api, sdk, pipeline, flow)
        pipeline.stop()
        api.wait_for(flow.name, "Stopped")
        _delete_dead_letters(api, sdk, pipeline, flow)
        pipeline.delete()
        with pytest.raises(sdk.errors.PipelineNotFoundError):
            sdk.etl.Client(host=api.url).get_pipeline(flow.name)
    assert WITH_DRIVER - called == set()


def _wait_for_outcomes(api: Api, flow: Flow, **expected: int) -> None:
    def outcomes() -> dict[str, int]:
        records = api.get(f"/api/v1/pipeline/{flow.name}/metrics").json()["records"]
        return {name: records[name] for name in expected}

    wait_until(lambda: outcomes() == expected, f"the outcomes are {expected}", evidence=outcomes)


def _consume(pipeline: Any, flow: Flow) -> None:
    state = pipeline.dlq.state()
    assert (state["total_messages"], state["unconsumed_messages"], state["last_consumed_at"]) == (1, 1, None)
    assert state["last_received_at"]
    [message] = pipeline.dlq.consume()
    assert (message["component"], message["original_message"]) == ("ingestor", "no json")
    assert "not JSON" in message["error"] or "JSON" in message["error"]
    assert (message["topic"], message["offset"]) == (flow.name, 3)
    assert pipeline.dlq.consume(1) == []
    state = pipeline.dlq.state()
    assert (state["total_messages"], state["unconsumed_messages"]) == (1, 0)
    assert state["last_consumed_at"]


def _manage_dead_letters(api: Api, sdk: SimpleNamespace, flow: Flow) -> None:
    """List and replay with the Enterprise edition's client; a replayed record fails again, as a new dead letter."""
    queue = sdk.ee.Client(host=api.url).get_pipeline(flow.name).dlq
    assert queue.state()["total_messages"] == 1
    page = queue.list(batch_size=1)
    [message] = page["messages"]
    assert (page["has_more"], message["original_message"], message["attempt"]) == (False, "no json", 0)
    assert list(queue.list_iter(component="sink")) == []
    assert list(queue.list_iter(component="ingestor")) == [message]
    with pytest.warns(DeprecationWarning, match="consume"):
        assert queue.consume() == [message]
    unknown = message["message_id"][:-4] + "AAAA"
    with pytest.raises(sdk.errors.ValidationError, match="message_id is invalid"):
        queue.reprocess([unknown])
    accepted = queue.reprocess([message["message_id"]])
    assert (accepted["status"], accepted["request_id"][:14]) == ("accepted", "dlq-reprocess-")
    [again] = _wait_for_attempts(queue, 1)
    assert again["original_message"] == "no json"
    gone = queue.reprocess([message["message_id"]])
    assert gone["missing_message_ids"] == [message["message_id"]]
    assert queue.reprocess_all()["status"] == "accepted"
    _wait_for_attempts(queue, 2)
    flow.send(b"still no json", b"")
    pages = wait_until(lambda: _pages(queue, 3), "there are three dead letters")
    assert [each["original_message"] for each in pages] == ["no json", "still no json", ""]


def _wait_for_attempts(queue: Any, *attempts: int) -> list[dict[str, Any]]:
    """Wait until the dead letters that wait are those of these attempts; return them."""

    def found() -> list[dict[str, Any]] | None:
        messages: list[dict[str, Any]] = queue.list()["messages"]
        return messages if [each["attempt"] for each in messages] == [*attempts] else None

    messages: list[dict[str, Any]] = wait_until(found, f"the attempts are {attempts}", evidence=queue.list)
    return messages


def _pages(queue: Any, number: int) -> list[dict[str, Any]] | None:
    """Return so many dead letters, which were listed one at a time; None while there are fewer."""
    found = list(queue.list_iter(batch_size=1))
    return found if len(found) == number else None


def _stop_edit_and_resume(api: Api, sdk: SimpleNamespace, pipeline: Any, flow: Flow) -> None:
    with pytest.raises(sdk.errors.ValidationError, match="must be stopped before editing, current status: Running"):
        pipeline.update({"sink": {"max_batch_size": 10}})
    with pytest.raises(sdk.errors.PipelineDeletionStateViolationError):
        pipeline.delete()
    pipeline.rename("Renamed while it runs")
    pipeline.stop()
    api.wait_for(flow.name, "Stopped")
    with pytest.raises(sdk.errors.InvalidStatusTransitionError):
        pipeline.stop()
    queue = sdk.ee.Client(host=api.url).get_pipeline(flow.name).dlq
    with pytest.raises(sdk.errors.PipelineNotRunningError):
        queue.reprocess_all()
    transforms = [*flow.definition["transforms"], v3.filter_transform("orders", "n < 100")]
    pipeline.update({"transforms": transforms})
    api.wait_for(flow.name, "Running")
    flow.send(event("a", 5), event("d", 6), event("e", 100))
    flow.wait_for_rows(("a", 1), ("b", 2), ("c", 4), ("d", 6))
    pipeline.stop(terminate=True)
    api.wait_for(flow.name, "Stopped")
    flow.send(event("f", 7), event("d", 8))
    pipeline.resume()
    api.wait_for(flow.name, "Running")
    flow.wait_for_rows(("a", 1), ("b", 2), ("c", 4), ("d", 6), ("f", 7))
    assert pipeline.health()["pipeline_name"] == "Renamed while it runs"
    assert [version["version"] for version in api.get(f"/api/v1/pipeline/{flow.name}/history").json()] == [3, 2, 1]


def _delete_dead_letters(api: Api, sdk: SimpleNamespace, pipeline: Any, flow: Flow) -> None:
    queue = sdk.ee.Client(host=api.url).get_pipeline(flow.name).dlq
    messages = queue.list()["messages"]
    assert len(messages) == 3
    assert queue.discard([messages[0]["message_id"]])["discarded_count"] == 1
    assert queue.discard([messages[0]["message_id"]])["discarded_count"] == 0
    assert queue.list()["messages"] == messages[1:]
    assert queue.discard_all()["discarded_count"] == 2
    assert queue.list() == {"messages": [], "has_more": False}
    total = queue.state()["total_messages"]
    pipeline.dlq.purge()
    with warnings.catch_warnings(record=True):
        queue.purge()
    # Each is still counted, as the ledger does.
    assert queue.state()["total_messages"] == total


def test_definitions_are_not_changed_by_being_sent(api: Api, sdk: SimpleNamespace) -> None:
    config = deduplicating()
    before = copy.deepcopy(config)
    sdk.etl.Client(host=api.url).create_pipeline(config)
    assert config == before
