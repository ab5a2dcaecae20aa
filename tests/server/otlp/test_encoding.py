"""OTLP's JSON and Protobuf mean the same requests."""

import json
import math
import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from glassflow_dagster.server.otlp.encoding import Encoding, decode
from glassflow_dagster.server.otlp.refusals import Reason, Refusal
from glassflow_dagster.server.otlp.signals import LOGS, METRICS, SIGNALS, TRACES, Signal

TRACE_ID, SPAN_ID = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"


def a_trace() -> Any:
    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    span = resource.scope_spans.add().spans.add(
        trace_id=bytes.fromhex(TRACE_ID), span_id=bytes.fromhex(SPAN_ID), parent_span_id=bytes.fromhex(SPAN_ID),
        name="größe", kind=3, start_time_unix_nano=2**64 - 1,
    )  # fmt: skip
    span.links.add(trace_id=bytes.fromhex(TRACE_ID), span_id=bytes.fromhex(SPAN_ID))
    span.status.code = 2
    for value in ({"double_value": math.inf}, {"int_value": -(2**63)}, {"bytes_value": os.urandom(9)}):
        span.attributes.add(key="traceId").value.MergeFrom(type(span.attributes.add().value)(**value))
    return request


def a_log() -> Any:
    request = ExportLogsServiceRequest()
    record = request.resource_logs.add().scope_logs.add().log_records.add(trace_id=bytes(16), span_id=b"", flags=1)
    record.body.kvlist_value.values.add(key="spanId").value.string_value = "not an id"
    return request


def a_metric() -> Any:
    request = ExportMetricsServiceRequest()
    metric = request.resource_metrics.add().scope_metrics.add().metrics.add(name="latency")
    point = metric.histogram.data_points.add(count=3, bucket_counts=[1, 2], explicit_bounds=[0.5], sum=1.25)
    point.exemplars.add(trace_id=bytes.fromhex(TRACE_ID), span_id=bytes.fromhex(SPAN_ID), as_double=0.1)
    return request


@pytest.mark.parametrize(("signal", "request_"), [(TRACES, a_trace()), (LOGS, a_log()), (METRICS, a_metric())])
@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_request_is_the_same_after_encoding_and_decoding(signal: Signal, request_: Any, encoding: Encoding) -> None:
    assert decode(signal, encoding, encoding.encode(request_)) == request_


def test_ids_are_hexadecimal_and_enumerations_are_numbers_in_json() -> None:
    written = json.loads(Encoding.JSON.encode(a_trace()))
    [span] = written["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert (span["traceId"], span["spanId"], span["parentSpanId"]) == (TRACE_ID, SPAN_ID, SPAN_ID)
    assert (span["links"][0]["traceId"], span["kind"], span["status"]["code"]) == (TRACE_ID, 3, 2)
    assert span["startTimeUnixNano"] == str(2**64 - 1)
    # The same as exporters write: no escapes, which need more bytes.
    assert "größe".encode() in Encoding.JSON.encode(a_trace())


def test_ids_may_be_upper_case_and_fields_have_the_names_of_protobuf() -> None:
    span = {"trace_id": TRACE_ID.upper(), "span_id": SPAN_ID, "parentSpanId": "", "futureField": {"a": [1]}}
    body = json.dumps({"resource_spans": [{"scope_spans": [{"spans": [span]}]}]}).encode()
    [found] = decode(TRACES, Encoding.JSON, body).resource_spans[0].scope_spans[0].spans
    assert (found.trace_id.hex(), found.span_id.hex(), found.parent_span_id) == (TRACE_ID, SPAN_ID, b"")


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize(("encoding", "body"), [
    (Encoding.PROTOBUF, b""), (Encoding.JSON, b"{}"), (Encoding.JSON, b' {"futureField": 1, "%s": []} '),
])  # fmt: skip
def test_a_request_may_be_empty(signal: Signal, encoding: Encoding, body: bytes) -> None:
    field = signal.request.DESCRIPTOR.fields_by_name[signal.path[0]].json_name
    assert decode(signal, encoding, body.replace(b"%s", field.encode())) == signal.request()


@pytest.mark.parametrize(("encoding", "body", "reason"), [
    (Encoding.PROTOBUF, b"\xff\xff\xff", "no Protobuf message ExportTraceServiceRequest"),
    (Encoding.PROTOBUF, b'{"resourceSpans": []}', "no Protobuf message|has no resource_spans"),
    # Field 5 as a number: nothing but an unknown field.
    (Encoding.PROTOBUF, b"\x28\x01", "has no resource_spans; /v1/traces receives ExportTraceServiceRequest"),
    (Encoding.JSON, b"", "in OTLP's JSON encoding: Expecting value"),
    (Encoding.JSON, b"[]", "not an object"),
    (Encoding.JSON, b"\xff\xfe\xff", "codec can't decode"),
    (Encoding.JSON, b'{"resourceSpans": 5}', "JSON encoding"),
    (Encoding.JSON, b'{"resourceSpans": [5]}', "JSON encoding"),
    (Encoding.JSON, b'{"resourceLogs": [{}]}', "has no resource_spans"),
    (Encoding.JSON, b'{"resourceSpans": [{"resource": {"attributes": "x"}}]}', "JSON encoding"),
    (Encoding.JSON, b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "zz"}]}]}]}', "write 32 hex"),
    (Encoding.JSON, b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"spanId": 5}]}]}]}', "spanId: 5 is no id"),
    (Encoding.JSON, b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"spanId": "W47/95gDgQM="}]}]}]}', "is no id"),
    (Encoding.JSON, b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "\\ud800"}]}]}]}', "JSON encoding"),
    (Encoding.JSON, b'{"resourceSpans": [{"\\ud800": 1}]}', "surrogates not allowed"),
    (Encoding.JSON, b'{"resourceSpans": [{"\xed\xa0\x80": 1}]}', "codec can't decode byte 0xed"),
    (Encoding.JSON, b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "\xc0\xaf"}]}]}]}', "byte 0xc0"),
    (Encoding.JSON, b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "a", "name": "b"}]}]}]}',
     "'name' is given twice"),
    (Encoding.JSON, b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"kind": 1e99}]}]}]}', "JSON encoding"),
    (Encoding.JSON, b'{"resourceSpans":' + b"[" * 100_000, "JSON encoding"),
    (Encoding.JSON, b'{"resourceSpans": [{"resource": {"attributes": [{"value": ' + b'{"arrayValue": {"values": [' * 90
     + b"]}}" * 90 + b"}]}}]}", "JSON encoding"),
])  # fmt: skip
def test_what_is_no_request_is_refused(encoding: Encoding, body: bytes, reason: str) -> None:
    with pytest.raises(Refusal, match=reason) as raised:
        decode(TRACES, encoding, body)
    assert raised.value.reason is Reason.INVALID


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["resourceSpans", "scopeSpans", "spans", "traceId", "kind", "attributes", "value", "key"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=10,
)


@given(st.sampled_from(SIGNALS), JSON | st.binary(max_size=40))
def test_a_body_is_a_request_or_is_refused_as_invalid(signal: Signal, body: Any) -> None:
    encoding = Encoding.PROTOBUF if isinstance(body, bytes) else Encoding.JSON

    def outcome() -> object:
        try:
            return type(decode(signal, encoding, body if isinstance(body, bytes) else json.dumps(body).encode()))
        except Refusal as refusal:
            return refusal.reason

    assert outcome() in {signal.request, Reason.INVALID}
