"""Read the mapping of an older definition, which may be at one of three paths."""

from glassflow_dagster.definition.formats.draft import Raw
from glassflow_dagster.definition.formats.older import items_of, part_of


def mappings_of(raw: Raw) -> list[tuple[str, list[tuple[str, str, Raw]]]]:
    """Return the mappings of a file that have entries, the one that takes precedence first.

    Each is its path and its entries; an entry is its path, the key that holds the field's name, and the object itself.
    """
    sink, schema = part_of(raw, "sink"), part_of(raw, "schema")
    candidates = [
        ("sink.table_mapping", "field_name", items_of(sink, "table_mapping")),
        ("sink.mapping", "name", items_of(sink, "mapping")),
        ("schema.fields", "name", items_of(schema, "fields")),
    ]
    mappings = []
    for path, name_key, items in candidates:
        entries = [
            (f"{path}[{i}]", name_key, item)
            for i, item in enumerate(items)
            # In schema.fields an item without a column declares a field and maps nothing.
            if path != "schema.fields" or item.get("column_name") or item.get("column_type")
        ]
        mappings += [(path, entries)] if entries else []
    return mappings


def mapping_entries(raw: Raw) -> tuple[str, list[tuple[str, str, Raw]]]:
    """Return the mapping that is used: its path and its entries (path, the key that holds the field's name, object).

    Without a mapping: the path where one is usually written, and no entries. `check_references` reports other mappings
    that differ from the one that is used.
    """
    usual_path = "schema.fields" if part_of(raw, "schema") else "sink.table_mapping"
    return next(iter(mappings_of(raw)), (usual_path, []))
