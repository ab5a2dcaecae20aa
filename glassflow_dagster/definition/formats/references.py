"""Check an older definition for references to unknown topics, and for contradicting mappings."""

from collections.abc import Iterable

from glassflow_dagster.definition.formats.draft import ABSENT, Raw
from glassflow_dagster.definition.formats.mappings import mapping_entries, mappings_of
from glassflow_dagster.definition.formats.older import items_of, join_id, part_of, topic_id
from glassflow_dagster.definition.problems import Problem, suggestion


def check_references(raw: Raw, topics: list[tuple[str, Raw]], problems: list[Problem]) -> None:
    """Add a problem for each unknown or missing source_id, each contradicting mapping, and each non-JSON schema."""
    transform_id = part_of(raw, "stateless_transformation").get("id")
    used_path, entries = mapping_entries(raw)
    for path, unused_entries in mappings_of(raw)[1:]:
        if _mapped_columns(unused_entries) != _mapped_columns(entries):
            problems.append(Problem(path, f"lists other columns than {used_path}; keep one of them"))
    ids = [*(topic_id(topic) for _, topic in topics), transform_id, join_id(raw)]
    valid_ids = [str(one_id) for one_id in ids if one_id and one_id is not ABSENT]
    for path, entry in _entries_with_owner(raw):
        source_id = entry.get("source_id")
        if source_id is None and len(topics) > 1:
            problems.append(Problem(f"{path}.source_id", f"is missing; use one of {', '.join(valid_ids)}"))
        elif source_id is not None and source_id not in valid_ids:
            problems.append(
                Problem(f"{path}.source_id", f"no topic is called {source_id!r}; {suggestion(source_id, valid_ids)}")
            )
    for path, topic in topics:
        schema_type = part_of(topic, "schema").get("type")
        if schema_type not in (None, "", "json"):
            problems.append(Problem(f"{path}.schema.type", "must be 'json'"))


def _mapped_columns(entries: list[tuple[str, str, Raw]]) -> list[tuple[str, ...]]:
    """Return field, column and type of each mapping entry, sorted, so that two mappings can be compared."""
    return sorted(
        tuple(str(entry.get(key)) for key in (name_key, "column_name", "column_type")) for _, name_key, entry in entries
    )


def _entries_with_owner(raw: Raw) -> Iterable[tuple[str, Raw]]:
    """Yield path and entry of `schema.fields` and `sink.table_mapping`: the lists that name a topic by source_id."""
    for path, entries in (
        ("schema.fields", items_of(part_of(raw, "schema"), "fields")),
        ("sink.table_mapping", items_of(part_of(raw, "sink"), "table_mapping")),
    ):
        yield from ((f"{path}[{i}]", entry) for i, entry in enumerate(entries))
