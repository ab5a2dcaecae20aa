"""Rewrite the sink of an older definition as v3's.

ClickHouse passwords are base64 in v1 and v2, and plain in v3. A password with a `${VAR}` in it is kept: the variable
holds the plain password.
"""

import base64
import binascii
from typing import Any

from glassflow_dagster.definition.formats.draft import ABSENT, Raw, WithOrigin, keep
from glassflow_dagster.definition.formats.mappings import mapping_entries
from glassflow_dagster.definition.formats.older import items_of, join_id, part_of, topic_id, topics_of
from glassflow_dagster.definition.model.types import with_usual_case
from glassflow_dagster.definition.problems import Problem
from glassflow_dagster.definition.variables import VARIABLE, holds_variable

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


def rewrite_sink(raw: Raw, problems: list[Problem]) -> Raw:
    """Return the sink for the v3 draft, with the mapping from whichever path the definition has it at.

    A definition without a mapping adds a problem.
    """
    sink = part_of(raw, "sink")
    path, entries = mapping_entries(raw)
    if not entries:
        problems.append(Problem(path, _missing_mapping(raw, path)))
    return {
        **keep(sink, "sink", "type"),
        "connection_params": _connection(sink, problems),
        **keep(sink, "sink", "table", "max_batch_size", "max_delay_time", "source_id", "shared_table"),
        "mapping": WithOrigin(
            path,
            [_mapping(raw, entry_path, name_key, entry, problems) for entry_path, name_key, entry in entries] or ABSENT,
        ),
    }


def _mapping(raw: Raw, path: str, name_key: str, entry: Raw, problems: list[Problem]) -> WithOrigin:
    """Return one mapping entry for the v3 draft.

    path: of the entry.
    name_key: its key that holds the field's name.
    """
    draft_keys = keep(entry, path, name_key, "column_name", "column_type")
    column_type = draft_keys["column_type"]
    if isinstance(column_type.value, str):
        column_type = WithOrigin(column_type.path, with_usual_case(column_type.value))
    name = _joined_name(raw, path, name_key, entry, problems) if join_id(raw) else draft_keys[name_key]
    return WithOrigin(path, {"name": name, "column_name": draft_keys["column_name"], "column_type": column_type})


def _joined_name(raw: Raw, entry_path: str, name_key: str, entry: Raw, problems: list[Problem]) -> WithOrigin:
    """Return the name that a mapped field has in the joined event, with its path in the file.

    - An entry of `sink.mapping` has that name already.
    - Without `join.fields` the joined event has the names of the columns.
    - With them, an entry whose source_id is the join's has that name already; for another one it is the output name
      in `join.fields`, and a field that is missing there adds a problem.

    entry_path: of the entry.
    name_key: the entry's key that holds the field's name.
    """
    fields, name, owner = items_of(part_of(raw, "join"), "fields"), entry.get(name_key), entry.get("source_id")
    path, is_of_sink_mapping = f"{entry_path}.{name_key}", entry_path.startswith("sink.mapping[")
    if is_of_sink_mapping or (fields and owner == join_id(raw)):
        return WithOrigin(path, ABSENT if name is None else name)
    if not fields:
        column = entry.get("column_name")
        return WithOrigin(f"{entry_path}.column_name", ABSENT if column is None else column)
    for output in fields:
        if (output.get("source_id"), output.get("name")) == (owner, name):
            return WithOrigin(path, output.get("output_name") or name)
    problems.append(Problem(path, f"{name!r} of {owner!r} is not among join.fields; list it there"))
    return WithOrigin(path, name)


def _missing_mapping(raw: Raw, path: str) -> str:
    """Return the problem of a definition without a mapping, with an example made of its own fields.

    path: where the mapping is missing, `schema.fields` or `sink.table_mapping`.
    """
    declared = [
        entry.get("name")
        for topic in topics_of(raw)
        for entry in (*items_of(part_of(topic, "schema"), "fields"), *items_of(topic, "schema_fields"))
    ] + [entry.get("name") for entry in items_of(part_of(raw, "schema"), "fields")]
    names = [str(name) for name in declared if name]
    field = names[0] if names else "id"
    if path == "schema.fields":
        example = f'"column_name": "{field}", "column_type": "String"'
        text = f"names no column; give each field to be written its own, such as {{{example}}}"
    else:
        topic = next((name for name in map(topic_id, topics_of(raw)) if name is not ABSENT), "topic")
        example = f'"source_id": "{topic}", "field_name": "{field}", "column_name": "{field}", "column_type": "String"'
        text = f"is missing, so no column would be filled; add a list with one entry per field, such as {{{example}}}"
    return f"{text} (fields: {', '.join(names)})" if names else text


def _connection(sink: Raw, problems: list[Problem]) -> WithOrigin:
    """Return connection_params for the v3 draft; an older file has its keys nested, flat in `sink`, or mixed.

    A nested key takes precedence; a flat one with another value adds a problem.
    """
    nested = part_of(sink, "connection_params")
    parts = {}
    for key in _CONNECTION_KEYS:
        is_nested = nested.get(key) is not None
        if is_nested and sink.get(key) is not None and sink[key] != nested[key]:
            problems.append(Problem(f"sink.{key}", f"differs from connection_params.{key}; keep one"))
        # The path of a key that is missing in both is where the other keys are.
        path = "sink.connection_params" if is_nested or (nested and sink.get(key) is None) else "sink"
        parts.update(keep(nested if is_nested else sink, path, key))
    if isinstance(parts["password"].value, str):
        parts["password"] = WithOrigin(parts["password"].path, _decoded_password(parts["password"], problems))
    return WithOrigin("sink.connection_params" if nested else "sink", parts)


def _decoded_password(password: WithOrigin, problems: list[Problem]) -> Any:
    """Return the password, decoded from base64; one with a `${VAR}` is kept as it is.

    `ABSENT`, with a problem, when it is invalid or looks like a reference once decoded.
    """
    if holds_variable(password.value):
        return password.value
    remedy = "write the password in base64, or as ${VAR}, which is used unchanged"
    try:
        decoded = base64.b64decode(password.value.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        problems.append(Problem(password.path, f"is not base64, which v1 and v2 passwords must be; {remedy}"))
        return ABSENT
    if VARIABLE.search(decoded):
        problems.append(
            Problem(password.path, "contains ${...} when decoded, which would be replaced; write it as ${VAR}")
        )
        return ABSENT
    return decoded
