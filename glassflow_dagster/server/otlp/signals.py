"""The three signals of OTLP: where they are received, and the messages of their export requests."""

from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.logs.v1 import logs_service_pb2 as logs
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2 as metrics
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as traces

# In a path, stands for the field of a metric that is set: gauge, sum, histogram, ...
DATA = "data"


@dataclass(frozen=True)
class Signal:
    """A signal.

    path: the fields from the request down to its records; the first is that of the resources.
    request, response: classes of messages.
    rejected: the field of a partial success that counts rejected records.
    """

    name: str
    service: str
    path: tuple[str, ...]
    request: Any
    response: Any
    rejected: str

    @property
    def url_path(self) -> str:
        """The path of the HTTP endpoint."""
        return f"/v1/{self.name}"


TRACES = Signal(
    "traces",
    "opentelemetry.proto.collector.trace.v1.TraceService",
    ("resource_spans", "scope_spans", "spans"),
    traces.ExportTraceServiceRequest,
    traces.ExportTraceServiceResponse,
    "rejected_spans",
)
LOGS = Signal(
    "logs",
    "opentelemetry.proto.collector.logs.v1.LogsService",
    ("resource_logs", "scope_logs", "log_records"),
    logs.ExportLogsServiceRequest,
    logs.ExportLogsServiceResponse,
    "rejected_log_records",
)
METRICS = Signal(
    "metrics",
    "opentelemetry.proto.collector.metrics.v1.MetricsService",
    ("resource_metrics", "scope_metrics", "metrics", DATA, "data_points"),
    metrics.ExportMetricsServiceRequest,
    metrics.ExportMetricsServiceResponse,
    "rejected_data_points",
)
SIGNALS = (TRACES, LOGS, METRICS)
