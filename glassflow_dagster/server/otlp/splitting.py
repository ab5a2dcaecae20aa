"""Cuts an export request into messages that a Kafka topic takes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from glassflow_dagster.server.otlp.signals import DATA

Path = Sequence[str]


@dataclass(frozen=True)
class Messages:
    """The messages of a request. rejected: its records that are larger than a message may be."""

    values: tuple[bytes, ...]
    rejected: int = 0


def split(request: Any, path: Path, encode: Callable[[Any], bytes], limit: int) -> Messages:
    """Return a request as messages of at most `limit` bytes, each a whole request with resource and scope.

    It is halved until the parts are small enough: its resources, then the scopes of one, then their records. A single
    record above the limit is rejected.
    """
    value = encode(request)
    if len(value) <= limit:
        return Messages((value,))
    halves = _halves(request, path)
    if not halves:
        return Messages((), count_records(request, path))
    first, second = (split(half, path, encode, limit) for half in halves)
    return Messages((*first.values, *second.values), first.rejected + second.rejected)


def count_records(message: Any, path: Path) -> int:
    """Return the number of records below a message: spans, log records, or data points."""
    field, *rest = path
    if field == DATA:
        kind = message.WhichOneof(DATA)
        # A metric without data is a record, too: it has a name.
        return count_records(getattr(message, kind), rest) if kind else 1
    children = getattr(message, field)
    return sum(count_records(child, rest) for child in children) if rest else len(children)


def _halves(message: Any, path: Path) -> list[Any]:
    """Return two messages that have one half of the records each; none if there is only one record."""
    field, *rest = path
    if field == DATA:
        kind = message.WhichOneof(DATA)
        parts = _halves(getattr(message, kind), rest) if kind else []
        return [_copy(message, kind, part) for part in parts]
    children = getattr(message, field)
    if len(children) > 1:
        middle = len(children) // 2
        return [_copy(message, field, children[:middle]), _copy(message, field, children[middle:])]
    parts = _halves(children[0], rest) if children and rest else []
    return [_copy(message, field, [part]) for part in parts]


def _copy(message: Any, field: str, value: Any) -> Any:
    """Return a copy of a message in which a field has another value: a message, or a list of messages."""
    copy = type(message)()
    copy.CopyFrom(message)
    copy.ClearField(field)
    if isinstance(value, list):
        getattr(copy, field).extend(value)
    else:
        getattr(copy, field).CopyFrom(value)
    return copy
