"""Collect the fields of JSON objects: nested objects are flattened to dotted names, arrays stay whole, as in GlassFlow.

An object stays whole, as a `map`, when its keys vary from event to event (then they are data), when it was always
empty, and when the decoder, which splits names at dots, could not find its fields by their dotted names.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from glassflow_dagster.definition.model.source import KEY_PREFIX
from glassflow_dagster.definition.model.types import FIELD_KINDS, FieldKind, declared_as
from glassflow_dagster.definition.variables import holds_variable
from glassflow_dagster.inference.events import Declared, Event

Path = tuple[str, ...]
# Path whose objects are flattened -> the number of values there that are neither objects nor null.
_Flattened = dict[Path, int]

# Keys count as data when an object has more than so many different ones, and on average fewer than this share of them.
MAX_DECLARED_KEYS = 24
MIN_KEY_PRESENCE = 0.2
# Levels that are flattened at most; also the limit of the recursion here.
MAX_DEPTH = 12
# Most fields that are proposed: Spark plans each column in some milliseconds, and people read the definition.
MAX_FIELDS = 300

INT64 = (-(2**63), 2**63 - 1)
UINT64 = (0, 2**64 - 1)

# JSON type -> kind of field that takes it. For numbers _number_kind decides by the values.
_KINDS: dict[str, FieldKind] = {
    "bool": "bool", "string": "string", "array": "array", "object": "map", "number": "float",
}  # fmt: skip


@dataclass
class Field:
    """A field and its values in the sample: `values` without nulls, the number of nulls, and of all events.

    declared: what the messages' schema says; None without one, then the values decide. Read `types`, `kind` and
    `fitting` only when all values are added: each is computed once.
    """

    name: str
    events: int
    values: list[Any] = field(default_factory=list)
    nulls: int = 0
    declared: Declared | None = None

    @property
    def type(self) -> str:
        """Its type in a definition."""
        return self.declared.type if self.declared else declared_as(self.kind)

    @property
    def missing(self) -> int:
        """The number of events without the field."""
        return self.events - self.nulls - len(self.values)

    @property
    def required(self) -> bool:
        """True when every event has a value, and a schema does not say that it may be missing."""
        return len(self.values) == self.events and not (self.declared and self.declared.optional)

    @cached_property
    def types(self) -> Counter[str]:
        """The number of values of each JSON type; integers and floats are one type, `number`."""
        return Counter(_json_type(value) for value in self.values)

    @cached_property
    def kind(self) -> FieldKind:
        """The declared kind, else that of the most frequent JSON type; `string` when every value is null."""
        if self.declared:
            return FIELD_KINDS[self.declared.type]
        if not self.values:
            return "string"
        [(most_frequent, _)] = self.types.most_common(1)
        return _number_kind(self.fitting) if most_frequent == "number" else _KINDS[most_frequent]

    @cached_property
    def fitting(self) -> list[Any]:
        """The values of the most frequent JSON type."""
        type_counts = self.types
        # Without any value there is no type: ("", 0).
        [(most_frequent, count)] = type_counts.most_common(1) or [("", 0)]
        return (
            self.values
            if count == len(self.values)
            else [value for value in self.values if _json_type(value) == most_frequent]
        )


@dataclass(frozen=True)
class Fields:
    """The fields of the sampled events, in order of first appearance.

    declared: the fields for the definition.
    left_out: names that a definition cannot have, and those beyond MAX_FIELDS.
    not_objects: path of a flattened object -> the number of events with another type of value there.
    """

    declared: tuple[Field, ...]
    left_out: tuple[str, ...]
    not_objects: dict[str, int]


def collect_fields(events: Sequence[Event]) -> Fields:
    """Return the fields of the events with their values: one per dotted name, at most the MAX_FIELDS most frequent.

    The first pass over the events decides which nested objects are flattened, the second collects the values.
    """
    flattened = _choose_flattened(events)
    fields: dict[str, Field] = {}
    undeclarable: dict[str, None] = {}  # an ordered set
    for event in events:
        for name, value in _named_values(event, flattened).items():
            if not _declarable(name):
                undeclarable[name] = None
                continue
            field_of_name = fields.setdefault(name, Field(name, len(events)))
            if value is None:
                field_of_name.nulls += 1
            else:
                field_of_name.values.append(value)
    by_frequency = sorted(fields.values(), key=lambda candidate: len(candidate.values), reverse=True)
    declared = {candidate.name for candidate in by_frequency[:MAX_FIELDS]}
    left_out = (*undeclarable, *(name for name in fields if name not in declared))
    not_objects = {".".join(path): count for path, count in flattened.items() if count}
    return Fields(tuple(fields[name] for name in fields if name in declared), left_out, not_objects)


def declared_fields(events: Sequence[Event], declared: Mapping[str, Declared | None]) -> Fields:
    """Return the fields that a schema declares, with their values in the events; at most MAX_FIELDS."""
    fields = {name: Field(name, len(events), declared=of_name) for name, of_name in declared.items()}
    for event in events:
        for name, field_of_name in fields.items():
            found, value = _value_at(event, name)
            if found and value is None:
                field_of_name.nulls += 1
            elif found:
                field_of_name.values.append(value)
    nameable = [each for name, each in fields.items() if _declarable(name)]
    left_out = (*(name for name in fields if not _declarable(name)), *(each.name for each in nameable[MAX_FIELDS:]))
    return Fields(tuple(nameable[:MAX_FIELDS]), left_out, {})


def _value_at(event: Event, name: str) -> tuple[bool, Any]:
    """Return whether an event has a value at a dotted name, and the value."""
    value: Any = event
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return False, None
        value = value[part]
    return True, value


def _named_values(event: Event, flattened: _Flattened) -> dict[str, Any]:
    """Return the values of an event by dotted name.

    flattened: the paths of the nested objects that are flattened. A literal name `a.b` takes precedence over `b` in
    `a`, as when decoding.
    """
    values: dict[str, Any] = {}
    for path, value in _leaves(event, (), flattened):
        if len(path) == 1:
            values[path[0]] = value
        else:
            values.setdefault(".".join(path), value)
    return values


def _leaves(value: Event, path: Path, flattened: _Flattened) -> Iterator[tuple[Path, Any]]:
    """Yield path and value of each entry of an object, and of the objects in it that are flattened.

    path: of the object. Another value than an object at a flattened path is left out.
    """
    for key, inner_value in value.items():
        inner_path = (*path, key)
        if inner_path not in flattened:
            yield inner_path, inner_value
        elif isinstance(inner_value, dict):
            yield from _leaves(inner_value, inner_path, flattened)


@dataclass
class _Objects:
    """The objects at one path in the sample: their number, and the number of objects with each key."""

    keys: Counter[str] = field(default_factory=Counter)
    count: int = 0

    @property
    def stays_whole(self) -> bool:
        """True when the objects have no keys, or keys that vary so much that they are data, not field names."""
        # The number of keys if every object had each of them.
        if_all_present = self.count * len(self.keys)
        return not if_all_present or (
            len(self.keys) > MAX_DECLARED_KEYS and self.keys.total() < MIN_KEY_PRESENCE * if_all_present
        )


def _choose_flattened(events: Iterable[Event]) -> _Flattened:
    """Return the paths whose objects are flattened, each with the number of its values that are not objects.

    Such a value has none of the flattened fields, and is reported. An object is not flattened where its keys are data
    or it was always empty (`stays_whole`), where the decoder would not find its fields (`_is_readable_by_path`), where
    it is nested too deep, or where most of the path's values are no objects.
    """
    objects: dict[Path, _Objects] = {}
    other_values: Counter[Path] = Counter()  # path -> number of values that are neither objects nor null
    for event in events:
        _count_objects(event, (), objects, other_values)
    return {
        path: other_values[path]
        for path, objects_at_path in objects.items()
        if not objects_at_path.stays_whole
        # Where most values are no objects, their type is the field's.
        and other_values[path] <= objects_at_path.count
        and len(path) < MAX_DEPTH
        and _is_readable_by_path(path, objects_at_path.keys)
    }


def _is_readable_by_path(path: Path, keys: Iterable[str]) -> bool:
    """Return whether the decoder, which splits dotted names, finds the keys of the object at a path."""
    return all(part and "." not in part for part in (*path, *keys))


def _count_objects(value: Event, path: Path, objects: dict[Path, _Objects], other_values: Counter[Path]) -> None:
    """Count the entries of the object at a path, down to MAX_DEPTH; both results are by path.

    objects: receives the number and the keys of the objects.
    other_values: receives the number of values that are neither objects nor null.
    """
    for key, inner_value in value.items():
        inner_path = (*path, key)
        if isinstance(inner_value, dict):
            objects_at_path = objects.setdefault(inner_path, _Objects())
            objects_at_path.count += 1
            objects_at_path.keys.update(inner_value.keys())
            if len(inner_path) < MAX_DEPTH:
                _count_objects(inner_value, inner_path, objects, other_values)
        elif inner_value is not None:
            other_values[inner_path] += 1


def _declarable(name: str) -> bool:
    """Return whether a definition can have this name for a field of the value.

    It is not empty, has no `${X}` and no half of a surrogate pair, and does not begin as the fields of the key do.
    """
    has_halves = any("\ud800" <= letter <= "\udfff" for letter in name)
    return bool(name) and not holds_variable(name) and not has_halves and not name.startswith(KEY_PREFIX)


def _json_type(value: Any) -> str:
    """Return the JSON type of a value that is not null; bool first, since True is an int in Python, too."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def _number_kind(numbers: Sequence[float]) -> FieldKind:
    """Return the kind that keeps every digit of the numbers; `float` for integers that 256 bits cannot hold."""
    if any(isinstance(number, float) for number in numbers):
        return "float"
    least, greatest = min(numbers), max(numbers)
    if INT64[0] <= least and greatest <= INT64[1]:
        return "int"
    if UINT64[0] <= least and greatest <= UINT64[1]:
        return "uint"
    # Beyond 64 bits: unsigned or signed 256-bit integers.
    if least >= 0:
        return "ubigint" if greatest < 2**256 else "float"
    return "bigint" if least >= -(2**255) and greatest < 2**255 else "float"
