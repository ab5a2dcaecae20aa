"""Read parts of an older definition: objects, lists, the topic they belong to, and whether they are enabled."""

from typing import Any

from glassflow_dagster.definition.formats.draft import ABSENT, Raw
from glassflow_dagster.definition.problems import Problem


def part_of(owner: Raw, key: str) -> Raw:
    """Return the object under a key; empty when it is missing or null."""
    part: Raw = owner.get(key) or {}
    return part


def items_of(owner: Raw, key: str) -> list[Raw]:
    """Return the list of objects under a key; empty when it is missing or null."""
    items: list[Raw] = owner.get(key) or []
    return items


def topics_of(raw: Raw) -> list[Raw]:
    """Return the topics of a definition."""
    return items_of(part_of(raw, "source"), "topics")


def topic_id(topic: Raw) -> Any:
    """Return the name by which a definition refers to a topic; `ABSENT` where it has none."""
    return topic.get("id") or topic.get("name") or ABSENT


def owner_id(entry: Raw, topics: list[Raw]) -> Any:
    """Return the id of the topic (or transform) that an entry names; if it names none, the only topic's, or None."""
    return entry.get("source_id") or (topic_id(topics[0]) if len(topics) == 1 else None)


def evaluated_on(raw: Raw, part: Raw) -> Any:
    """Return the id of the topic that a filter or transformation is for: the first topic when it names none."""
    return part.get("source_id") or (topic_id(topics_of(raw)[0]) if topics_of(raw) else ABSENT)


def join_id(raw: Raw) -> str:
    """Return the id of the join, which a filter behind the join names as its source_id; empty without a join."""
    join = part_of(raw, "join")
    return str(join.get("id") or "join") if join.get("enabled") else ""


def is_enabled(part: Raw, path: str, problems: list[Problem]) -> bool:
    """Return whether a part is enabled; a part without the key `enabled` is a problem, as in GlassFlow."""
    if part and part.get("enabled") is None:
        problems.append(Problem(f"{path}.enabled", "is missing; write true or false"))
    return bool(part.get("enabled"))


def value_of_either(owner: Raw, path: str, keys: tuple[str, str], problems: list[Problem]) -> tuple[Any, str]:
    """Return the value of a key that has two names, and the name used; two different values are a problem.

    Without a value: `ABSENT`, and the first name. path: of the object `owner`.
    """
    used = [key for key in keys if owner.get(key) is not None]
    if len(used) > 1 and owner[used[0]] != owner[used[1]]:
        problems.append(Problem(f"{path}.{used[1]}", f"differs from {used[0]}, which means the same; keep one"))
    return (owner[used[0]], used[0]) if used else (ABSENT, keys[0])
