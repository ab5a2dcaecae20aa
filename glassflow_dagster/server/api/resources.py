"""The `resources` of a pipeline, and which of them cannot change, as in GlassFlow."""

from collections.abc import Mapping
from typing import Any

from glassflow_dagster.server.api.api_error import unprocessable
from glassflow_dagster.server.api.public_form import transformation_type

_IMMUTABLE = ("nats/stream/maxAge", "nats/stream/maxBytes", "nats/stream/maxMsgs", "transform/storage/size")
# The partitions of the state, in which the keys are.
_WITH_DEDUP = ("transform/replicas",)


def immutable_fields(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths of what cannot change."""
    return _IMMUTABLE + (_WITH_DEDUP if "Dedup" in transformation_type(definition) else ())


def require_mutable(definition: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise `ApiError` where a value that cannot change is another one than in the definition."""
    old = definition.get("resources")
    for field in immutable_fields(definition):
        before, after = (dict(_values(each, field.split("/"))) for each in (old, new))
        if any(before[place] != after[place] for place in before.keys() & after.keys()):
            text = f'immutable field "{field}" cannot be changed'
            raise unprocessable(text, text)


def _values(part: Any, path: list[str], place: str = "") -> list[tuple[str, Any]]:
    """Return the value at a path, by the source whose it is; lists have one entry of each source."""
    if isinstance(part, list):
        return [
            found
            for each in part
            if isinstance(each, dict)
            for found in _values(each, path, str(each.get("source_id")))
        ]
    if not path:
        return [(place, part)]
    return _values(part[path[0]], path[1:], place) if isinstance(part, dict) and path[0] in part else []
