"""Rewrite filter, deduplication and expressions of an older definition as v3's transforms.

A filter of v1 and v2 drops the events that match, a filter of v3 keeps them.
"""

from collections.abc import Iterator
from typing import Any

from glassflow_dagster.definition.formats.draft import ABSENT, Raw, WithOrigin, keep
from glassflow_dagster.definition.formats.older import (
    evaluated_on,
    is_enabled,
    items_of,
    join_id,
    part_of,
    topic_id,
    topics_of,
    value_of_either,
)
from glassflow_dagster.definition.problems import Problem


def rewrite_transforms(raw: Raw, topics: list[tuple[str, Raw]], problems: list[Problem]) -> Any:
    """Return the transforms for the v3 draft in GlassFlow's order: filter, deduplication, expressions."""
    transforms = [
        *_filter(raw, problems),
        *(dedup for topic_path, topic in topics for dedup in _dedup(topic_path, topic, problems)),
        *_stateless(raw, problems),
    ]
    return transforms or ABSENT


def _filter(raw: Raw, problems: list[Problem]) -> Iterator[WithOrigin]:
    """Yield the filter, if it is enabled, with its expression negated: v3 keeps the events that match.

    A missing expression adds a problem, and nothing is yielded. Beside a join, a missing source_id adds a problem.
    """
    old = part_of(raw, "filter")
    if not is_enabled(old, "filter", problems):
        return
    expression = old.get("expression")
    if not isinstance(expression, str) or not expression.strip():
        problems.append(Problem("filter.expression", "is missing or empty; write it, or set enabled to false"))
        return
    # A comment at the end of the expression must not swallow the parenthesis.
    line_end = "\n" if "//" in expression else ""
    config = {"expression": WithOrigin("filter.expression", f"not ({expression.strip()}{line_end})")}
    if join_id(raw) and not old.get("source_id"):
        problems.append(_missing_source_id(raw, "filter"))
    source = WithOrigin("filter.source_id", evaluated_on(raw, old))
    yield WithOrigin("filter", {"type": "filter", "source_id": source, "config": config})


def _missing_source_id(raw: Raw, path: str) -> Problem:
    """Return the problem of a filter without source_id beside a join: GlassFlow does not define its stream."""
    topics = " or ".join(repr(topic_id(topic)) for topic in topics_of(raw) if topic_id(topic) is not ABSENT)
    join = repr(join_id(raw))
    return Problem(
        f"{path}.source_id",
        f"is missing; with a join, write {topics} for a filter before it, or {join} for a stage after it, where "
        "fields have their columns' names",
    )


def _dedup(topic_path: str, topic: Raw, problems: list[Problem]) -> Iterator[WithOrigin]:
    """Yield the deduplication of the topic at path `topic_path`, if it is enabled; a missing key adds a problem."""
    path, old = f"{topic_path}.deduplication", part_of(topic, "deduplication")
    if not is_enabled(old, path, problems):
        return
    key, key_name = value_of_either(old, path, ("id_field", "key"), problems)
    config = {"key": WithOrigin(f"{path}.{key_name}", key), **keep(old, path, "time_window")}
    if key is ABSENT:
        problems.append(Problem(f"{path}.id_field", "is missing; name the field that identifies an event"))
    source = WithOrigin(f"{topic_path}.name", topic_id(topic))
    yield WithOrigin(path, {"type": "dedup", "source_id": source, "config": WithOrigin(path, config)})


def _stateless(raw: Raw, problems: list[Problem]) -> Iterator[WithOrigin]:
    """Yield the stateless transform, if it is enabled and there is no join.

    Another type than `expr_lang_transform` adds a problem. So does a join, beside which nothing is yielded.
    """
    path, old = "stateless_transformation", part_of(raw, "stateless_transformation")
    if not is_enabled(old, path, problems):
        return
    if old.get("type") not in (None, "", "expr_lang_transform"):
        problems.append(Problem(f"{path}.type", "must be 'expr_lang_transform'"))
    if join_id(raw):
        text = (
            "cannot be combined with a join in v1 and v2; write false, and add a stateless transform of the join to "
            "the converted definition"
        )
        problems.append(Problem(f"{path}.enabled", text))
        return
    transforms = WithOrigin(f"{path}.config.transform", items_of(part_of(old, "config"), "transform"))
    yield WithOrigin(
        path,
        {
            "type": "stateless",
            "source_id": WithOrigin(f"{path}.source_id", evaluated_on(raw, old)),
            "config": WithOrigin(f"{path}.config", {"transforms": transforms}),
        },
    )
