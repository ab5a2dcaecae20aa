"""The sink of an older definition as v3's.

Passwords of ClickHouse are in base64 in v1 and v2, and plain in v3. A password with a `${VAR}` in it is taken as it is:
the variable holds the plain password.
"""

import base64
import binascii
from typing import Any

from glassflow_dagster.config.formats.draft import ABSENT, At, Raw, keep
from glassflow_dagster.config.formats.mappings import mapping_entries
from glassflow_dagster.config.formats.older import items_of, join_id, part_of, topic_id, topics_of
from glassflow_dagster.config.model.types import with_usual_case
from glassflow_dagster.config.problems import Problem
from glassflow_dagster.config.variables import VARIABLE, holds_variable

# Keys of a ClickHouse connection, flat in `sink` or nested in `sink.connection_params`.
_CONNECTION_KEYS = (
    "host",
    "port",
    "http_port",
    "database",
    "username",
    "password",
    "secure",
    "skip_certificate_verification",
)


def rewrite_sink(raw: Raw, found: list[Problem]) -> Raw:
    """Rewrite the sink, with the mapping from wherever the definition says it."""
    sink = part_of(raw, "sink")
    place, entries = mapping_entries(raw)
    if not entries:
        found.append(Problem(place, _missing_mapping(raw, place)))
    return {
        **keep(sink, "sink", "type"),
        "connection_params": _connection(sink, found),
        **keep(sink, "sink", "table", "max_batch_size", "max_delay_time", "source_id"),
        "mapping": At(place, [_mapping(raw, at, named, e, found) for at, named, e in entries] or ABSENT),
    }


def _mapping(raw: Raw, at: str, named: str, entry: Raw, found: list[Problem]) -> At:
    kept = keep(entry, at, named, "column_name", "column_type")
    column_type = kept["column_type"]
    if isinstance(column_type.value, str):
        column_type = At(column_type.path, with_usual_case(column_type.value))
    name = _joined_name(raw, at, named, entry, found) if join_id(raw) else kept[named]
    return At(at, {"name": name, "column_name": kept["column_name"], "column_type": column_type})


def _joined_name(raw: Raw, at: str, named: str, entry: Raw, found: list[Problem]) -> At:
    """Give the name in the joined event of what a mapping writes: what `join.fields` says, else that of the column."""
    fields, name, owner = items_of(part_of(raw, "join"), "fields"), entry.get(named), entry.get("source_id")
    place = f"{at}.{named}"
    if not fields and not at.startswith("sink.mapping["):
        column = entry.get("column_name")
        return At(f"{at}.column_name", ABSENT if column is None else column)
    if at.startswith("sink.mapping[") or owner == join_id(raw):
        return At(place, ABSENT if name is None else name)
    for output in fields:
        if (output.get("source_id"), output.get("name")) == (owner, name):
            return At(place, output.get("output_name") or name)
    found.append(Problem(place, f"{name!r} of {owner!r} is not among join.fields; list it there"))
    return At(place, name)


def _missing_mapping(raw: Raw, place: str) -> str:
    """Say what to write where no field has a column; GlassFlow too writes mapped columns only."""
    named = [
        entry.get("name")
        for topic in topics_of(raw)
        for entry in (*items_of(part_of(topic, "schema"), "fields"), *items_of(topic, "schema_fields"))
    ] + [entry.get("name") for entry in items_of(part_of(raw, "schema"), "fields")]
    names = [str(name) for name in named if name]
    first = names[0] if names else "id"
    if place == "schema.fields":
        example = f'"column_name": "{first}", "column_type": "String"'
        what = f"says no column; give each field that is to be written its own, such as {{{example}}}"
    else:
        topic = next((name for name in map(topic_id, topics_of(raw)) if name is not ABSENT), "topic")
        example = f'"source_id": "{topic}", "field_name": "{first}", "column_name": "{first}", "column_type": "String"'
        what = f"is missing, so no column would be filled; add a list with one entry a field, such as {{{example}}}"
    return f"{what} (fields: {', '.join(names)})" if names else what


def _connection(sink: Raw, found: list[Problem]) -> At:
    nested = part_of(sink, "connection_params")
    parts = {}
    for key in _CONNECTION_KEYS:
        inside = nested.get(key) is not None
        if inside and sink.get(key) is not None and sink[key] != nested[key]:
            found.append(Problem(f"sink.{key}", f"differs from connection_params.{key}; keep one"))
        at = "sink.connection_params" if inside or (nested and sink.get(key) is None) else "sink"
        parts.update(keep(nested if inside else sink, at, key))
    if isinstance(parts["password"].value, str):
        parts["password"] = At(parts["password"].path, _password(parts["password"], found))
    return At("sink.connection_params" if nested else "sink", parts)


def _password(given: At, found: list[Problem]) -> Any:
    """Decode a password; a reference to a variable, and an empty one, stay what they are."""
    if holds_variable(given.value):
        return given.value
    remedy = "write the password in base64, or as ${VAR}, which is taken as it is"
    try:
        plain = base64.b64decode(given.value.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        found.append(Problem(given.path, f"is not base64, as passwords of v1 and v2 are; {remedy}"))
        return ABSENT
    if VARIABLE.search(plain):
        found.append(Problem(given.path, "holds ${...} once decoded, which would be filled in; write it as ${VAR}"))
        return ABSENT
    return plain
