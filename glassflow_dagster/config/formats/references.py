"""Names in an older definition that stand for nothing, and what it says in two places."""

from collections.abc import Iterable

from glassflow_dagster.config.formats.draft import ABSENT, Raw
from glassflow_dagster.config.formats.mappings import mapping_entries, mappings_of
from glassflow_dagster.config.formats.older import items_of, join_id, part_of, topic_id
from glassflow_dagster.config.problems import Problem, suggestion


def check_references(raw: Raw, topics: list[tuple[str, Raw]], found: list[Problem]) -> None:
    """Report what names a topic or transform that there is not, and what is said in two places."""
    transform = part_of(raw, "stateless_transformation").get("id")
    (first, entries), others = mapping_entries(raw), mappings_of(raw)[1:]
    for place, other in others:
        if _columns(other) != _columns(entries):
            found.append(Problem(place, f"says other columns than {first}; keep one of them"))
    names = [*(topic_id(topic) for _, topic in topics), transform, join_id(raw)]
    known = [str(name) for name in names if name and name is not ABSENT]
    for at, entry in _owned(raw):
        owner = entry.get("source_id")
        if owner is None and len(topics) > 1:
            found.append(Problem(f"{at}.source_id", f"is missing; use one of {', '.join(known)}"))
        elif owner is not None and owner not in known:
            found.append(Problem(f"{at}.source_id", f"no topic is called {owner!r}; {suggestion(owner, known)}"))
    for at, topic in topics:
        kind = part_of(topic, "schema").get("type")
        if kind not in (None, "", "json"):
            found.append(Problem(f"{at}.schema.type", "must be 'json'"))


def _columns(entries: list[tuple[str, str, Raw]]) -> list[tuple[str, ...]]:
    return sorted(
        tuple(str(entry.get(key)) for key in (named, "column_name", "column_type")) for _, named, entry in entries
    )


def _owned(raw: Raw) -> Iterable[tuple[str, Raw]]:
    for place, entries in (
        ("schema.fields", items_of(part_of(raw, "schema"), "fields")),
        ("sink.table_mapping", items_of(part_of(raw, "sink"), "table_mapping")),
    ):
        yield from ((f"{place}[{i}]", entry) for i, entry in enumerate(entries))
