"""Export requests of OpenTelemetry's own library, and their events as GlassFlow's receiver would flatten them."""

import base64
import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

REQUESTS: dict[str, type[Message]] = {
    "logs": ExportLogsServiceRequest,
    "metrics": ExportMetricsServiceRequest,
    "traces": ExportTraceServiceRequest,
}
_IDS = ("traceId", "spanId", "parentSpanId")
_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_STATUSES = ("UNSET", "OK", "ERROR")
_TEMPORALITIES = ("UNSPECIFIED", "DELTA", "CUMULATIVE")


class _Json(str):
    """A text of JSON, which is equal to any text of the same values."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and json.loads(self) == json.loads(other)


def attributes(**values: Any) -> list[KeyValue]:
    """Return attributes; a double underscore in a name stands for a point."""
    return [KeyValue(key=name.replace("__", "."), value=any_value(value)) for name, value in values.items()]


def any_value(value: Any) -> AnyValue:
    """Return a Python value as OpenTelemetry's."""
    found = AnyValue()
    match value:
        case bool():
            found.bool_value = value
        case int():
            found.int_value = value
        case float():
            found.double_value = value
        case str():
            found.string_value = value
        case bytes():
            found.bytes_value = value
        case list():
            found.array_value.SetInParent()
            found.array_value.values.extend(any_value(item) for item in value)
        case dict():
            found.kvlist_value.SetInParent()
            found.kvlist_value.values.extend(KeyValue(key=k, value=any_value(v)) for k, v in value.items())
    return found


def traces(spans: Sequence[Span], service: str = "shop") -> ExportTraceServiceRequest:
    """Return a request with spans of one service."""
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    resource.resource.attributes.extend(attributes(service__name=service))
    scope = resource.scope_spans.add()
    scope.scope.name = "tests"
    scope.spans.extend(spans)
    return request


def span(trace: int, number: int, name: str = "work", **more: Any) -> Span:
    """Return a span of a millisecond. trace, number: make its ids."""
    start = 1_764_000_000_000_000_000 + number
    return Span(
        trace_id=trace.to_bytes(16), span_id=number.to_bytes(8), name=name, kind=Span.SPAN_KIND_SERVER,
        start_time_unix_nano=start, end_time_unix_nano=start + 1_000_000, **more,
    )  # fmt: skip


def to_json(request: Message) -> bytes:
    """Return a request in OTLP's JSON: Protobuf's, but with hexadecimal ids and enums as numbers."""
    raw = json_format.MessageToDict(request, use_integers_for_enums=True)
    return json.dumps(_with_hex_ids(raw)).encode()


def _with_hex_ids(raw: Any) -> Any:
    if isinstance(raw, list):
        return [_with_hex_ids(item) for item in raw]
    if not isinstance(raw, dict):
        return raw
    return {
        key: base64.b64decode(value).hex() if key in _IDS and isinstance(value, str) else _with_hex_ids(value)
        for key, value in raw.items()
    }


def flattened(signal: str, request: Any) -> list[dict[str, Any]]:
    """Return the events of a request."""
    return list({"logs": _logs, "metrics": _metrics, "traces": _spans}[signal](request))


def _spans(request: ExportTraceServiceRequest) -> Iterator[dict[str, Any]]:
    for of_resource in request.resource_spans:
        for of_scope in of_resource.scope_spans:
            for s in of_scope.spans:
                yield {
                    "trace_id": _id(s.trace_id), "span_id": _id(s.span_id), "parent_span_id": _id(s.parent_span_id),
                    "trace_state": s.trace_state, "flags": s.flags, "name": s.name, "kind": _word(_KINDS, s.kind),
                    "start_timestamp": time(s.start_time_unix_nano), "end_timestamp": time(s.end_time_unix_nano),
                    "duration_ns": (s.end_time_unix_nano - s.start_time_unix_nano) % 2**64,
                    "status_code": _word(_STATUSES, s.status.code), "status_message": s.status.message,
                    "dropped_attributes_count": s.dropped_attributes_count,
                    "dropped_events_count": s.dropped_events_count, "dropped_links_count": s.dropped_links_count,
                    "events": [
                        {"timestamp": time(e.time_unix_nano), "name": e.name, "attributes": _map(e.attributes),
                         "dropped_attributes_count": e.dropped_attributes_count}
                        for e in s.events
                    ],
                    "links": [
                        {"trace_id": _id(link.trace_id), "span_id": _id(link.span_id), "trace_state": link.trace_state,
                         "attributes": _map(link.attributes),
                         "dropped_attributes_count": link.dropped_attributes_count}
                        for link in s.links
                    ],
                    "attributes": _map(s.attributes), **_common(of_resource, of_scope),
                }  # fmt: skip


def _logs(request: ExportLogsServiceRequest) -> Iterator[dict[str, Any]]:
    for of_resource in request.resource_logs:
        for of_scope in of_resource.scope_logs:
            for r in of_scope.log_records:
                yield {
                    "timestamp": time(r.time_unix_nano), "observed_timestamp": time(r.observed_time_unix_nano),
                    "severity_number": r.severity_number % 2**32, "severity_text": r.severity_text,
                    "body": _text(r.body), "trace_id": _id(r.trace_id), "span_id": _id(r.span_id), "flags": r.flags,
                    "dropped_attributes_count": r.dropped_attributes_count, "attributes": _map(r.attributes),
                    **_common(of_resource, of_scope),
                }  # fmt: skip


def _metrics(request: ExportMetricsServiceRequest) -> Iterator[dict[str, Any]]:
    for of_resource in request.resource_metrics:
        for of_scope in of_resource.scope_metrics:
            for metric in of_scope.metrics:
                kind = metric.WhichOneof("data")
                data = getattr(metric, kind) if kind else None
                for point in data.data_points if data else ():
                    yield {
                        "metric_name": metric.name, "metric_description": metric.description,
                        "metric_unit": metric.unit, "attributes": _map(point.attributes),
                        "metric_type": "exp_histogram" if kind == "exponential_histogram" else kind,
                        "timestamp": time(point.time_unix_nano),
                        "start_timestamp": time(point.start_time_unix_nano), "flags": point.flags,
                        **_point(kind, data, point), **_common(of_resource, of_scope),
                    }  # fmt: skip


def _point(kind: str, data: Any, point: Any) -> dict[str, Any]:
    is_number, is_histogram = kind in ("gauge", "sum"), kind in ("histogram", "exponential_histogram")
    value = point.WhichOneof("value") if is_number else None
    temporality = _word(_TEMPORALITIES, data.aggregation_temporality) if kind == "sum" or is_histogram else None
    return {
        "aggregation_temporality": temporality, "is_monotonic": data.is_monotonic if kind == "sum" else None,
        "value_double": point.as_double if value == "as_double" else None,
        "value_int": point.as_int if value == "as_int" else None,
        "count": None if is_number else point.count, "sum": None if is_number else point.sum,
        "min": point.min if is_histogram and point.HasField("min") else None,
        "max": point.max if is_histogram and point.HasField("max") else None,
        "bucket_counts": list(point.bucket_counts) if kind == "histogram" else [],
        "explicit_bounds": list(point.explicit_bounds) if kind == "histogram" else [],
    }  # fmt: skip


def _common(of_resource: Any, of_scope: Any) -> dict[str, Any]:
    scope = of_scope.scope
    return {
        "resource_attributes": _map(of_resource.resource.attributes), "scope_name": scope.name,
        "scope_version": scope.version, "scope_attributes": _map(scope.attributes),
    }  # fmt: skip


def _map(found: Sequence[KeyValue]) -> dict[str, str]:
    return {entry.key: _text(entry.value) for entry in found}


def _text(value: AnyValue) -> str:
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "bool_value":
            return str(value.bool_value).lower()
        case "int_value":
            return str(value.int_value)
        case "double_value":
            return _float_text(value.double_value)
        case "bytes_value":
            return value.bytes_value.hex()
    return _Json(json.dumps(_json(value))) if value.WhichOneof("value") else ""


def _float_text(number: float) -> str:
    special = {"inf": "+Inf", "-inf": "-Inf", "nan": "NaN", "-0.0": "-0", "0.0": "0"}
    text = repr(number)
    if text in special:
        return special[text]
    plain = format(Decimal(text), "f")
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _json(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    match kind:
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "double_value":
            number = value.double_value
            special = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}
            return special.get(repr(number), number)
        case "array_value":
            return [_json(item) for item in value.array_value.values]
        case "kvlist_value":
            return {entry.key: _json(entry.value) for entry in value.kvlist_value.values}
        case None:
            return None
    return getattr(value, kind)


def _id(raw: bytes) -> str:
    return raw.hex() if any(raw) else ""


def _word(words: Sequence[str], number: int) -> str:
    return words[number] if 0 <= number < len(words) else words[0]


def time(nanoseconds: int) -> str:
    """Return a time as Go's RFC3339Nano. nanoseconds: since 1970, of 64 bits."""
    signed = nanoseconds - 2**64 if nanoseconds >= 2**63 else nanoseconds
    seconds, fraction = divmod(signed, 10**9)
    days, second = divmod(seconds, 86_400)
    text = datetime.fromordinal(719_163 + days).replace(tzinfo=UTC).strftime("%Y-%m-%d")
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return f"{text}T{clock}{f'.{fraction:09}'.rstrip('0') if fraction else ''}Z"
