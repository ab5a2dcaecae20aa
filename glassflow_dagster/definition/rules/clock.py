"""Rules of the event clock, shared by deduplication and join."""

from collections.abc import Iterable, Iterator, Mapping

from glassflow_dagster.definition.model.join import JoinSide
from glassflow_dagster.definition.model.source import SchemaField
from glassflow_dagster.definition.model.transforms import DedupConfig
from glassflow_dagster.definition.problems import Problem, suggestion


def only_with_event_clock(path: str, keys: Iterable[str]) -> Iterator[Problem]:
    """Yield a problem for each of these keys, which have no effect with the processing clock.

    path: of the object that has the keys.
    """
    for name in keys:
        yield Problem(f"{path}.{name}", "applies to clock: event only; add that, or remove it")


def event_time_problems(
    path: str, clocked: DedupConfig | JoinSide, fields: Mapping[str, SchemaField]
) -> Iterator[Problem]:
    """Yield the problems of `event_time`: it must be a required field that holds a text or a number.

    clocked: the deduplication or the side of a join at `path`. A text has no `event_time_unit`.
    """
    name = clocked.event_time
    if name is None:
        yield Problem(f"{path}.event_time", "is needed for clock: event; name the field with the time of the event")
    elif name not in fields:
        yield Problem(f"{path}.event_time", f"{name!r} is not in schema_fields; {suggestion(name, list(fields))}")
    elif fields[name].kind not in ("string", "int", "uint", "float"):
        yield Problem(f"{path}.event_time", f"{name!r} is {fields[name].type}; a time is a string or a number")
    elif not fields[name].needed:
        text = f"{name!r} is optional (required: false, or a default); a time must be present, make it required"
        yield Problem(f"{path}.event_time", text)
    elif fields[name].kind == "string" and clocked.event_time_unit:
        yield Problem(f"{path}.event_time_unit", f"{name!r} is a string, which has no unit; remove it")
