"""Filter, deduplication and expressions of an older definition as v3's transforms.

A filter of v1 and v2 drops what matches, v3's keeps it.
"""

from collections.abc import Iterator
from typing import Any

from glassflow_dagster.config.formats.draft import ABSENT, At, Raw, keep
from glassflow_dagster.config.formats.older import (
    evaluated_on,
    is_enabled,
    items_of,
    join_id,
    one_of,
    part_of,
    topic_id,
    topics_of,
)
from glassflow_dagster.config.problems import Problem


def rewrite_transforms(raw: Raw, topics: list[tuple[str, Raw]], found: list[Problem]) -> Any:
    """Give the transforms in the order in which GlassFlow applies them: filter, deduplication, expressions."""
    transforms = [
        *_filter(raw, found),
        *(dedup for at, topic in topics for dedup in _dedup(at, topic, found)),
        *_stateless(raw, found),
    ]
    return transforms or ABSENT


def _filter(raw: Raw, found: list[Problem]) -> Iterator[At]:
    """Turn a filter that drops what matches into one that keeps the rest."""
    old = part_of(raw, "filter")
    if not is_enabled(old, "filter", found):
        return
    expression = old.get("expression")
    if not isinstance(expression, str) or not expression.strip():
        found.append(Problem("filter.expression", "is missing or empty; write it, or set enabled to false"))
        return
    # A comment at the end of the expression must not swallow the parenthesis.
    line = "\n" if "//" in expression else ""
    config = {"expression": At("filter.expression", f"not ({expression.strip()}{line})")}
    if join_id(raw) and not old.get("source_id"):
        found.append(_unplaced(raw, "filter"))
    source = At("filter.source_id", evaluated_on(raw, old))
    yield At("filter", {"type": "filter", "source_id": source, "config": config})


def _unplaced(raw: Raw, place: str) -> Problem:
    """Say that a filter names no stream: which of the two sources, or the join, GlassFlow says nowhere."""
    topics = " or ".join(repr(topic_id(topic)) for topic in topics_of(raw) if topic_id(topic) is not ABSENT)
    join = repr(join_id(raw))
    return Problem(
        f"{place}.source_id",
        f"is missing; with a join write {topics} for what is filtered before it, or {join} for what follows it, where "
        "fields are called as their columns",
    )


def _dedup(at: str, topic: Raw, found: list[Problem]) -> Iterator[At]:
    place, old = f"{at}.deduplication", part_of(topic, "deduplication")
    if not is_enabled(old, place, found):
        return
    key, named = one_of(old, place, ("id_field", "key"), found)
    config = {"key": At(f"{place}.{named}", key), **keep(old, place, "time_window")}
    if key is ABSENT:
        found.append(Problem(f"{place}.id_field", "is missing; name the field that identifies an event"))
    source = At(f"{at}.name", topic_id(topic))
    yield At(place, {"type": "dedup", "source_id": source, "config": At(place, config)})


def _stateless(raw: Raw, found: list[Problem]) -> Iterator[At]:
    place, old = "stateless_transformation", part_of(raw, "stateless_transformation")
    if not is_enabled(old, place, found):
        return
    if old.get("type") not in (None, "", "expr_lang_transform"):
        found.append(Problem(f"{place}.type", "must be 'expr_lang_transform'"))
    if join_id(raw):
        text = (
            "does not go with a join in v1 and v2; write false, and add a stateless transform of the join to the "
            "converted definition"
        )
        found.append(Problem(f"{place}.enabled", text))
        return
    transforms = At(f"{place}.config.transform", items_of(part_of(old, "config"), "transform"))
    yield At(
        place,
        {
            "type": "stateless",
            "source_id": At(f"{place}.source_id", evaluated_on(raw, old)),
            "config": At(f"{place}.config", {"transforms": transforms}),
        },
    )
