"""Rewrite the join of an older definition as v3's; without `fields` its output is named after the filled columns."""

from typing import Any

from glassflow_dagster.definition.formats.draft import ABSENT, Raw, WithOrigin, keep
from glassflow_dagster.definition.formats.mappings import mapping_entries
from glassflow_dagster.definition.formats.older import is_enabled, items_of, part_of, value_of_either
from glassflow_dagster.definition.problems import Problem

_ORIENTATIONS = ("left", "right")


def rewrite_join(raw: Raw, problems: list[Problem]) -> Any:
    """Return the join for the v3 draft; `ABSENT` when it is disabled or missing.

    Adds a problem for a side that does not have exactly one source, and for a source without a key.
    """
    old = part_of(raw, "join")
    if not is_enabled(old, "join", problems):
        return ABSENT
    _check_orientations(old, problems)
    sides = {}
    for side in _ORIENTATIONS:
        of_orientation = [(i, s) for i, s in enumerate(items_of(old, "sources")) if s.get("orientation") == side]
        if len(of_orientation) != 1:
            problems.append(
                Problem("join.sources", f"has {len(of_orientation)} sources with orientation {side!r}; write one")
            )
            sides[f"{side}_source"] = WithOrigin("join.sources", ABSENT)
            continue
        index, source = of_orientation[0]
        path = f"join.sources[{index}]"
        key, key_name = value_of_either(source, path, ("join_key", "key"), problems)
        if key is ABSENT:
            problems.append(Problem(f"{path}.{key_name}", "is missing; name the field to join the other source on"))
        kept_of_source = keep(source, path, "source_id", "time_window")
        sides[f"{side}_source"] = WithOrigin(
            path,
            {
                "source_id": kept_of_source["source_id"],
                "key": WithOrigin(f"{path}.{key_name}", key),
                "time_window": kept_of_source["time_window"],
            },
        )
    fields = WithOrigin("join.fields", old["fields"]) if old.get("fields") else _output_fields(raw, problems)
    join = {
        "enabled": True,
        # An empty id or type counts as missing, as in GlassFlow; "temporal" is its only type.
        **keep(old, "join", "id", empty=("",)),
        "type": old.get("type") or "temporal",
        **sides,
        "output_fields": fields,
    }
    return WithOrigin("join", join)


def _check_orientations(join: Raw, problems: list[Problem]) -> None:
    """Add a problem for each source of the join whose orientation is missing, or neither left nor right."""
    for index, source in enumerate(items_of(join, "sources")):
        orientation = source.get("orientation")
        if orientation not in _ORIENTATIONS:
            problem = "is missing" if orientation in (None, "") else f"{orientation!r} is not an orientation"
            problems.append(Problem(f"join.sources[{index}].orientation", f"{problem}; write left or right"))


def _output_fields(raw: Raw, problems: list[Problem]) -> Any:
    """Return the output fields of a join that lists none: the mapped fields, named after their columns.

    `ABSENT`, with a problem, when the mapping is `sink.mapping`: its entries do not name a source.
    """
    path, entries = mapping_entries(raw)
    if path == "sink.mapping":
        problems.append(Problem("join.fields", "is missing; list source_id, name and output_name of each joined field"))
        return WithOrigin("join.fields", ABSENT)
    outputs = [
        WithOrigin(entry_path, {
            **keep(entry, entry_path, "source_id"),
            "name": WithOrigin(f"{entry_path}.{name_key}", entry.get(name_key, ABSENT)),
            "output_name": WithOrigin(f"{entry_path}.column_name", entry.get("column_name", ABSENT)),
        })
        for entry_path, name_key, entry in entries
    ]  # fmt: skip
    # Without any column, the missing mapping is the problem to report.
    return WithOrigin(path, outputs or ABSENT)
