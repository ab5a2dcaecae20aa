"""Rewrite the join of an older definition as v3's; without `fields` its output is named after the filled columns."""

from typing import Any

from glassflow_dagster.config.formats.draft import ABSENT, Raw, WithOrigin, keep
from glassflow_dagster.config.formats.mappings import mapping_entries
from glassflow_dagster.config.formats.older import is_enabled, items_of, part_of, value_of_either
from glassflow_dagster.config.problems import Problem

_ORIENTATIONS = ("left", "right")


def rewrite_join(raw: Raw, problems: list[Problem]) -> Any:
    """Return the join for the v3 draft; `ABSENT` when it is disabled or missing."""
    old = part_of(raw, "join")
    if not is_enabled(old, "join", problems):
        return ABSENT
    _check_orientations(old, problems)
    sides = {}
    for side in _ORIENTATIONS:
        of_side = [(i, s) for i, s in enumerate(items_of(old, "sources")) if s.get("orientation") == side]
        if len(of_side) != 1:
            problems.append(Problem("join.sources", f"has {len(of_side)} sources with orientation {side!r}; write one"))
            sides[f"{side}_source"] = WithOrigin("join.sources", ABSENT)
            continue
        index, source = of_side[0]
        at = f"join.sources[{index}]"
        key, named = value_of_either(source, at, ("join_key", "key"), problems)
        if key is ABSENT:
            problems.append(Problem(f"{at}.{named}", "is missing; name the field to join the other source on"))
        kept = keep(source, at, "source_id", "time_window")
        sides[f"{side}_source"] = WithOrigin(
            at,
            {
                "source_id": kept["source_id"],
                "key": WithOrigin(f"{at}.{named}", key),
                "time_window": kept["time_window"],
            },
        )
    fields = WithOrigin("join.fields", old["fields"]) if old.get("fields") else _output_fields(raw, problems)
    kept = keep(old, "join", "id", empty=("",))
    joined = {"enabled": True, **kept, "type": old.get("type") or "temporal", **sides, "output_fields": fields}
    return WithOrigin("join", joined)


def _check_orientations(join: Raw, problems: list[Problem]) -> None:
    for index, source in enumerate(items_of(join, "sources")):
        orientation = source.get("orientation")
        if orientation not in _ORIENTATIONS:
            problem = "is missing" if orientation in (None, "") else f"{orientation!r} is not an orientation"
            problems.append(Problem(f"join.sources[{index}].orientation", f"{problem}; write left or right"))


def _output_fields(raw: Raw, problems: list[Problem]) -> Any:
    """Return the output fields of a join that lists none: the mapped fields, named after their columns."""
    path, entries = mapping_entries(raw)
    if path == "sink.mapping":
        problems.append(Problem("join.fields", "is missing; list source_id, name and output_name of each joined field"))
        return WithOrigin("join.fields", ABSENT)
    outputs = [
        WithOrigin(at, {
            **keep(entry, at, "source_id"),
            "name": WithOrigin(f"{at}.{named}", entry.get(named, ABSENT)),
            "output_name": WithOrigin(f"{at}.column_name", entry.get("column_name", ABSENT)),
        })
        for at, named, entry in entries
    ]  # fmt: skip
    # Without any column, the missing mapping is the problem to report.
    return WithOrigin(path, outputs or ABSENT)
