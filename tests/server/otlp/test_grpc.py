"""The gRPC transport: OpenTelemetry's own stubs, and the codes of refused calls."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import TraceServiceStub

from tests.server.otlp.conftest import Receiver, span_names, traces, values
from tests.servers.stack import Stack

pytestmark = pytest.mark.servers
LARGEST = 100_000
EXPORT = "/opentelemetry.proto.collector.{}/Export"
TRACES = EXPORT.format("trace.v1.TraceService")
Code = grpc.StatusCode


@pytest.fixture(scope="module")
def receiver(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    """Share a receiver of traces and metrics; its topics are created by it."""
    options = ("--traces-topic", "otlp-grpc-traces", "--metrics-topic", "otlp-grpc-metrics", "--create-topics")
    running = Receiver(
        tmp_path_factory.mktemp("otlp"), "--brokers", stack.kafka, *options, "--max-request-bytes", str(LARGEST)
    ).wait_until_it_listens()
    yield running
    assert running.end() == 0


@pytest.fixture
def channel(receiver: Receiver) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(receiver.grpc, options=[("grpc.max_send_message_length", -1)]) as opened:
        yield opened


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_request_is_written_as_it_is(stack: Stack, channel: grpc.Channel, compression: grpc.Compression) -> None:
    request = traces([f"by gRPC, {compression.name}"], "x" * 5000)
    response = TraceServiceStub(channel).Export(request, compression=compression, timeout=60)
    assert not response.HasField("partial_success")
    assert request.SerializeToString() in values(stack, "otlp-grpc-traces")


def test_records_that_are_too_large_are_a_partial_success(
    stack: Stack, start: Callable[..., Receiver], new_topic: Callable[..., str]
) -> None:
    topic = new_topic(max_message_bytes="10000")
    request = traces(["small", "x" * 10_000])
    with grpc.insecure_channel(start("--traces-topic", topic).grpc) as channel:
        response = TraceServiceStub(channel).Export(request, timeout=60)
    assert response.partial_success.rejected_spans == 1
    assert span_names(values(stack, topic)) == ["small"]


BOMB = bytes(200_000_000)
REFUSED: dict[str, tuple[str, bytes, grpc.StatusCode, str]] = {
    "garbage": (TRACES, b"\xff\xff\xff", Code.INVALID_ARGUMENT, "no Protobuf message ExportTraceServiceRequest"),
    "only unknown fields": (TRACES, b"\x28\x01", Code.INVALID_ARGUMENT, "has no resource_spans"),
    "a signal without topic": (EXPORT.format("logs.v1.LogsService"), b"", Code.UNIMPLEMENTED, "--logs-topic"),
    "another method": (TRACES.replace("Export", "Import"), b"", Code.UNIMPLEMENTED, "Method not found"),
    "too large": (TRACES, bytes(LARGEST + 1), Code.RESOURCE_EXHAUSTED, "larger than max"),
    "a bomb": (TRACES, BOMB, Code.RESOURCE_EXHAUSTED, "larger than max"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_call_is_refused_and_not_written(stack: Stack, channel: grpc.Channel, case: str) -> None:
    method, body, code, reason = REFUSED[case]
    before = len(values(stack, "otlp-grpc-traces"))
    compression = grpc.Compression.Gzip if body is BOMB else grpc.Compression.NoCompression
    with pytest.raises(grpc.RpcError) as raised:
        channel.unary_unary(method)(body, compression=compression, timeout=60)
    error: Any = raised.value
    assert error.code() is code
    assert reason in error.details()
    details = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
    assert not details or not Status.FromString(details).details, "no RetryInfo: a repetition is refused, too"
    assert len(values(stack, "otlp-grpc-traces")) == before


def test_a_bomb_needs_no_memory(receiver: Receiver, channel: grpc.Channel) -> None:
    def peak() -> int:
        status = Path(f"/proc/{receiver.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0])

    before = peak()
    with pytest.raises(grpc.RpcError, match="larger than max"):
        channel.unary_unary(TRACES)(BOMB, compression=grpc.Compression.Gzip, timeout=60)
    assert peak() - before < 50_000, "KiB"


def test_each_signal_has_its_service(stack: Stack, receiver: Receiver, channel: grpc.Channel) -> None:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="orders")
    metric.sum.data_points.add(as_int=3)
    MetricsServiceStub(channel).Export(request, timeout=60)
    assert values(stack, "otlp-grpc-metrics") == [request.SerializeToString()]
    with pytest.raises(grpc.RpcError, match="no topic for logs"):
        LogsServiceStub(channel).Export(ExportLogsServiceRequest(), timeout=60)
    assert 'glassflow_otlp_requests_total{code="UNIMPLEMENTED",signal="logs",transport="grpc"}' in receiver.metrics()
    assert 'glassflow_otlp_requests_total{code="OK",signal="metrics",transport="grpc"} 1.0' in receiver.metrics()
