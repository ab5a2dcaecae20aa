"""A request that is larger than a message becomes several, which together have the same records."""

import itertools
from collections import Counter
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from glassflow_dagster.server.otlp.encoding import Encoding
from glassflow_dagster.server.otlp.signals import LOGS, METRICS, TRACES, Signal
from glassflow_dagster.server.otlp.splitting import count_records, split


def many_traces() -> Any:
    request = ExportTraceServiceRequest()
    for resource, scope in itertools.product(range(3), range(3)):
        if scope == 0:
            request.resource_spans.add(schema_url=f"r{resource}").resource.dropped_attributes_count = resource + 1
        added = request.resource_spans[-1].scope_spans.add(schema_url=f"s{scope}")
        added.scope.name = f"scope {scope}"
        for number in range(30):
            added.spans.add(name=f"{resource}/{scope}/{number}", span_id=bytes(8))
    return request


def many_logs() -> Any:
    request = ExportLogsServiceRequest()
    for number in range(50):
        record = request.resource_logs.add(schema_url="r").scope_logs.add(schema_url="s").log_records.add()
        record.body.string_value = f"log {number}"
    return request


def many_metrics() -> Any:
    request = ExportMetricsServiceRequest()
    scope = request.resource_metrics.add(schema_url="r").scope_metrics.add(schema_url="s")
    for kind in ("gauge", "sum", "histogram", "exponential_histogram", "summary"):
        metric = scope.metrics.add(name=kind, unit="ms", description="d")
        for number in range(40):
            getattr(metric, kind).data_points.add(time_unix_nano=number + 1)
        if kind in {"sum", "histogram", "exponential_histogram"}:
            getattr(metric, kind).aggregation_temporality = 2
    scope.metrics.add(name="without data")
    return request


def records(request: Any, signal: Signal) -> Counter[str]:
    """Return each record with all that is around it, as text."""
    found: Counter[str] = Counter()
    top, middle, leaf = signal.path[:3]
    for resource in getattr(request, top):
        for scope in getattr(resource, middle):
            around = f"{resource.resource} {resource.schema_url} {scope.scope} {scope.schema_url}"
            for record in getattr(scope, leaf):
                kind = record.WhichOneof("data") if signal is METRICS else None
                points = getattr(record, kind).data_points if kind else [record]
                for point in points:
                    flags = f"{record.name} {record.unit} {record.description} {kind}" if kind else ""
                    if kind in {"sum", "histogram", "exponential_histogram"}:
                        flags += str(getattr(record, kind).aggregation_temporality)
                    found[f"{around} {flags} {point}"] += 1
    return found


@pytest.mark.parametrize(
    ("signal", "request_"), [(TRACES, many_traces()), (LOGS, many_logs()), (METRICS, many_metrics())]
)
@pytest.mark.parametrize("limit", [120, 500, 1000])
@pytest.mark.parametrize("encoding", list(Encoding))
def test_all_records_keep_their_resource_scope_and_metric(
    signal: Signal, request_: Any, limit: int, encoding: Encoding
) -> None:
    limit *= 4 if encoding is Encoding.JSON else 1
    found = split(request_, signal.path, encoding.encode, limit)
    assert (found.rejected, len(found.values) > 1) == (0, True)
    assert max(map(len, found.values)) <= limit
    from glassflow_dagster.server.otlp.encoding import decode

    parts = [records(decode(signal, encoding, value), signal) for value in found.values]
    assert sum(parts, Counter()) == records(request_, signal)
    assert count_records(request_, signal.path) == sum(records(request_, signal).values())


def test_only_the_records_that_are_too_large_are_rejected() -> None:
    request = many_traces()
    for number in (3, 17):
        request.resource_spans[1].scope_spans[1].spans[number].name = "x" * 2000
    found = split(request, TRACES.path, Encoding.PROTOBUF.encode, 1000)
    written = sum(count_records(ExportTraceServiceRequest.FromString(each), TRACES.path) for each in found.values)
    assert (found.rejected, written) == (2, 268)


def test_a_resource_that_is_too_large_rejects_its_records_and_no_others() -> None:
    request = many_traces()
    request.resource_spans[2].resource.attributes.add(key="k").value.string_value = "x" * 2000
    assert split(request, TRACES.path, Encoding.PROTOBUF.encode, 1000).rejected == 90


def test_unknown_fields_are_kept() -> None:
    # Field 100 of a span, which only a later version of the protocol has.
    unknown = b"\xa0\x06\x01"
    request = many_logs()
    for resource in request.resource_logs:
        record = resource.scope_logs[0].log_records[0]
        record.ParseFromString(record.SerializeToString() + unknown)
    assert b"".join(split(request, LOGS.path, Encoding.PROTOBUF.encode, 300).values).count(unknown) == 50
