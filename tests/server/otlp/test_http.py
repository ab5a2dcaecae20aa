"""The HTTP transport: what is accepted, and the specification's answer to everything else."""

import asyncio
import gzip
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from starlette.requests import Request

from glassflow_dagster.server.otlp import http_server
from glassflow_dagster.server.otlp.admission import Admission, Token
from glassflow_dagster.server.otlp.budget import Budget
from glassflow_dagster.server.otlp.encoding import Encoding
from glassflow_dagster.server.otlp.receiver_metrics import ReceiverMetrics
from glassflow_dagster.server.otlp.refusals import Reason, Refusal
from tests.server.otlp.conftest import PROTOBUF, Receiver, span_names, traces, values
from tests.servers.stack import Stack
from tests.support.waiting import wait_until

pytestmark = pytest.mark.servers
JSON = "application/json"
LARGEST = 100_000
SMALL_MESSAGES = 10_000


@pytest.fixture(scope="module")
def receiver(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """Share a receiver of traces without topic for logs; its topic is created by it."""
    options = ("--traces-topic", "otlp-http", "--create-topics", "--max-request-bytes", str(LARGEST))
    running = Receiver(tmp_path_factory.mktemp("otlp"), "--brokers", stack.kafka, *options).wait_until_it_listens()
    yield running
    assert running.end() == 0


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_request_is_written_as_protobuf_and_answered_in_its_encoding(
    stack: Stack, receiver: Receiver, encoding: Encoding, compressed: bool
) -> None:
    request = traces([f"{encoding.format_name} {compressed}"])
    body = encoding.encode(request)
    headers = {"content_type": f"{encoding.media_type}; charset=utf-8"}
    if compressed:
        # gzip allows several members.
        body = gzip.compress(body[:10]) + gzip.compress(body[10:])
        headers["content_encoding"] = "gzip"
    answer = receiver.post(body, **headers)
    assert (answer.status_code, answer.headers["content-type"]) == (200, encoding.media_type)
    assert answer.content == (b"{}" if encoding is Encoding.JSON else b"")
    assert [each for each in values(stack, "otlp-http") if ExportTraceServiceRequest.FromString(each) == request] == [
        request.SerializeToString()
    ]


def test_a_request_without_records_is_accepted_and_not_written(stack: Stack, receiver: Receiver) -> None:
    before = len(values(stack, "otlp-http"))
    assert receiver.post(b"").status_code == 200
    assert receiver.post(b"{}", content_type=JSON).json() == {}
    assert len(values(stack, "otlp-http")) == before


VALID = traces(["never written"]).SerializeToString()
BOMB = gzip.compress(bytes(50_000_000))
REFUSED: dict[str, tuple[dict[str, Any], int, int, str]] = {
    "garbage protobuf": ({"content": b"\xff\xff\xff"}, 400, 3, "no Protobuf message"),
    "only unknown fields": ({"content": b"\x28\x01"}, 400, 3, "has no resource_spans"),
    "garbage json": ({"content": b"{", "type": JSON}, 400, 3, "OTLP's JSON encoding"),
    "another signal": ({"content": b'{"resourceLogs": [{}]}', "type": JSON}, 400, 3, "has no resource_spans"),
    "no gzip": ({"content": VALID, "encoding": "gzip"}, 400, 3, "is no gzip"),
    "half of a gzip": ({"content": gzip.compress(VALID)[:-9], "encoding": "gzip"}, 400, 3, "in the middle of its gzip"),
    "an empty gzip": ({"content": b"", "encoding": "gzip"}, 400, 3, "in the middle of its gzip"),
    "rest after a gzip": ({"content": gzip.compress(VALID) + b"rest", "encoding": "gzip"}, 400, 3, "is no gzip"),
    "another encoding": ({"content": VALID, "encoding": "zstd"}, 415, 3, "'zstd' is not received; send gzip"),
    "another type": ({"content": VALID, "type": "text/plain"}, 415, 3, "'text/plain' is not received; send appl"),
    "no type": ({"content": VALID, "type": None}, 415, 3, "send application/x-protobuf or application/json"),
    "too large": ({"content": bytes(LARGEST + 1)}, 413, 8, "more than 100,000 bytes"),
    "a bomb": ({"content": BOMB, "encoding": "gzip"}, 413, 8, "more than 100,000 bytes; reduce the exporter's batch"),
    "a bomb in json": ({"content": BOMB, "encoding": "gzip", "type": JSON}, 413, 8, "more than 100,000 bytes"),
    "another method": ({"content": VALID, "method": "PUT"}, 405, 12, "PUT /v1/traces is not served; use POST"),
    "another path": ({"content": VALID, "path": "/v1/trace"}, 404, 12, "send to /v1/traces, /v1/logs, /v1/metrics"),
    "a signal without topic": ({"content": VALID, "path": "/v1/logs"}, 404, 12, "start it with --logs-topic"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_request_is_refused_with_a_status_and_not_written(stack: Stack, receiver: Receiver, case: str) -> None:
    parts, code, grpc_code, reason = REFUSED[case]
    before = len(values(stack, "otlp-http"))
    headers = {"Content-Type": parts.get("type", PROTOBUF), "Content-Encoding": parts.get("encoding")}
    answer = httpx.request(
        parts.get("method", "POST"), f"{receiver.url}{parts.get('path', '/v1/traces')}", content=parts["content"],
        headers={name: value for name, value in headers.items() if value}, timeout=60,
    )  # fmt: skip
    assert answer.status_code == code, answer.text
    if parts.get("type", PROTOBUF) == PROTOBUF:
        assert answer.headers["content-type"] == PROTOBUF
        status = Status.FromString(answer.content)
        found = (status.code, status.message, len(status.details))
    else:
        assert answer.headers["content-type"] == JSON
        found = (answer.json()["code"], answer.json()["message"], 0)
    assert found[0] == grpc_code
    assert reason in found[1]
    assert found[2] == 0, "no RetryInfo: the same request will never be accepted"
    assert "retry-after" not in answer.headers
    assert (answer.headers.get("allow") == "POST") == (code == 405)
    assert len(values(stack, "otlp-http")) == before


def test_a_bomb_needs_no_memory(receiver: Receiver) -> None:
    def peak() -> int:
        [line] = [
            each for each in Path(f"/proc/{receiver.process.pid}/status").read_text().splitlines() if "VmHWM" in each
        ]
        return int(line.split()[1])

    before = peak()
    for _ in range(3):
        assert receiver.post(gzip.compress(bytes(500_000_000)), content_encoding="gzip").status_code == 413
    assert peak() - before < 50_000, "KiB"


def test_a_client_that_leaves_in_the_middle_does_no_harm(receiver: Receiver) -> None:
    port = int(receiver.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(
            b"POST /v1/traces HTTP/1.1\r\nHost: x\r\n"
            b"Content-Type: application/x-protobuf\r\nContent-Length: 99\r\n\r\nab"
        )
    wait_until(lambda: 'code="400",signal="traces",transport="http"' in receiver.metrics(), "it is counted")
    wait_until(lambda: "glassflow_otlp_open_request_bytes 0.0" in receiver.metrics(), "its memory is free")
    assert receiver.post(traces(["afterwards"]).SerializeToString()).status_code == 200
    assert "Traceback" not in receiver.said


def test_health_and_metrics_are_served(receiver: Receiver) -> None:
    assert receiver.post(traces(["a", "b"]).SerializeToString()).status_code == 200
    assert receiver.post(b"\xff").status_code == 400
    health = httpx.get(f"{receiver.url}/healthz")
    assert (health.status_code, health.text) == (200, "ok\n")
    metrics = receiver.metrics()
    for sample in (
        'glassflow_otlp_requests_total{code="200",signal="traces",transport="http"}',
        'glassflow_otlp_requests_total{code="400",signal="traces",transport="http"}',
        'glassflow_otlp_records_total{outcome="accepted",signal="traces"}',
        'glassflow_otlp_messages_total{topic="otlp-http"}',
        'glassflow_otlp_message_bytes_total{topic="otlp-http"}',
        'glassflow_otlp_acknowledgement_seconds_count{topic="otlp-http"}',
        "glassflow_otlp_queued_bytes 0.0",
        "glassflow_otlp_kafka_answer_age_seconds",
    ):
        assert sample in metrics
    assert metrics.endswith("# EOF\n")


def test_a_request_larger_than_a_message_becomes_several(
    stack: Stack, start: Callable[..., Receiver], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(max_message_bytes=str(SMALL_MESSAGES))
    receiver = start("--traces-topic", topic)
    names = [f"span {number}" for number in range(1000)]
    request = traces(names, "x" * 100)
    request.resource_spans[0].scope_spans[0].spans.add(name="y" * SMALL_MESSAGES)
    answer = receiver.post(request.SerializeToString())
    assert answer.status_code == 200
    partial = ExportTraceServiceResponse.FromString(answer.content).partial_success
    assert partial.rejected_spans == 1
    assert "raise max.message.bytes of the topic" in partial.error_message
    messages = values(stack, topic)
    assert len(messages) > 10
    assert max(map(len, messages)) < SMALL_MESSAGES
    assert span_names(messages) == sorted(names)
    answer = receiver.post(Encoding.JSON.encode(request), content_type=JSON)
    assert answer.json()["partialSuccess"]["rejectedSpans"] == "1"
    assert 'glassflow_otlp_records_total{outcome="rejected",signal="traces"} 2.0' in receiver.metrics()
    # Many at once, which the producer sends in batches that the topic must take, too.
    for _ in range(5):
        assert receiver.post(traces(names).SerializeToString()).status_code == 200


def test_messages_can_be_written_as_json(
    stack: Stack, start: Callable[..., Receiver], new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    receiver = start("--traces-topic", topic, "--format", "otlp_json")
    request = traces(["one"])
    assert receiver.post(request.SerializeToString()).status_code == 200
    own = json.dumps(json.loads(Encoding.JSON.encode(traces(["two"]))), indent=1).encode()
    assert receiver.post(own, content_type=JSON).status_code == 200
    assert sorted(values(stack, topic)) == sorted([Encoding.JSON.encode(request), own])


def test_a_limit_that_is_lowered_later_loses_nothing(
    stack: Stack, start: Callable[..., Receiver], new_topic: Callable[..., str]
) -> None:
    topic = new_topic()
    receiver = start("--traces-topic", topic)
    admin = AdminClient({"bootstrap.servers": stack.kafka})
    lower = ConfigEntry("max.message.bytes", "10000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[lower])
    admin.incremental_alter_configs([resource])[resource].result(60)
    # Random, so that it is not compressed below the limit.
    request = traces(["large"], os.urandom(20_000).hex())
    refused = wait_until(
        lambda: (answer := receiver.post(request.SerializeToString())).status_code == 503 and answer,
        "the broker has the new limit",
    )
    assert "start the receiver again" in Status.FromString(refused.content).message


def test_a_body_that_does_not_arrive_ends_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "BODY_SECONDS", 0.01)

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    admission = Admission(Token(), Budget(1000, "requests"), 1000)
    endpoints = http_server.HttpEndpoints(Mock(), admission, ReceiverMetrics(), str)
    request = Request({"type": "http", "method": "POST", "headers": []}, receive)

    async def read() -> None:
        with admission.bodies.hold() as held:
            await endpoints.read_body(request, held)

    with pytest.raises(Refusal, match="has not arrived within") as raised:
        asyncio.run(read())
    assert raised.value.reason is Reason.TOO_SLOW
