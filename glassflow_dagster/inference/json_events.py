"""The format `json`: from messages to JSON objects, and a count of those that are none, by reason."""

import json
from collections import Counter
from collections.abc import Iterable
from typing import NoReturn

from glassflow_dagster.inference.events import Event, Events

# Confluent's serializers write this byte and the schema's id in four bytes, and then the content.
_MARK = b"\x00"
_MARK_SIZE = 5
FROM_A_REGISTRY = "of a schema registry, but not JSON (Avro or Protobuf)"


def read_json_events(values: Iterable[bytes | None]) -> Events:
    """Read messages as the pipeline would: exactly one JSON object each, in UTF-8.

    Either all of them carry a schema's id or none does: what most of the objects do, counts.
    """
    objects: dict[bool, list[Event]] = {True: [], False: []}
    others: Counter[str] = Counter()
    for value in values:
        marked = value is not None and value.startswith(_MARK)
        event = _read(value[_MARK_SIZE:] if value and marked else value)
        if isinstance(event, str):
            others[FROM_A_REGISTRY if marked else event] += 1
        else:
            objects[marked].append(event)
    with_schema = len(objects[True]) > len(objects[False])
    if objects[not with_schema]:
        others["without a schema's id" if with_schema else "with a schema's id"] = len(objects[not with_schema])
    return Events(objects[with_schema], others, with_schema)


def _read(value: bytes | None) -> Event | str:
    """Give an object, or what the message is instead."""
    if not value:
        return "without a value"
    try:
        parsed = json.loads(value.decode("utf-8"), parse_constant=_refuse)
    except UnicodeDecodeError:
        return "not in UTF-8"
    except RecursionError:
        return "nested too deeply"
    except ValueError:
        return "no JSON"
    return parsed if isinstance(parsed, dict) else "JSON other than an object"


def _refuse(constant: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python reads and JSON does not have."""
    raise ValueError(constant)
