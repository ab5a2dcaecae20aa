"""From JSON objects to the fields they have: nested objects as dotted names, arrays whole, as GlassFlow's UI has them.

An object stays whole, as a `map`, where its keys vary from event to event (they are data then), where none was ever
seen, and where a dotted name could not be found again: the decoder takes a name apart at its dots.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from glassflow_dagster.config.model.types import FieldKind
from glassflow_dagster.config.variables import holds_variable
from glassflow_dagster.inference.events import Event

Path = tuple[str, ...]

# More keys than a person writes down for one object, of which most are absent from most of the objects.
VARYING_KEYS = 24
VARYING_PRESENCE = 0.2
# Deeper than this nobody wants a column; it also bounds the recursion here.
MAX_DEPTH = 12
# Spark plans a column in some milliseconds, and people read a definition.
MAX_FIELDS = 300

INT64 = (-(2**63), 2**63 - 1)
UINT64 = (0, 2**64 - 1)

# What JSON has, as people say it -> the kind of field that takes it. Numbers are judged by their values.
_KINDS: dict[str, FieldKind] = {
    "bool": "bool", "string": "string", "array": "array", "object": "map", "number": "float",
}  # fmt: skip


@dataclass
class Field:
    """What was seen of one field: its values that are neither missing nor null, and how many were null.

    Its types are asked for once all values are there.
    """

    name: str
    events: int
    values: list[Any] = field(default_factory=list)
    nulls: int = 0

    @property
    def missing(self) -> int:
        """Events without the field."""
        return self.events - self.nulls - len(self.values)

    @property
    def required(self) -> bool:
        """Whether every event had a value."""
        return len(self.values) == self.events

    @cached_property
    def types(self) -> Counter[str]:
        """How often each JSON type was seen: whole numbers and others count as one."""
        return Counter(_json_type(value) for value in self.values)

    @cached_property
    def kind(self) -> FieldKind:
        """The kind that takes most of the values; a text where only null was seen."""
        if not self.values:
            return "string"
        [(most, _)] = self.types.most_common(1)
        return _number_kind(self.fitting) if most == "number" else _KINDS[most]

    @cached_property
    def fitting(self) -> list[Any]:
        """The values of the type that was seen most."""
        counted = self.types
        [(most, count)] = counted.most_common(1) or [("", 0)]
        return (
            self.values if count == len(self.values) else [value for value in self.values if _json_type(value) == most]
        )


@dataclass(frozen=True)
class Fields:
    """The fields of some events, in the order in which they were first seen.

    `left_out` are names that can't be declared, or are one too many; `not_objects` tells in how many events something
    else stands where an object was taken apart.
    """

    known: tuple[Field, ...]
    left_out: tuple[str, ...]
    not_objects: dict[str, int]


@dataclass(frozen=True)
class _Shape:
    """The paths whose objects are taken apart, and how many other values (null aside) each of them has."""

    opened: dict[Path, int]


def observe(events: Sequence[Event]) -> Fields:
    """Collect what the events have."""
    shape = _shape(events)
    found: dict[str, Field] = {}
    refused: dict[str, None] = {}
    for event in events:
        for name, value in _named_values(event, shape).items():
            if not _declarable(name):
                refused[name] = None
                continue
            known = found.setdefault(name, Field(name, len(events)))
            if value is None:
                known.nulls += 1
            else:
                known.values.append(value)
    kept = sorted(found.values(), key=lambda known: len(known.values), reverse=True)[:MAX_FIELDS]
    names = {known.name for known in kept}
    left_out = (*refused, *(name for name in found if name not in names))
    not_objects = {".".join(path): count for path, count in shape.opened.items() if count}
    return Fields(tuple(known for known in found.values() if known.name in names), left_out, not_objects)


def _named_values(event: Event, shape: _Shape) -> dict[str, Any]:
    """Give an event's values by dotted name; the literal name `a.b` goes before the path a -> b, as when decoding."""
    values: dict[str, Any] = {}
    for path, value in _leaves(event, (), shape):
        if len(path) == 1:
            values[path[0]] = value
        else:
            values.setdefault(".".join(path), value)
    return values


def _leaves(value: Event, path: Path, shape: _Shape) -> Iterator[tuple[Path, Any]]:
    for key, inner in value.items():
        at = (*path, key)
        if at not in shape.opened:
            yield at, inner
        elif isinstance(inner, dict):
            yield from _leaves(inner, at, shape)


@dataclass
class _Objects:
    """The objects seen at one path: how many, and how often each key."""

    keys: Counter[str] = field(default_factory=Counter)
    count: int = 0

    @property
    def are_data(self) -> bool:
        """Whether their keys vary, or there are none."""
        full = self.count * len(self.keys)
        return not full or (len(self.keys) > VARYING_KEYS and self.keys.total() < VARYING_PRESENCE * full)


def _shape(events: Iterable[Event]) -> _Shape:
    """Find the paths whose objects are taken apart."""
    objects: dict[Path, _Objects] = {}
    others: Counter[Path] = Counter()
    for event in events:
        _count_objects(event, (), objects, others)
    opened = {
        path: others[path]
        for path, seen in objects.items()
        if not seen.are_data
        # Where most values are no objects, the field is what they are.
        and others[path] <= seen.count
        and len(path) < MAX_DEPTH
        and _found_again(path, seen.keys)
    }
    return _Shape(opened)


def _found_again(path: Path, keys: Iterable[str]) -> bool:
    """Whether the decoder, which takes names apart at their dots, finds the keys of an object."""
    return all(part and "." not in part for part in (*path, *keys))


def _count_objects(value: Event, path: Path, objects: dict[Path, _Objects], others: Counter[Path]) -> None:
    for key, inner in value.items():
        at = (*path, key)
        if isinstance(inner, dict):
            seen = objects.setdefault(at, _Objects())
            seen.count += 1
            seen.keys.update(inner.keys())
            if len(at) < MAX_DEPTH:
                _count_objects(inner, at, objects, others)
        elif inner is not None:
            others[at] += 1


def _declarable(name: str) -> bool:
    """Whether a definition can name a field: an empty text, half a surrogate pair and `${X}` are no names."""
    return bool(name) and not holds_variable(name) and not any("\ud800" <= letter <= "\udfff" for letter in name)


def _json_type(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _number_kind(numbers: Sequence[float]) -> FieldKind:
    """Choose the kind that keeps every digit; whole numbers beyond 256 bits are floats, since no kind does."""
    if any(isinstance(number, float) for number in numbers):
        return "float"
    least, greatest = min(numbers), max(numbers)
    if INT64[0] <= least and greatest <= INT64[1]:
        return "int"
    if UINT64[0] <= least and greatest <= UINT64[1]:
        return "uint"
    if least >= 0:
        return "ubigint" if greatest < 2**256 else "float"
    return "bigint" if least >= -(2**255) and greatest < 2**255 else "float"
