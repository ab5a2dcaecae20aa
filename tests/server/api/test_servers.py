"""Kafka and ClickHouse by HTTP: connections, topics, records, databases, tables, columns, proposals."""

import json
import uuid
from typing import Any

import clickhouse_connect
import pytest

from tests.server.api.conftest import Api, deduplicating
from tests.servers.stack import Stack
from tests.support import definition as v3
from tests.support.sending import Sender
from tests.support.waiting import wait_until

NOWHERE = {"brokers": [v3.NOWHERE], **v3.PLAINTEXT}
KAFKA = ("test-connection", "topics", "events")
CLICKHOUSE = ("test-connection", "databases", "tables", "columns")


def kafka(stack: Stack) -> dict[str, Any]:
    return {"brokers": [stack.kafka], **v3.PLAINTEXT}


@pytest.fixture
def topic(stack: Stack) -> str:
    """Create a topic with three records."""
    name = f"api-{uuid.uuid4().hex}"
    sender = Sender(stack.kafka)
    for number in range(3):
        value = json.dumps({"order_id": f"o{number}", "amount": number})
        sender.send(name, value, b"\xff", 0, headers=[("h", b"1")])
    sender.flush()
    return name


@pytest.mark.servers
def test_topics_and_records_of_brokers(api: Api, stack: Stack, topic: str) -> None:
    body = {"connection_params": kafka(stack)}
    tested = api.post("/api/v1/kafka/test-connection", body).json()
    assert tested["success"]
    assert tested["message"].endswith("topics")
    assert {"name": topic, "partitions": 1} in api.post("/api/v1/kafka/topics", body).json()
    records = api.post("/api/v1/kafka/events", {**body, "topic": topic, "limit": 2}).json()
    assert [record["offset"] for record in records] == [1, 2]
    assert records[1] == {
        "partition": 0, "offset": 2, "key": {"base64": "/w=="}, "value": '{"order_id": "o2", "amount": 2}',
        "headers": [["h", "1"]],
    }  # fmt: skip
    missing = api.post("/api/v1/kafka/events", {**body, "topic": "nothing"})
    assert missing.status_code == 422
    assert "topic 'nothing' does not exist" in missing.json()["message"]


@pytest.mark.servers
def test_a_pipelines_connection_is_used_without_sending_it(api: Api, stack: Stack, topic: str) -> None:
    definition = deduplicating()
    definition["sources"][0]["connection_params"] = kafka(stack)
    definition["sink"]["connection_params"] = v3.clickhouse(stack.clickhouse_port)
    api.write(definition)
    for body in ({"pipeline_id": "orders-clean"}, {"pipeline_id": "orders-clean", "source_id": "orders"}):
        assert topic in {each["name"] for each in api.post("/api/v1/kafka/topics", body).json()}
    assert api.post("/api/v1/clickhouse/databases", {"pipeline_id": "orders-clean"}).status_code == 200
    unknown = api.post("/api/v1/kafka/topics", {"pipeline_id": "orders-clean", "source_id": "other"})
    assert unknown.status_code == 404


@pytest.mark.servers
def test_databases_tables_and_columns_of_a_server(api: Api, stack: Stack) -> None:
    database = f"api{uuid.uuid4().hex}"
    client = clickhouse_connect.get_client(host="127.0.0.1", port=stack.clickhouse_port)
    client.command(f"CREATE DATABASE {database}")
    client.command(f"CREATE TABLE {database}.orders (id String, n Int64 DEFAULT 7) ENGINE MergeTree ORDER BY id")
    connection = v3.clickhouse(stack.clickhouse_port)
    del connection["database"]
    body = {"connection_params": connection}
    tested = api.post("/api/v1/clickhouse/test-connection", body).json()
    assert (tested["success"], tested["message"][:11]) == (True, "ClickHouse ")
    databases = api.post("/api/v1/clickhouse/databases", body).json()
    assert database in databases
    assert "system" not in databases
    body = {**body, "database": database}
    assert api.post("/api/v1/clickhouse/tables", body).json() == [{"name": "orders", "engine": "MergeTree"}]
    assert api.post("/api/v1/clickhouse/columns", {**body, "table": "orders"}).json() == [
        {"name": "id", "type": "String", "default_kind": "", "default_expression": ""},
        {"name": "n", "type": "Int64", "default_kind": "DEFAULT", "default_expression": "7"},
    ]
    assert api.post("/api/v1/clickhouse/columns", {**body, "table": "nothing'"}).json() == []


@pytest.mark.servers
def test_a_definition_is_proposed_for_a_topic(api: Api, stack: Stack, topic: str) -> None:
    connection = {**kafka(stack), "username": "me", "password": "s3cret", "skip_auth": True}
    answer = api.post("/api/v1/infer", {
        "topic": topic, "connection_params": connection, "new_pipeline_id": "proposed",
        "clickhouse_connection_params": {**v3.clickhouse(stack.clickhouse_port), "password": "s3cret"},
    })  # fmt: skip
    assert answer.status_code == 200, answer.text
    proposal = answer.json()
    definition = proposal["definition"]
    assert (proposal["pipeline_id"], definition["pipeline_id"], proposal["messages"]) == ("proposed", "proposed", 3)
    assert [field["name"] for field in definition["sources"][0]["schema_fields"]] == ["order_id", "amount"]
    assert definition["transforms"][0]["config"]["key"] == "order_id"
    assert "# " in proposal["yaml"]
    assert "s3cret" not in answer.text
    secrets = (definition["sources"][0]["connection_params"], definition["sink"]["connection_params"])
    assert [each["password"] for each in secrets] == ["********", "********"]
    # It is valid as soon as the secrets are there.
    for each in secrets:
        each["password"] = "s3cret"
    assert api.post("/api/v1/pipeline/validate", definition).json()["valid"]


def test_a_server_that_does_not_answer_is_told(api: Api) -> None:
    tested = api.post("/api/v1/kafka/test-connection", {"connection_params": NOWHERE}).json()
    assert not tested["success"]
    assert f"Kafka's brokers at {v3.NOWHERE} do not answer" in tested["message"]
    tested = api.post("/api/v1/clickhouse/test-connection", {"connection_params": v3.clickhouse()}).json()
    assert not tested["success"]
    assert "ClickHouse at 127.0.0.1:1 cannot be reached" in tested["message"]
    answer = api.post("/api/v1/clickhouse/databases", {"connection_params": v3.clickhouse()})
    assert (answer.status_code, answer.json()["code"]) == (422, "unprocessable_entity")


@pytest.mark.parametrize(("body", "field", "text"), [
    ({}, "connection_params", "is missing"),
    ({"connection_params": {}}, "connection_params.brokers", "is missing"),
    ({"connection_params": {**NOWHERE, "brokers": "x"}}, "connection_params.brokers", "must be a list"),
    ({"connection_params": {**NOWHERE, "username": "${HOME}"}}, "connection_params.username", "refers to the server's"),
    ({"connection_params": {**NOWHERE, "brokers": ["${HOME}"]}}, "connection_params.brokers[0]", "refers to"),
    ({"connection_params": {**NOWHERE, "password": "********"}}, "connection_params.password", "no secret is stored"),
])  # fmt: skip
def test_a_wrong_connection_is_told(api: Api, body: dict[str, Any], field: str, text: str) -> None:
    answer = api.post("/api/v1/kafka/topics", body)
    assert answer.status_code == 422
    [error] = answer.json()["errors"]
    assert error["field"] == field
    assert text in error["message"]


def test_a_server_that_does_not_answer_holds_up_no_other_request(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from concurrent.futures import ThreadPoolExecutor

    from glassflow_dagster.server.api.routes import servers

    going: list[bool] = []
    asked: list[bool] = []

    def hang(_connection: object) -> dict[str, int]:
        asked.append(True)
        wait_until(lambda: going, "the test goes on")
        return {}

    monkeypatch.setattr(servers, "list_topics", hang)
    body = {"connection_params": NOWHERE}
    with ThreadPoolExecutor(60) as clients:
        waiting = [clients.submit(api.post, "/api/v1/kafka/topics", body) for _ in range(60)]
        wait_until(lambda: len(asked) == 16, "as many threads as may wait do")
        assert api.get("/api/v1/pipeline").json() == []
        going.append(True)
        assert {each.result().status_code for each in waiting} == {200}
