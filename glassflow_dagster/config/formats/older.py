"""What the parts of an older definition have in common: what they belong to, and whether they are switched on."""

from typing import Any

from glassflow_dagster.config.formats.draft import ABSENT, Raw
from glassflow_dagster.config.problems import Problem


def part_of(owner: Raw, key: str) -> Raw:
    """Return an object of an object; empty where it is left out."""
    found: Raw = owner.get(key) or {}
    return found


def items_of(owner: Raw, key: str) -> list[Raw]:
    """Return a list of objects; empty where it is left out."""
    found: list[Raw] = owner.get(key) or []
    return found


def topics_of(raw: Raw) -> list[Raw]:
    """Return the topics of a definition."""
    return items_of(part_of(raw, "source"), "topics")


def topic_id(topic: Raw) -> Any:
    """Return the name by which a definition refers to a topic; `ABSENT` where it has none."""
    return topic.get("id") or topic.get("name") or ABSENT


def owner_id(entry: Raw, topics: list[Raw]) -> Any:
    """Give the id of the topic (or transform) that an entry belongs to; it may be left out where there is one topic."""
    return entry.get("source_id") or (topic_id(topics[0]) if len(topics) == 1 else None)


def evaluated_on(raw: Raw, part: Raw) -> Any:
    """Give the id of the topic that a filter or transformation belongs to: the first one where it names none."""
    return part.get("source_id") or (topic_id(topics_of(raw)[0]) if topics_of(raw) else ABSENT)


def join_id(raw: Raw) -> str:
    """Give the name by which a filter is said to follow the join; empty where there is none."""
    join = part_of(raw, "join")
    return str(join.get("id") or "join") if join.get("enabled") else ""


def is_enabled(part: Raw, path: str, found: list[Problem]) -> bool:
    """Whether a part is switched on; one that says much but not that is a mistake, in GlassFlow too."""
    if part and part.get("enabled") is None:
        found.append(Problem(f"{path}.enabled", "is missing; write true or false"))
    return bool(part.get("enabled"))


def one_of(owner: Raw, at: str, keys: tuple[str, str], found: list[Problem]) -> tuple[Any, str]:
    """Give the value of a key that has two names, and the name that was used."""
    given = [key for key in keys if owner.get(key) is not None]
    if len(given) > 1 and owner[given[0]] != owner[given[1]]:
        found.append(Problem(f"{at}.{given[1]}", f"differs from {given[0]}, which means the same; keep one"))
    return (owner[given[0]], given[0]) if given else (ABSENT, keys[0])
