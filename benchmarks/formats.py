"""Throughput by format: the same events as JSON, as Avro and as Protobuf, with the schema in the definition.

`benchmarks.steady_state` says how it is measured; the events are those of `benchmarks.shapes` with 190 bytes of JSON,
which are about half as long in the other formats.

    make bench-formats        or: python -m benchmarks.formats --events 500000 --runs 1
"""

import io
import json
import struct

import fastavro

from benchmarks import results
from benchmarks.events import DUPLICATES, SEED, distinct, event, fill_topic
from benchmarks.results import Runs, turns
from benchmarks.stack import running_stack
from benchmarks.steady_state import Expected, ProductCase, Run, new_task
from glassflow_dagster.local.demo.produce import PARTITIONS

AVRO = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "user", "type": "string"},
        {"name": "name", "type": "string"},
        {"name": "email", "type": "string"},
        {"name": "amount", "type": "int"},
        {"name": "price", "type": "double"},
        {"name": "sent_at", "type": "long"},
    ],
}
PROTOBUF = """
syntax = "proto3";
message Event {
  string id = 1; string user = 2; string name = 3; string email = 4; int32 amount = 5; double price = 6;
  int64 sent_at = 7;
}
"""
TEXTS = ("id", "user", "name", "email")
# The tags of the fields, and the wire types: of texts, of whole numbers, and of 64 bits.
TAG, TEXT, WHOLE, FIXED64 = 3, 2, 0, 1
# Seven bits of a number are in each byte; the eighth says that more follow.
SEVEN_BITS, MORE = 0x7F, 0x80


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("formats")
    parser.add_argument("--events", type=int, default=2_000_000)
    arguments = parser.parse_args()
    runs = Runs()
    keys = distinct(arguments.events)
    with running_stack() as stack:
        for topic, (make, _) in FORMATS.items():
            fill_topic(stack, topic, arguments.events, make)
        for turn, topic in turns(list(FORMATS), arguments.runs):
            _, case = FORMATS[topic]
            run = Run(case, stack, new_task(stack, topic, f"{topic}_{turn}"), Expected(arguments.events, keys, keys))
            runs.measure(case.name, run.measure)
            run.drop()
    for topic in ("avro", "protobuf"):
        name = FORMATS[topic][1].name
        runs.compare(f"{name} : JSON", name, "JSON")
    parameters = {"events": arguments.events, "duplicates": DUPLICATES, "seed": SEED, "partitions": PARTITIONS}
    runs.write(arguments.results, "formats", parameters)


def avro_event(number: int) -> bytes:
    """Return the event with this number as Avro."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, PARSED, json.loads(event(number)))
    return stream.getvalue()


def protobuf_event(number: int) -> bytes:
    """Return the event with this number as Protobuf."""
    fields = json.loads(event(number))
    texts = b"".join(_text(place, fields[name]) for place, name in enumerate(TEXTS, start=1))
    numbers = _tag(5, WHOLE) + _varint(fields["amount"]) + _tag(6, FIXED64) + struct.pack("<d", fields["price"])
    return texts + numbers + _tag(7, WHOLE) + _varint(fields["sent_at"])


def _text(place: int, text: str) -> bytes:
    encoded = text.encode()
    return _tag(place, TEXT) + _varint(len(encoded)) + encoded


def _tag(place: int, wire_type: int) -> bytes:
    return bytes([place << TAG | wire_type])


def _varint(number: int) -> bytes:
    groups = bytearray()
    while number > SEVEN_BITS:
        groups.append(number & SEVEN_BITS | MORE)
        number >>= 7
    groups.append(number)
    return bytes(groups)


PARSED = fastavro.parse_schema(AVRO)
# How an event is made, and the pipeline that reads it.
FORMATS = {
    "json": (event, ProductCase("JSON")),
    "avro": (
        avro_event,
        ProductCase("Avro", source={"format": "avro", "schema": {"file": json.dumps(AVRO), "wire_format": "none"}}),
    ),
    "protobuf": (
        protobuf_event,
        ProductCase("Protobuf", source={"format": "protobuf", "schema": {"file": PROTOBUF, "wire_format": "none"}}),
    ),
}


if __name__ == "__main__":
    main()
