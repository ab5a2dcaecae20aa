"""The deduplicated events as Avro and as Protobuf, with the schema in the definition."""

import io
import json
from typing import Any

import fastavro

from tests.faults.dedup_workload import DedupWorkload

_AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": ["null", "string"]},
        {"name": "n", "type": "long"},
        {"name": "text", "type": "string"},
        {"name": "skip", "type": ["null", "boolean"]},
    ],
}
_PROTOBUF = """
syntax = "proto3";
message Event { optional string id = 1; int64 n = 2; string text = 3; optional bool skip = 4; }
"""
_TEXTS = {1: "id", 3: "text"}
_NUMBERS = {2: "n", 4: "skip"}
_SEVEN_BITS, _MORE = 0x7F, 0x80


class AvroWorkload(DedupWorkload):
    """Events that are Avro records."""

    def definition(self, brokers: str, clickhouse_port: int) -> dict[str, Any]:
        return _with_schema(super().definition(brokers, clickhouse_port), "avro", json.dumps(_AVRO))

    def encode(self, event: dict[str, Any]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, _PARSED, {"id": None, "skip": None, **event})
        return stream.getvalue()

    def decode(self, value: bytes) -> dict[str, Any]:
        if value == b"{not json":  # in Avro a branch that the union does not have
            raise ValueError
        found: Any = fastavro.schemaless_reader(io.BytesIO(value), _PARSED, _PARSED)
        return {name: content for name, content in found.items() if content is not None}


class ProtobufWorkload(DedupWorkload):
    """Events that are messages of Protobuf."""

    def definition(self, brokers: str, clickhouse_port: int) -> dict[str, Any]:
        return _with_schema(super().definition(brokers, clickhouse_port), "protobuf", _PROTOBUF)

    def encode(self, event: dict[str, Any]) -> bytes:
        texts = [
            bytes([place << 3 | 2]) + _varint(len(event[name].encode())) + event[name].encode()
            for place, name in _TEXTS.items()
            if name in event
        ]
        numbers = [bytes([place << 3]) + _varint(int(event[name])) for place, name in _NUMBERS.items() if name in event]
        return b"".join(texts + numbers)

    def decode(self, value: bytes) -> dict[str, Any]:
        if value == b"{not json":  # in Protobuf a group with an unknown wire type in it
            raise ValueError
        event: dict[str, Any] = {"n": 0, "text": ""}
        at = 0
        while at < len(value):
            place, at = value[at] >> 3, at + 1
            number, at = _read_varint(value, at)
            if place in _TEXTS:
                event[_TEXTS[place]] = value[at : at + number].decode()
                at += number
            else:
                event[_NUMBERS[place]] = number
        return event


def _with_schema(definition: dict[str, Any], format_name: str, schema: str) -> dict[str, Any]:
    definition["sources"][0] |= {"format": format_name, "schema": {"file": schema, "wire_format": "none"}}
    return definition


def _varint(number: int) -> bytes:
    number %= 2**64
    groups = bytearray()
    while number > _SEVEN_BITS:
        groups.append(number & _SEVEN_BITS | _MORE)
        number >>= 7
    return bytes([*groups, number])


def _read_varint(value: bytes, at: int) -> tuple[int, int]:
    """Return a number, with its sign, and the position behind it."""
    number = shift = 0
    while True:
        number |= (value[at] & _SEVEN_BITS) << shift
        shift += 7
        at += 1
        if not value[at - 1] & _MORE:
            return (number - 2**64 if number >= 2**63 else number), at


_PARSED = fastavro.parse_schema(_AVRO)
