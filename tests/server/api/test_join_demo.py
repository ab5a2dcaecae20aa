"""A script as GlassFlow's article on joins has it: only the address of the API is another one."""

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import clickhouse_connect
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.server.api.conftest import Api
from tests.servers.stack import Stack
from tests.support import definition as v3
from tests.support.sending import send
from tests.support.waiting import wait_until

RIGHT_RECORDS, LEFT_RECORDS = 50, 200


def join_pipeline(name: str, stack: Stack) -> dict[str, Any]:
    """Return the content of the script's join_pipeline.json."""
    orders = v3.fields(order_id="string", user_id="string", amount="int", price="float64", created_at="string")
    users = v3.fields(event_id="string", user_id="string", name="string", email="string", created_at="string")
    side = {"key": "user_id", "time_window": "1h"}
    outputs = {
        "orders": {each: each for each in ("order_id", "user_id", "amount", "price", "created_at")},
        "user_events": {"name": "user_name", "email": "user_email"},
    }
    return {
        "version": "v3", "pipeline_id": name, "name": "Orders with users",
        "sources": [
            v3.source(
                source_id, fields, stack.kafka, topic=f"{name}-{source_id}", consumer_group_initial_offset="earliest"
            )
            for source_id, fields in (("orders", orders), ("user_events", users))
        ],
        "join": {
            "enabled": True, "type": "temporal",
            "left_source": {"source_id": "orders", **side}, "right_source": {"source_id": "user_events", **side},
            "output_fields": [
                {"source_id": source_id, "name": field, "output_name": output}
                for source_id, names in outputs.items() for field, output in names.items()
            ],
        },
        "sink": v3.sink(
            {"order_id": "UUID", "user_id": "UUID", "user_name": "String", "user_email": "String", "amount": "Int64",
             "price": "Float64", "created_at": "DateTime"},
            v3.clickhouse(stack.clickhouse_port, name), table="enriched_orders", max_batch_size=1000,
            max_delay_time="1s",
        ),
    }  # fmt: skip


def demo_join(client: Any, file: Path, stack: Stack) -> list[tuple[Any, ...]]:
    """Prepare topics and table, create the pipeline, send both streams, and return the joined rows."""
    config = json.loads(file.read_text())
    database = config["sink"]["connection_params"]["database"]
    clickhouse = clickhouse_connect.get_client(host="127.0.0.1", port=stack.clickhouse_port)
    columns = ", ".join(f"{each['column_name']} {each['column_type']}" for each in config["sink"]["mapping"])
    clickhouse.command(f"CREATE DATABASE {database}")
    clickhouse.command(f"CREATE TABLE {database}.enriched_orders ({columns}) ENGINE MergeTree ORDER BY order_id")
    topics = [source["topic"] for source in config["sources"]]
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    for created in admin.create_topics([NewTopic(topic, 1) for topic in topics]).values():
        created.result(60)
    client.create_pipeline(pipeline_config_json_path=str(file))
    user_ids = [str(uuid.uuid4()) for _ in range(RIGHT_RECORDS)]
    at = "2026-01-31T00:00:00Z"
    send(stack.kafka, topics[1], map(json.dumps, (
        {"event_id": str(uuid.uuid4()), "user_id": user_id, "name": f"user {index}", "email": f"{index}@users.test",
         "created_at": at}
        for index, user_id in enumerate(user_ids)
    )))  # fmt: skip
    send(stack.kafka, topics[0], map(json.dumps, (
        {"order_id": str(uuid.uuid4()), "user_id": user_ids[index % RIGHT_RECORDS], "amount": index, "price": 0.5,
         "created_at": at}
        for index in range(LEFT_RECORDS)
    )))  # fmt: skip
    query = f"SELECT amount, user_name, user_email FROM {database}.enriched_orders ORDER BY amount"

    def rows() -> list[tuple[Any, ...]]:
        return [tuple(row) for row in clickhouse.query(query).result_rows]

    wait_until(lambda: len(rows()) >= LEFT_RECORDS, "all orders are joined", evidence=lambda: len(rows()))
    return rows()


@pytest.mark.timeout(600)
@pytest.mark.long
def test_the_demo_of_the_article_on_joins(
    serve: Callable[..., Api], stack: Stack, sdk: SimpleNamespace, tmp_path: Path
) -> None:
    api, name = serve(), f"demo{uuid.uuid4().hex[:10]}"
    file = tmp_path / "join_pipeline.json"
    file.write_text(json.dumps(join_pipeline(name, stack)))
    rows = demo_join(sdk.etl.Client(host=api.url), file, stack)
    assert rows == [
        (index, f"user {index % RIGHT_RECORDS}", f"{index % RIGHT_RECORDS}@users.test") for index in range(LEFT_RECORDS)
    ]
    [entry] = api.get("/api/v1/pipeline").json()
    assert (entry["transformation_type"], entry["status"]) == ("Join", "Running")
    sdk.etl.Client(host=api.url).stop_pipeline(name, terminate=True)
    api.wait_for(name, "Stopped")
