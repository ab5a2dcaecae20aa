"""OpenTelemetry's own exporters send to the receiver by both transports."""

import signal
from collections.abc import Callable
from typing import Any

import grpc
import pytest
from opentelemetry._logs import LogRecord
from opentelemetry.exporter.otlp.proto.grpc._log_exporter import OTLPLogExporter as GrpcLogs
from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter as GrpcMetrics
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcSpans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter as HttpLogs
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter as HttpMetrics
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpSpans
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from tests.server.otlp.conftest import Receiver, Start, span_names, values
from tests.servers.stack import Stack

pytestmark = pytest.mark.servers
Exporters = Callable[[Receiver], dict[str, Any]]


def by_http(receiver: Receiver) -> dict[str, Any]:
    return {
        name: exporter(endpoint=f"{receiver.url}/v1/{name}", compression=Compression.Gzip)
        for name, exporter in {"traces": HttpSpans, "logs": HttpLogs, "metrics": HttpMetrics}.items()
    }


def by_grpc(receiver: Receiver) -> dict[str, Any]:
    return {
        name: exporter(endpoint=receiver.grpc, insecure=True, compression=grpc.Compression.Gzip)
        for name, exporter in {"traces": GrpcSpans, "logs": GrpcLogs, "metrics": GrpcMetrics}.items()
    }


@pytest.mark.parametrize("exporters", [by_http, by_grpc])
def test_what_the_sdk_exports_is_in_the_topics(
    stack: Stack, start: Start, new_topic: Callable[..., str], exporters: Exporters
) -> None:
    topics = {name: new_topic() for name in ("traces", "logs", "metrics")}
    receiver = start(*(part for name, topic in topics.items() for part in (f"--{name}-topic", topic)))
    exporter = exporters(receiver)
    send_spans(exporter["traces"])
    send_logs(exporter["logs"])
    send_metrics(exporter["metrics"])
    assert receiver.end(signal.SIGINT) == 0
    assert span_names(values(stack, topics["traces"])) == [f"span {number:04}" for number in range(1000)]
    bodies = [
        record.body.string_value
        for message in values(stack, topics["logs"])
        for resource in ExportLogsServiceRequest.FromString(message).resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]
    assert sorted(bodies) == ["first", "second"]
    points = [
        (metric.name, [point.as_int for point in metric.sum.data_points])
        for message in values(stack, topics["metrics"])
        for resource in ExportMetricsServiceRequest.FromString(message).resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    ]
    assert points == [("orders", [3])]


def send_spans(exporter: Any) -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(exporter))
    tracer = provider.get_tracer("tests")
    for number in range(1000):
        with tracer.start_as_current_span(f"span {number:04}"):
            pass
    assert provider.force_flush()
    provider.shutdown()


def send_logs(exporter: Any) -> None:
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    for body in ("first", "second"):
        provider.get_logger("tests").emit(LogRecord(timestamp=1, body=body))
    provider.shutdown()


def send_metrics(exporter: Any) -> None:
    provider = MeterProvider([PeriodicExportingMetricReader(exporter)])
    provider.get_meter("tests").create_counter("orders").add(3)
    provider.shutdown()
