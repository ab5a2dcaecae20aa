"""The format `json`: messages that are one JSON object each, with or without a schema id before it."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

from glassflow_dagster.inference.events import Event, Events

# Confluent's wire format: this byte and the schema id in four bytes, then the content.
_MAGIC_BYTE = b"\x00"
_HEADER_SIZE = 5
FROM_A_REGISTRY = "of a schema registry, but not JSON (Avro or Protobuf)"


def read_json_events(values: Iterable[bytes | None]) -> Events:
    """Parse messages as the pipeline would: one JSON object each, in UTF-8; count the others by reason.

    A topic is read either with schema ids or without: as most of its objects are. The other objects count as skipped.
    """
    objects: dict[bool, list[Event]] = {True: [], False: []}  # by: has a schema id
    skipped: Counter[str] = Counter()
    for value in values:
        has_schema_id = value is not None and value.startswith(_MAGIC_BYTE)
        event = _parse(value[_HEADER_SIZE:] if value and has_schema_id else value)
        if isinstance(event, str):
            skipped[FROM_A_REGISTRY if has_schema_id else event] += 1
        else:
            objects[has_schema_id].append(event)
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
