"""Check an older definition for references to unknown topics, and for contradicting mappings."""

from collections.abc import Iterable

from glassflow_dagster.config.formats.draft import ABSENT, Raw
from glassflow_dagster.config.formats.mappings import mapping_entries, mappings_of
from glassflow_dagster.config.formats.older import items_of, join_id, part_of, topic_id
from glassflow_dagster.config.problems import Problem, suggestion


def check_references(raw: Raw, topics: list[tuple[str, Raw]], problems: list[Problem]) -> None:
    """Add a problem for each unknown or missing source_id, each contradicting mapping, and each non-JSON schema."""
    transform = part_of(raw, "stateless_transformation").get("id")
    (first, entries), others = mapping_entries(raw), mappings_of(raw)[1:]
    for path, other in others:
        if _mapped_columns(other) != _mapped_columns(entries):
            problems.append(Problem(path, f"lists other columns than {first}; keep one of them"))
    names = [*(topic_id(topic) for _, topic in topics), transform, join_id(raw)]
    known = [str(name) for name in names if name and name is not ABSENT]
    for at, entry in _entries_with_owner(raw):
        owner = entry.get("source_id")
        if owner is None and len(topics) > 1:
            problems.append(Problem(f"{at}.source_id", f"is missing; use one of {', '.join(known)}"))
        elif owner is not None and owner not in known:
            problems.append(Problem(f"{at}.source_id", f"no topic is called {owner!r}; {suggestion(owner, known)}"))
    for at, topic in topics:
        kind = part_of(topic, "schema").get("type")
        if kind not in (None, "", "json"):
            problems.append(Problem(f"{at}.schema.type", "must be 'json'"))


def _mapped_columns(entries: list[tuple[str, str, Raw]]) -> list[tuple[str, ...]]:
    """Return field, column and type of each mapping entry, sorted, so that two mappings can be compared."""
    return sorted(
        tuple(str(entry.get(key)) for key in (named, "column_name", "column_type")) for _, named, entry in entries
    )


def _entries_with_owner(raw: Raw) -> Iterable[tuple[str, Raw]]:
    """Yield path and entry of everything that names its topic by source_id."""
    for path, entries in (
        ("schema.fields", items_of(part_of(raw, "schema"), "fields")),
        ("sink.table_mapping", items_of(part_of(raw, "sink"), "table_mapping")),
    ):
        yield from ((f"{path}[{i}]", entry) for i, entry in enumerate(entries))
