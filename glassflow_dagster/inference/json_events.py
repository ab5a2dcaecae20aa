"""The format `json`: messages that are one JSON object each, with or without a schema id before it or in a header."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

from glassflow_dagster.inference.events import Event, Events
from glassflow_dagster.stores.kafka.confluent_wire_format import split_schema_id
from glassflow_dagster.stores.kafka.records import Record

FROM_A_REGISTRY = "of a schema registry, but not JSON (Avro or Protobuf)"


def read_json_events(records: Iterable[Record]) -> Events:
    """Parse messages as the pipeline would: one JSON object each, in UTF-8; count the others by reason.

    A topic is read either with schema ids or without: as most of its objects are. The other objects count as skipped.
    """
    objects: dict[bool, list[Event]] = {True: [], False: []}  # has a schema id -> the objects
    skipped: Counter[str] = Counter()
    for record in records:
        split = split_schema_id(record.value, record.headers) if record.value is not None else None
        event = _parse(split.content if split else record.value)
        if isinstance(event, str):
            skipped[FROM_A_REGISTRY if split else event] += 1
        else:
            objects[split is not None].append(event)
    with_schema = len(objects[True]) > len(objects[False])
    if objects[not with_schema]:
        skipped["without a schema's id" if with_schema else "with a schema's id"] = len(objects[not with_schema])
    return Events(objects[with_schema], skipped, with_schema)


def _parse(value: bytes | None) -> Event | str:
    """Return the object that a message holds, or as text the reason why it holds none."""
    if not value:
        return "without a value"
    try:
        parsed = json.loads(value.decode("utf-8"), parse_constant=_reject_constant)
    except UnicodeDecodeError:
        return "not in UTF-8"
    except RecursionError:
        return "nested too deeply"
    except ValueError:
        return "not JSON"
    return parsed if isinstance(parsed, dict) else "JSON other than an object"


def _reject_constant(constant: str) -> NoReturn:
    """Raise ValueError for NaN and Infinity, which Python's parser accepts and JSON does not have."""
    raise ValueError(constant)
