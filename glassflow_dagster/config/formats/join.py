"""The join of an older definition as v3's; it may name its output by columns, which v3 never does."""

from typing import Any

from glassflow_dagster.config.formats.draft import ABSENT, At, Raw, keep
from glassflow_dagster.config.formats.mappings import mapping_entries
from glassflow_dagster.config.formats.older import is_enabled, items_of, one_of, part_of
from glassflow_dagster.config.problems import Problem

_ORIENTATIONS = ("left", "right")


def rewrite_join(raw: Raw, found: list[Problem]) -> Any:
    """Rewrite the join; `ABSENT` where it is switched off."""
    old = part_of(raw, "join")
    if not is_enabled(old, "join", found):
        return ABSENT
    _check_orientations(old, found)
    sides = {}
    for side in _ORIENTATIONS:
        mine = [(i, s) for i, s in enumerate(items_of(old, "sources")) if s.get("orientation") == side]
        if len(mine) != 1:
            found.append(Problem("join.sources", f"has {len(mine)} sources with orientation {side!r}; write one"))
            sides[f"{side}_source"] = At("join.sources", ABSENT)
            continue
        index, source = mine[0]
        at = f"join.sources[{index}]"
        key, named = one_of(source, at, ("join_key", "key"), found)
        if key is ABSENT:
            found.append(
                Problem(f"{at}.{named}", "is missing; name the field that the other source's events are found by")
            )
        kept = keep(source, at, "source_id", "time_window")
        sides[f"{side}_source"] = At(
            at, {"source_id": kept["source_id"], "key": At(f"{at}.{named}", key), "time_window": kept["time_window"]}
        )
    fields = At("join.fields", old["fields"]) if old.get("fields") else _output_fields(raw, found)
    kept = keep(old, "join", "id", empty=("",))
    joined = {"enabled": True, **kept, "type": old.get("type") or "temporal", **sides, "output_fields": fields}
    return At("join", joined)


def _check_orientations(join: Raw, found: list[Problem]) -> None:
    for index, source in enumerate(items_of(join, "sources")):
        given = source.get("orientation")
        if given not in _ORIENTATIONS:
            said = "is missing" if given in (None, "") else f"{given!r} is none"
            found.append(Problem(f"join.sources[{index}].orientation", f"{said}; write left or right"))


def _output_fields(raw: Raw, found: list[Problem]) -> Any:
    """Name what a join puts out after the columns that it fills."""
    place, entries = mapping_entries(raw)
    if place == "sink.mapping":
        found.append(Problem("join.fields", "is missing; list source_id, name and output_name of each joined field"))
        return At("join.fields", ABSENT)
    outputs = [
        At(at, {
            **keep(entry, at, "source_id"),
            "name": At(f"{at}.{named}", entry.get(named, ABSENT)),
            "output_name": At(f"{at}.column_name", entry.get("column_name", ABSENT)),
        })
        for at, named, entry in entries
    ]  # fmt: skip
    # Without any column, the mapping is the mistake to tell.
    return At(place, outputs or ABSENT)
