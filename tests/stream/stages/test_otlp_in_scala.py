"""OTLP: each part of a request as an event, and random requests beside a flattener in Python."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf.message import Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from pyspark.sql import SparkSession

from glassflow_dagster.stream.spark.session import java
from tests.stream.stages.bad_bytes import NOT_UTF_8
from tests.support.export_requests import REQUESTS, any_value, attributes, flattened, span, to_json, traces

MARK = (-2, None, "record", None)
NOT_EMPTY: dict[str, Message] = {
    "logs": ExportLogsServiceRequest(resource_logs=[{}]),
    "metrics": ExportMetricsServiceRequest(resource_metrics=[{}]),
    "traces": ExportTraceServiceRequest(resource_spans=[{}]),
}


def in_span(members: str) -> str:
    """Return a request in JSON with a span of these members."""
    return f'{{"resourceSpans": [{{"scopeSpans": [{{"spans": [{{{members}}}]}}]}}]}}'


Split = Callable[..., list[tuple[int, bytes | None, str | None, str | None]]]


@pytest.fixture(scope="session")
def split(spark: SparkSession) -> Split:
    """A function that splits a value; it returns item, value, drop reason and error of each element."""
    splitters: dict[str, Any] = {}
    jvm: Any = spark._jvm

    def split(signal: str, value: bytes | None, kind: str = "otlp_proto", *, is_event: bool = False) -> list[Any]:
        spec = json.dumps({"signal": signal, "format": kind})
        splitter = splitters.setdefault(spec, jvm.glassflow.OtlpSplitter(spec))
        found = splitter.split(value, is_event)
        rows = [found.getStruct(index, 5) for index in range(found.numElements())]
        return [
            (
                row.getInt(0),
                None if row.isNullAt(1) else bytes(row.getBinary(1)),
                *(None if row.isNullAt(index) else row.getUTF8String(index).toString() for index in (2, 3)),
            )
            for row in rows
        ]

    return split


def test_the_element_of_a_record_has_the_bytes_of_its_events(spark: SparkSession, split: Split) -> None:
    """By which a batch is limited, also where the events are duplicates, of which nothing else is left."""
    splitter = java(spark).glassflow.OtlpSplitter(json.dumps({"signal": "traces", "format": "otlp_proto"}))
    request = traces([span(1, number) for number in range(3)]).SerializeToString()
    for value in (request, b"", b"broken", None):
        _, *found = split("traces", value)
        size = sum(len(event or b"") for _, event, *_ in found)
        assert splitter.split(value, False).getStruct(0, 5).getInt(4) == size  # noqa: FBT003 - a method of Java's
        assert list(splitter.sizeOfEvents(value)) == [size, len(found)]


def events(split: Split, signal: str, request: Message) -> list[dict[str, Any]]:
    """Return the events of a request, which are the same in both formats, and have no problem."""
    mark, *found = split(signal, request.SerializeToString())
    assert mark == MARK
    assert [item for item, *_ in found] == list(range(len(found)))
    assert [rest for _, _, *rest in found] == [[None, None]] * len(found)
    assert split(signal, to_json(request), "otlp_json") == [mark, *found]
    return [json.loads(value or b"") for _, value, *_ in found]


def test_a_span_has_the_fields_of_glassflow(split: Split) -> None:
    request = traces([
        Span(
            trace_id=bytes.fromhex("0af7651916cd43dd8448eb211c80319c"), span_id=bytes.fromhex("b7ad6b7169203331"),
            parent_span_id=bytes.fromhex("00f067aa0ba902b7"), trace_state="a=1", flags=257, name="GET /",
            kind=Span.SPAN_KIND_CLIENT, start_time_unix_nano=1_764_000_000_000_000_000,
            end_time_unix_nano=1_764_000_000_120_000_001, dropped_attributes_count=1, dropped_events_count=2,
            dropped_links_count=3, status=Status(code=Status.STATUS_CODE_ERROR, message='no "such" page\n'),
            attributes=attributes(http__status=404, ratio=0.25, cached=False, raw=b"\x00\xff", tags=["a", 1, None]),
            events=[Span.Event(time_unix_nano=1, name="retry", attributes=attributes(n=2),
                               dropped_attributes_count=4)],
            links=[Span.Link(trace_id=b"\1" * 16, span_id=b"\2" * 8, trace_state="b=2", attributes=attributes(x="y"))],
        )
    ])  # fmt: skip
    request.resource_spans[0].scope_spans[0].scope.version = "1.2"

    assert events(split, "traces", request) == [{
        "trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "b7ad6b7169203331",
        "parent_span_id": "00f067aa0ba902b7", "trace_state": "a=1", "flags": 257, "name": "GET /", "kind": "CLIENT",
        "start_timestamp": "2025-11-24T16:00:00Z", "end_timestamp": "2025-11-24T16:00:00.120000001Z",
        "duration_ns": 120_000_001, "status_code": "ERROR", "status_message": 'no "such" page\n',
        "dropped_attributes_count": 1, "dropped_events_count": 2, "dropped_links_count": 3,
        "events": [{"timestamp": "1970-01-01T00:00:00.000000001Z", "name": "retry", "attributes": {"n": "2"},
                    "dropped_attributes_count": 4}],
        "links": [{"trace_id": "01" * 16, "span_id": "02" * 8, "trace_state": "b=2", "attributes": {"x": "y"},
                   "dropped_attributes_count": 0}],
        "resource_attributes": {"service.name": "shop"}, "scope_name": "tests", "scope_version": "1.2",
        "scope_attributes": {},
        "attributes": {"http.status": "404", "ratio": "0.25", "cached": "false", "raw": "00ff",
                       "tags": '["a",1,null]'},
    }]  # fmt: skip


def test_a_log_record_has_the_fields_of_glassflow(split: Split) -> None:
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    scope.scope.attributes.extend(attributes(library="x"))
    record = scope.log_records.add(severity_number=9, severity_text="INFO", flags=1, observed_time_unix_nano=5)
    record.body.CopyFrom(any_value({"b": [1, 2.5], "a": b"\x01"}))

    assert events(split, "logs", request) == [{
        "timestamp": "1970-01-01T00:00:00Z", "observed_timestamp": "1970-01-01T00:00:00.000000005Z",
        "severity_number": 9, "severity_text": "INFO", "body": '{"a":"AQ==","b":[1,2.5]}', "trace_id": "",
        "span_id": "", "flags": 1, "dropped_attributes_count": 0, "resource_attributes": {}, "scope_name": "",
        "scope_version": "", "scope_attributes": {"library": "x"}, "attributes": {},
    }]  # fmt: skip


NO_NUMBERS = dict.fromkeys(("value_double", "value_int", "count", "sum", "min", "max", "is_monotonic"))


def metric(name: str, **data: Any) -> ExportMetricsServiceRequest:
    request = ExportMetricsServiceRequest()
    request.resource_metrics.add().scope_metrics.add().metrics.append(Metric(name=name, unit="ms", **data))
    return request


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"gauge": {"data_points": [{"as_double": 0.1}]}}, {"metric_type": "gauge", "value_double": 0.1}),
        (
            {"sum": {"data_points": [{"as_int": -(2**63)}], "is_monotonic": True, "aggregation_temporality": 2}},
            {"metric_type": "sum", "value_int": -(2**63), "is_monotonic": True,
             "aggregation_temporality": "CUMULATIVE"},
        ),
        (
            {"histogram": {"data_points": [{"count": 2**64 - 1, "sum": 3, "min": 0, "bucket_counts": [1, 2**64 - 2],
                                            "explicit_bounds": [0.5]}],
                           "aggregation_temporality": AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA}},
            {"metric_type": "histogram", "count": 2**64 - 1, "sum": 3, "min": 0, "bucket_counts": [1, 2**64 - 2],
             "explicit_bounds": [0.5], "aggregation_temporality": "DELTA"},
        ),
        (
            {"exponential_histogram": {"data_points": [{"count": 7, "max": 9.5, "scale": 2, "zero_count": 1}]}},
            {"metric_type": "exp_histogram", "count": 7, "sum": 0, "max": 9.5,
             "aggregation_temporality": "UNSPECIFIED"},
        ),
        (
            {"summary": {"data_points": [{"count": 4, "sum": 1.5, "quantile_values": [{"quantile": 1, "value": 2}]}]}},
            {"metric_type": "summary", "count": 4, "sum": 1.5},
        ),
    ],
    ids=["gauge", "sum", "histogram", "exponential histogram", "summary"],
)  # fmt: skip
def test_each_data_point_is_an_event(split: Split, data: dict[str, Any], expected: dict[str, Any]) -> None:
    [event] = events(split, "metrics", metric("latency", **data))

    assert event == {
        "metric_name": "latency", "metric_description": "", "metric_unit": "ms", "timestamp": "1970-01-01T00:00:00Z",
        "start_timestamp": "1970-01-01T00:00:00Z", "flags": 0, "resource_attributes": {}, "scope_name": "",
        "scope_version": "", "scope_attributes": {}, "attributes": {}, "bucket_counts": [], "explicit_bounds": [],
        "aggregation_temporality": None, **NO_NUMBERS, **expected,
    }  # fmt: skip


@pytest.mark.parametrize("signal", NOT_EMPTY)
def test_no_request_has_a_million_events(split: Split, signal: str) -> None:
    """As the bytes of its events are limited: an event's index has 20 bits (dedup_in_scala.py)."""
    least = {
        "logs": ExportLogsServiceRequest(resource_logs=[{"scope_logs": [{"log_records": [{}]}]}]),
        "metrics": metric("", gauge={"data_points": [{}]}),
        "traces": traces([Span()]),
    }
    _, (_, event, *_) = split(signal, least[signal].SerializeToString())
    assert 64 * 1024 * 1024 // len(event or b"") < 2**20 // 4


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_data_point_without_a_number_of_json_is_a_dead_letter(split: Split, number: float) -> None:
    points = {"data_points": [{"as_double": 1}, {"as_double": number}, {"as_double": 2}]}

    _, first, second, third = split("metrics", metric("m", gauge=points).SerializeToString())

    assert first[3] is third[3] is None
    assert second[3] is not None
    assert second[3].startswith("field 'value_double' is ")
    assert json.loads(second[1] or b"")["value_double"] in ("NaN", "Infinity", "-Infinity")


def test_of_attributes_with_one_name_the_last_one_counts(split: Split) -> None:
    repeated = [KeyValue(key="a", value=any_value(value)) for value in ("x", 2)]

    [event] = events(split, "traces", traces([span(1, 1, attributes=repeated)]))

    assert event["attributes"] == {"a": "2"}


@pytest.mark.parametrize("signal", REQUESTS)
def test_a_request_without_events_is_filtered(split: Split, signal: str) -> None:
    empty = REQUESTS[signal]()

    assert split(signal, b"") == [MARK, (-1, b"", "filtered", None)]
    assert split(signal, to_json(empty), "otlp_json") == [MARK, (-1, b"{}", "filtered", None)]


@pytest.mark.parametrize("value", [b" {} ", b'{"resourceSpans": []}', b'{"resource_spans": null, "new": 1}'])
def test_an_object_of_a_request_without_events_is_filtered(split: Split, value: bytes) -> None:
    assert split("traces", value, "otlp_json") == [MARK, (-1, value, "filtered", None)]


@pytest.mark.parametrize(("signal", "member"), [("logs", "Logs"), ("metrics", "Metrics"), ("traces", "Spans")])
def test_a_request_of_another_signal_is_a_dead_letter(split: Split, signal: str, member: str) -> None:
    """As for the receiver; it would be a request without events otherwise."""
    problem = f"invalid OTLP: it has no resource{member}, so it is a request of another signal, or none"
    others = [to_json(request) for other, request in NOT_EMPTY.items() if other != signal]
    for value in (*others, b'{"foo": 1}', b'{"foo": null}'):
        assert split(signal, value, "otlp_json") == [MARK, (-1, value, None, problem)]
    # A field of another number, of which Protobuf does not know the name.
    unknown = b"\x12\x01a"
    problem = problem.replace(f"resource{member}", f"resource_{member.lower()}")
    assert split(signal, unknown) == [MARK, (-1, unknown, None, problem)]


@pytest.mark.parametrize(
    ("signal", "record", "reason"),
    [
        ("traces", {"trace_id": b"\1" * 15}, "trace_id has 15 bytes and not 16"),
        ("traces", {"trace_id": bytes(17)}, "trace_id has 17 bytes and not 16"),
        ("traces", {"span_id": b"\1" * 16}, "span_id has 16 bytes and not 8"),
        ("traces", {"parent_span_id": b"\1"}, "parent_span_id has 1 bytes and not 8"),
        ("traces", {"links": [{"trace_id": b"\1" * 8}]}, "trace_id has 8 bytes and not 16"),
        ("traces", {"links": [{"span_id": b"\1" * 7}]}, "span_id has 7 bytes and not 8"),
        ("logs", {"trace_id": b"\1" * 8}, "trace_id has 8 bytes and not 16"),
        ("logs", {"span_id": b"\1" * 9}, "span_id has 9 bytes and not 8"),
    ],
)
def test_an_id_of_another_length_is_refused(split: Split, signal: str, record: dict[str, Any], reason: str) -> None:
    """As by OpenTelemetry's collector, and GlassFlow with it: the request as a whole."""
    if signal == "traces":
        request: Message = traces([span(1, 1), Span(**record)])
    else:
        of_logs = ExportLogsServiceRequest()
        of_logs.resource_logs.add().scope_logs.add().log_records.add(**record)
        request = of_logs
    for kind, value in (("otlp_proto", request.SerializeToString()), ("otlp_json", to_json(request))):
        assert split(signal, value, kind) == [MARK, (-1, value, None, f"invalid OTLP: {reason}")]


@pytest.mark.parametrize(
    ("signal", "value", "reason"),
    [
        ("traces", '{"resourceSpans": [], "resourceSpans": []}', "resourceSpans is given twice"),
        ("traces", '{"resourceSpans": [], "resource_spans": null}', "resourceSpans is given twice"),
        ("traces", in_span('"name": "a", "name": "b"'), "name is given twice"),
        ("traces", in_span('"traceId": null, "trace_id": ""'), "traceId is given twice"),
        (
            "traces",
            in_span('"attributes": [{"key": "a", "value": {"intValue": 1, "stringValue": "b"}}]'),
            "stringValue is given beside intValue; only one of them is possible",
        ),
        (
            "metrics",
            '{"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"gauge": {}, "sum": {}}]}]}]}',
            "sum is given beside gauge; only one of them is possible",
        ),
    ],
)
def test_a_member_of_json_that_is_given_twice_is_refused(split: Split, signal: str, value: str, reason: str) -> None:
    """As by Protobuf's libraries; the others of its values would be lost silently."""
    _, (item, raw, dropped, error) = split(signal, value.encode(), "otlp_json")

    assert (item, raw, dropped, error) == (-1, value.encode(), None, f"invalid OTLP: {reason}")


def test_null_in_json_is_no_value(split: Split) -> None:
    value = in_span('"attributes": [{"key": "a", "value": {"stringValue": null, "intValue": 1}}], "kind": null')

    _, (_, event, *problems) = split("traces", value.encode(), "otlp_json")

    assert problems == [None, None]
    assert json.loads(event or b"")["attributes"] == {"a": "1"}


def test_scopes_without_events_cost_nothing(split: Split) -> None:
    """The attributes of their resource are not written for them: 2 GB here."""
    request = traces([])
    request.resource_spans[0].resource.attributes.extend(attributes(large="x" * 100_000))
    for _ in range(20_000):
        request.resource_spans[0].scope_spans.add()
    request.resource_spans[0].scope_spans.add().spans.append(span(1, 1))

    [event] = events(split, "traces", request)

    assert len(event["resource_attributes"]["large"]) == 100_000


def test_a_record_without_a_value_and_a_replayed_event_are_left_alone(split: Split) -> None:
    assert split("traces", None) == [MARK, (-1, None, None, None)]
    assert split("traces", b'{"trace_id": "x"}', is_event=True) == [MARK, (-1, b'{"trace_id": "x"}', None, None)]


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("otlp_proto", b"\x0a\x05ab", "invalid Protobuf: 5 bytes are announced and 2 are left"),
        ("otlp_proto", b"\x08\x01", "invalid Protobuf: 'resource_spans' has wire type 0"),
        ("otlp_proto", b'{"resourceSpans": []}', "invalid Protobuf"),
        ("otlp_json", b"", "the record's value is empty"),
        ("otlp_json", b"\xff\xfe{\0}\0", "invalid JSON: not in UTF-8"),
        ("otlp_json", b"[]", "invalid OTLP: not a JSON object"),
        ("otlp_json", b"{} {}", "invalid JSON: something follows the object"),
        ("otlp_json", b'{"resourceSpans": [', "invalid JSON: it ends too early, at byte 19"),
        ("otlp_json", b'{"resourceSpans": {}}', "invalid OTLP: resourceSpans is not an array but {"),
        ("otlp_json", b'{"resourceSpans": [1]}', "invalid OTLP: resourceSpans is not an object but 1"),
    ],
)
def test_a_broken_record_is_one_dead_letter(split: Split, kind: str, value: bytes, reason: str) -> None:
    mark, (item, raw, dropped, error) = split("traces", value, kind)

    assert (mark, item, raw, dropped) == (MARK, -1, value, None)
    assert error is not None
    assert error.startswith(reason)


@pytest.mark.parametrize("bad", NOT_UTF_8)
@pytest.mark.parametrize("place", [b'{"resourceSpans": [], "more": "%s"}', b'{"resourceSpans": [], "%s": 1}'])
def test_json_that_is_not_utf_8_is_one_dead_letter(split: Split, place: bytes, bad: bytes) -> None:
    _, (_, _, _, error) = split("traces", place % bad, "otlp_json")

    assert error is not None
    assert error.startswith("invalid JSON: not in UTF-8, at byte ")


@pytest.mark.parametrize(
    ("member", "reason"),
    [
        ('"traceId": "xyz"', "traceId is not hexadecimal: 'xyz'"),
        ('"name": 1', "name is not a text but 1"),
        ('"flags": 4294967296', "flags is not a whole number of its size: 4294967296"),
        ('"flags": -1', "flags is not a whole number of its size: -1"),
        ('"startTimeUnixNano": "1.5"', "startTimeUnixNano is not a whole number of its size: 1.5"),
        ('"startTimeUnixNano": "18446744073709551616"', "startTimeUnixNano is not a whole number of its size"),
        ('"startTimeUnixNano": "0x1"', "startTimeUnixNano is not a whole number: 0x1"),
        ('"kind": "SERVER"', "kind has no value 'SERVER'"),
        ('"name": "\\ud800"', "name holds half a surrogate pair, which is not a character"),
        ('"attributes": [{"key": "a", "value": {"boolValue": 1}}]', "boolValue is not true or false but 1"),
        ('"attributes": [{"key": "a", "value": {"doubleValue": "x"}}]', "doubleValue is not a number: 'x'"),
        ('"attributes": [{"key": "a", "value": {"doubleValue": 1e999}}]', "doubleValue does not fit into 64 bits"),
        ('"attributes": [{"key": "a", "value": {"bytesValue": "?"}}]', "bytesValue is not base64: '?'"),
    ],
)
def test_a_json_value_of_another_type_is_refused(split: Split, member: str, reason: str) -> None:
    _, (_, _, _, error) = split("traces", in_span(member).encode(), "otlp_json")

    assert error is not None
    assert error.startswith(f"invalid OTLP: {reason}")


def test_json_may_have_names_of_the_proto_files_enums_by_name_and_unknown_members(split: Split) -> None:
    value = b"""{"resource_spans": [{"scopeSpans": [{"new": {"a": [1]}, "spans": [
        {"trace_id": "0AF7651916CD43DD8448EB211C80319C", "kind": "SPAN_KIND_SERVER", "startTimeUnixNano": 1e9,
         "parentSpanId": null, "status": {"code": 2}, "attributes": [{"key": "d", "value": {"doubleValue": "0.50"}}]}
    ]}]}]}"""

    _, (_, event, *problems) = split("traces", value, "otlp_json")

    found = json.loads(event or b"")
    assert problems == [None, None]
    assert (found["trace_id"], found["kind"]) == ("0af7651916cd43dd8448eb211c80319c", "SERVER")
    assert (found["start_timestamp"], found["status_code"]) == ("1970-01-01T00:00:01Z", "ERROR")
    assert found["attributes"] == {"d": "0.5"}


def nested(tag: bytes, message: bytes) -> bytes:
    """Return a message as a field of another one, with a length of two bytes."""
    return tag + bytes([len(message) & 0x7F | 0x80, len(message) >> 7]) + message


def test_values_nested_too_deep_are_refused(split: Split) -> None:
    # Google's library neither writes nor reads such a request.
    value, raw = '{"stringValue": ""}', b"\x0a\x00"
    for _ in range(50):
        value, raw = f'{{"arrayValue": {{"values": [{value}]}}}}', nested(b"\x2a", nested(b"\x0a", raw))
    request = f'{{"resourceSpans": [{{"resource": {{"attributes": [{{"key": "deep", "value": {value}}}]}}}}]}}'
    for tag in (b"\x12", b"\x0a", b"\x0a", b"\x0a"):
        raw = nested(tag, raw)

    for kind, sent in (("otlp_proto", raw), ("otlp_json", request.encode())):
        _, (item, _, _, error) = split("traces", sent, kind)
        assert (item, error) == (
            -1,
            f"invalid {'OTLP' if kind == 'otlp_json' else 'Protobuf'}: messages more than 100 deep",
        )


def test_a_request_of_too_many_bytes_as_events_is_refused(split: Split) -> None:
    request = traces([Span()] * 10_000)
    request.resource_spans[0].resource.attributes.extend(attributes(large="x" * 10_000))

    _, (item, _, _, error) = split("traces", request.SerializeToString())

    assert (item, error) == (-1, "the request's events have more than 67108864 bytes as JSON")


U32, U64, I64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=8)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), I64, st.floats(), TEXTS, st.binary(max_size=4)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
ATTRIBUTES = st.lists(st.builds(KeyValue, key=TEXTS, value=VALUES.map(any_value)), max_size=3)
TIMES = U64


def optional(values: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=values)


TRACE_IDS, SPAN_IDS = st.sampled_from([b"", bytes(16), bytes(range(16))]), st.sampled_from([b"", bytes(range(8))])
LINKS = optional({"trace_id": TRACE_IDS, "span_id": SPAN_IDS, "trace_state": TEXTS, "attributes": ATTRIBUTES,
                  "dropped_attributes_count": U32})  # fmt: skip
EVENTS = optional({"time_unix_nano": TIMES, "name": TEXTS, "attributes": ATTRIBUTES, "dropped_attributes_count": U32})
SPANS = optional({
    "trace_id": TRACE_IDS, "span_id": SPAN_IDS, "parent_span_id": SPAN_IDS, "trace_state": TEXTS, "flags": U32,
    "name": TEXTS, "kind": st.integers(-1, 9), "start_time_unix_nano": TIMES, "end_time_unix_nano": TIMES,
    "attributes": ATTRIBUTES, "dropped_attributes_count": U32, "dropped_events_count": U32,
    "dropped_links_count": U32, "events": st.lists(EVENTS, max_size=2), "links": st.lists(LINKS, max_size=2),
    "status": optional({"code": st.integers(-1, 5), "message": TEXTS}),
})  # fmt: skip
LOGS = optional({
    "time_unix_nano": TIMES, "observed_time_unix_nano": TIMES, "severity_number": st.integers(-1, 30),
    "severity_text": TEXTS, "body": VALUES.map(any_value), "attributes": ATTRIBUTES, "flags": U32,
    "dropped_attributes_count": U32, "trace_id": TRACE_IDS, "span_id": SPAN_IDS,
})  # fmt: skip
POINT = {"attributes": ATTRIBUTES, "start_time_unix_nano": TIMES, "time_unix_nano": TIMES, "flags": U32}
HISTOGRAM = {**POINT, "count": U64, "sum": FINITE, "min": FINITE, "max": FINITE}
NUMBERS = st.one_of(optional({**POINT, "as_double": FINITE}), optional({**POINT, "as_int": I64}))
TEMPORALITY = {"aggregation_temporality": st.integers(0, 3)}


def data(points: st.SearchStrategy[Any], **more: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"data_points": st.lists(points, max_size=3)}, optional=more)


METRIC = {"name": TEXTS, "description": TEXTS, "unit": TEXTS}
METRICS = st.one_of(
    optional(METRIC),
    optional({**METRIC, "gauge": data(NUMBERS)}),
    optional({**METRIC, "sum": data(NUMBERS, is_monotonic=st.booleans(), **TEMPORALITY)}),
    optional({
        **METRIC,
        "histogram": data(
            optional({**HISTOGRAM, "bucket_counts": st.lists(U64, max_size=3),
                      "explicit_bounds": st.lists(FINITE, max_size=3)}),
            **TEMPORALITY,
        ),
    }),
    optional({**METRIC, "exponential_histogram": data(optional(HISTOGRAM), **TEMPORALITY)}),
    optional({**METRIC, "summary": data(optional({**POINT, "count": U64, "sum": FINITE}))}),
)  # fmt: skip


def requests(signal: str, records: st.SearchStrategy[Any]) -> st.SearchStrategy[Message]:
    resources, scopes, name = {
        "logs": ("resource_logs", "scope_logs", "log_records"),
        "metrics": ("resource_metrics", "scope_metrics", "metrics"),
        "traces": ("resource_spans", "scope_spans", "spans"),
    }[signal]
    scope = optional(
        {
            "scope": optional({"name": TEXTS, "version": TEXTS, "attributes": ATTRIBUTES}),
            name: st.lists(records, max_size=3),
        }
    )
    resource = optional({"resource": optional({"attributes": ATTRIBUTES}), scopes: st.lists(scope, max_size=2)})
    return st.lists(resource, max_size=2).map(lambda parts: REQUESTS[signal](**{resources: parts}))


DRAWN = st.one_of(
    *(
        st.tuples(st.just(signal), requests(signal, records))
        for signal, records in (("logs", LOGS), ("metrics", METRICS), ("traces", SPANS))
    )
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=DRAWN)
def test_random_requests_are_flattened_as_by_glassflow(split: Split, drawn: tuple[str, Message]) -> None:
    signal, request = drawn
    expected = flattened(signal, request)

    found = events(split, signal, request) if expected else []

    assert found == expected
    if not expected:
        assert split(signal, request.SerializeToString())[1][2] == "filtered"
