"""The command: its options, what it refuses to start with, and who may send."""

import asyncio
import ssl
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import grpc
import httpx
import pytest
import yaml
from click.testing import CliRunner
from confluent_kafka import KafkaError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from glassflow_dagster.cli import main
from glassflow_dagster.definition.model.connections import KafkaConnection
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.server.otlp.budget import Budget
from glassflow_dagster.server.otlp.kafka_writer import KafkaWriter, Limits
from glassflow_dagster.server.otlp.receiver_metrics import ReceiverMetrics
from tests.security.certificates import Authority
from tests.server.otlp.conftest import Receiver, Start, span_names, traces, values
from tests.servers.stack import Stack
from tests.support.waiting import DEADLINE

PROJECT = Path(__file__).parents[3]
TOPIC = ("--traces-topic", "t")


@pytest.mark.parametrize(("options", "reason"), [
    ((), "give at least one of --traces-topic, --logs-topic, --metrics-topic"),
    ((*TOPIC, "--tls-cert", "cert.pem"), "--tls-cert and --tls-key belong together; give both"),
    ((*TOPIC, "--max-in-flight-bytes", "2000"), "--max-in-flight-bytes must not be below --max-request-bytes"),
    ((*TOPIC, "--brokers", ","), "write HOST:PORT"),
    ((*TOPIC, "--format", "avro"), "'avro' is not one of"),
])  # fmt: skip
def test_wrong_usage_is_told(options: tuple[str, ...], reason: str) -> None:
    found = CliRunner().invoke(main, ["otlp", *options])
    assert found.exit_code == 2
    assert reason in found.stderr


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "glassflow_dagster.server.otlp.encoding", None)
    found = CliRunner().invoke(main, ["otlp", *TOPIC])
    assert found.exit_code == 1
    assert "run: pip install 'glassflow-dagster[otlp]'" in found.stderr


@pytest.mark.parametrize(
    ("content", "reason"), [(None, "cannot be read"), (b" \n", "is empty"), (b"\xff", "cannot be")]
)
def test_a_token_file_holds_a_token(tmp_path: Path, content: bytes | None, reason: str) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    found = CliRunner().invoke(main, ["otlp", *TOPIC, "--token-file", str(file)])
    assert found.exit_code == 1
    assert f"--token-file {file}: {reason}" in found.stderr
    assert "write the token into it" in found.stderr


def test_brokers_that_do_not_answer_end_the_start() -> None:
    address = f"127.0.0.1:{free_port()}"
    found = CliRunner().invoke(main, ["otlp", *TOPIC, "--brokers", address, "--timeout", "0.1"])
    assert found.exit_code == 1
    assert f"Kafka's brokers at {address} do not answer" in found.stderr


@pytest.mark.servers
def test_a_missing_topic_ends_the_start_unless_it_is_to_be_created(
    stack: Stack, processes: Callable[..., Receiver], start: Start
) -> None:
    topic = f"otlp-{uuid4().hex}"
    options = ("--brokers", stack.kafka, "--traces-topic", topic)
    refused = processes(*options)
    assert refused.process.wait(DEADLINE) == 1
    assert (
        f"topic '{topic}' does not exist on {stack.kafka}; create it, or start the receiver with --create-topics"
        in (refused.said)
    )
    created = start("--traces-topic", topic, "--logs-topic", topic, "--create-topics")
    assert f"traces to {topic}, logs to {topic}" in created.said
    assert created.post(traces(["one"]).SerializeToString()).status_code == 200
    assert span_names(values(stack, topic)) == ["one"]


@pytest.mark.servers
def test_a_topic_for_tiny_messages_is_refused(
    processes: Callable[..., Receiver], stack: Stack, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(max_message_bytes="1000")
    refused = processes("--brokers", stack.kafka, "--traces-topic", topic)
    assert refused.process.wait(DEADLINE) == 1
    assert f"topic '{topic}': max.message.bytes is 1000; set it to 2000 or more" in refused.said


@pytest.mark.servers
@pytest.mark.parametrize("transport", ["http", "grpc"])
def test_a_port_that_is_taken_ends_the_start(
    processes: Callable[..., Receiver], stack: Stack, start: Start, new_topic: Callable[..., str], transport: str
) -> None:
    topic = new_topic()
    first = start("--traces-topic", topic)
    port = (first.url if transport == "http" else first.grpc).rpartition(":")[2]
    # The last of two values counts.
    second = processes("--brokers", stack.kafka, "--traces-topic", topic, f"--{transport}-port", port)
    assert second.process.wait(DEADLINE) == 1
    assert f"cannot listen on 127.0.0.1:{port}" in second.said
    assert f"choose another --{transport}-port" in second.said


@pytest.mark.servers
def test_the_connection_can_be_that_of_a_definition(
    processes: Callable[..., Receiver], stack: Stack, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic()
    definition = yaml.safe_load((PROJECT / "pipelines" / "sms_status.yaml").read_text())
    definition["sources"][0]["connection_params"] = {"brokers": [stack.kafka]}
    file = tmp_path / "sms_status.yaml"
    file.write_text(yaml.safe_dump(definition))
    running = processes("--from", str(file), "--traces-topic", topic).wait_until_it_listens()
    assert running.post(traces(["one"]).SerializeToString()).status_code == 200
    wrong = processes("--from", str(tmp_path / "none.yaml"), "--traces-topic", topic)
    assert wrong.process.wait(DEADLINE) == 1
    assert "none.yaml" in wrong.said


@pytest.mark.servers
def test_clients_need_the_token_if_there_is_one(start: Start, new_topic: Callable[..., str], tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    receiver = start("--traces-topic", new_topic(), "--token-file", str(file))
    body = traces(["one"]).SerializeToString()
    for headers in ({}, {"authorization": "Bearer other"}, {"authorization": "Basic s3cret"}):
        answer = httpx.post(f"{receiver.url}/v1/traces", content=body, headers=headers)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    valid = {"authorization": "Bearer s3cret", "content-type": "application/x-protobuf"}
    assert httpx.post(f"{receiver.url}/v1/traces", content=body, headers=valid).status_code == 200
    # Health and metrics say nothing of what is sent.
    assert httpx.get(f"{receiver.url}/healthz").status_code == 200
    with grpc.insecure_channel(receiver.grpc) as channel, pytest.raises(grpc.RpcError) as raised:
        TraceServiceStub(channel).Export(traces(["two"]), timeout=60, metadata=(("authorization", "Bearer wrong"),))
    error: Any = raised.value
    assert error.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.servers
def test_both_ports_use_tls_with_a_certificate(
    start: Start, processes: Callable[..., Receiver], stack: Stack, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    authority = Authority("the tests' authority")
    signed = authority.sign("receiver", "localhost")
    certificate, key, token = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "token"
    certificate.write_text(signed.certificate)
    key.write_text(signed.key)
    token.write_text("s3cret")
    topic = new_topic()
    options = ("--traces-topic", topic, "--token-file", str(token), "--tls-cert", str(certificate), "--tls-key")
    receiver = start(*options, str(key))
    headers = {"authorization": "Bearer s3cret", "content-type": "application/x-protobuf"}
    answer = httpx.post(
        f"{receiver.url.replace('127.0.0.1', 'localhost')}/v1/traces", content=traces(["a"]).SerializeToString(),
        headers=headers, verify=ssl.create_default_context(cadata=authority.certificate),
    )  # fmt: skip
    assert answer.status_code == 200
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials(authority.certificate.encode()), grpc.access_token_call_credentials("s3cret")
    )
    with grpc.secure_channel(receiver.grpc.replace("127.0.0.1", "localhost"), credentials) as channel:
        TraceServiceStub(channel).Export(traces(["b"]), timeout=60)
    assert span_names(values(stack, topic)) == ["a", "b"]
    wrong = processes("--brokers", stack.kafka, *options, str(certificate))
    assert wrong.process.wait(DEADLINE) == 1
    assert f"--tls-cert {certificate}, --tls-key {certificate}: cannot be used" in wrong.said


@pytest.mark.servers
@pytest.mark.parametrize("fatal", [True, False])
def test_only_a_fatal_error_of_the_producer_ends_the_receiver(stack: Stack, *, fatal: bool) -> None:
    """librdkafka raises one where it cannot go on without gaps or duplicates, which cannot be caused from outside."""

    async def errors() -> list[str]:
        found: list[str] = []
        limits = Limits(1_000_000, 5, Budget(1000, "messages"))
        writer = KafkaWriter(KafkaConnection(brokers=(stack.kafka,)), limits, ReceiverMetrics(), found.append)
        writer.on_error(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "the reason", fatal))
        await asyncio.sleep(0)
        await asyncio.to_thread(writer.close)
        return found

    assert asyncio.run(errors()) == (["the reason"] if fatal else [])
