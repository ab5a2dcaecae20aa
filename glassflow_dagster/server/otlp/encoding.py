"""Export requests and responses as bytes: Protobuf, and OTLP's JSON.

OTLP's JSON is Protobuf's, except that the ids of traces and spans are hexadecimal instead of base64, and enumerations
are numbers.
"""

import base64
import binascii
import json
from enum import Enum
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from glassflow_dagster.server.otlp.refusals import Reason, Refusal
from glassflow_dagster.server.otlp.signals import Signal

# Bytes of an id. Where JSON has these keys, they are ids: attributes are lists of key and value.
_ID_BYTES = {
    "traceId": 16, "trace_id": 16, "spanId": 8, "span_id": 8, "parentSpanId": 8, "parent_span_id": 8,
}  # fmt: skip


class Encoding(Enum):
    """An encoding of OTLP: the name that a source's `format` has for it, and its media type."""

    PROTOBUF = ("otlp_proto", "application/x-protobuf")
    JSON = ("otlp_json", "application/json")

    def __init__(self, format_name: str, media_type: str) -> None:
        self.format_name = format_name
        self.media_type = media_type

    def encode(self, message: Any) -> bytes:
        """Return a message as bytes."""
        if self is Encoding.PROTOBUF:
            return bytes(message.SerializeToString())
        raw = json_format.MessageToDict(message, use_integers_for_enums=True)
        return json.dumps(_with_ids(raw, _hexadecimal), separators=(",", ":"), ensure_ascii=False).encode()


def decode(signal: Signal, encoding: Encoding, body: bytes) -> Any:
    """Return the export request of a body; raises `Refusal` for one that is none.

    Unknown fields are ignored, as the specification asks; a body that has nothing but unknown fields is refused, since
    it is of another signal or no OTLP.
    """
    request = _from_protobuf(signal, body) if encoding is Encoding.PROTOBUF else _from_json(signal, body)
    if body and not getattr(request, signal.path[0]) and not _is_empty_json(signal, encoding, body):
        raise Refusal(
            Reason.INVALID, f"the body has no {signal.path[0]}; {signal.url_path} receives {signal.request.__name__}"
        )
    return request


def _from_protobuf(signal: Signal, body: bytes) -> Any:
    try:
        return signal.request.FromString(body)
    except DecodeError:
        raise Refusal(
            Reason.INVALID, f"the body is no Protobuf message {signal.request.__name__}; check the exporter's endpoint"
        ) from None


def _from_json(signal: Signal, body: bytes) -> Any:
    try:
        raw = _with_ids(_parsed(body), _base64)
        return json_format.ParseDict(raw, signal.request(), ignore_unknown_fields=True)
    # ParseDict lets some errors of a value's type through.
    except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise Refusal(
            Reason.INVALID, f"the body is no {signal.request.__name__} in OTLP's JSON encoding: {error or 'too deep'}"
        ) from None


def _parsed(body: bytes) -> dict[str, Any]:
    """Parse a JSON object in UTF-8; raises ValueError for any other body."""
    # As a text: json takes bytes with halves of surrogate pairs, too.
    raw = json.loads(body.decode("utf-8-sig"), object_pairs_hook=_members)
    if not isinstance(raw, dict):
        raise ValueError("not an object")  # noqa: TRY004 - the one error that a caller expects
    return raw


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of an object; raises ValueError for a name that is given twice or has half a character."""
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is given twice")
    # An escape may be half a surrogate pair, at which Protobuf raises SystemError.
    "".join(members).encode()
    return members


def _is_empty_json(signal: Signal, encoding: Encoding, body: bytes) -> bool:
    """Return whether a valid body is JSON of a request without resources: `{}`, or an empty list of them."""
    if encoding is not Encoding.JSON:
        return False
    raw = _parsed(body)
    field = signal.request.DESCRIPTOR.fields_by_name[signal.path[0]]
    return not raw or field.json_name in raw or field.name in raw


def _with_ids(node: Any, convert: Any) -> Any:
    """Return a part of JSON whose ids are converted; `convert` is called with key and text."""
    if isinstance(node, dict):
        return {
            key: convert(key, value) if key in _ID_BYTES and value else _with_ids(value, convert)
            for key, value in node.items()
        }
    return [_with_ids(item, convert) for item in node] if isinstance(node, list) else node


def _base64(key: str, text: Any) -> str:
    """Convert a hexadecimal id; raises ValueError for another text, also one of another length."""
    try:
        found = binascii.unhexlify(text)
    except (ValueError, TypeError):
        found = b""
    if len(found) != _ID_BYTES[key]:
        raise ValueError(f"{key}: {text!r} is no id; write {2 * _ID_BYTES[key]} hexadecimal digits")
    return base64.b64encode(found).decode()


def _hexadecimal(_key: str, text: str) -> str:
    return base64.b64decode(text).hex()
