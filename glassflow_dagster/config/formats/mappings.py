"""Read the mapping of an older definition, which may be at one of three paths."""

from glassflow_dagster.config.formats.draft import Raw
from glassflow_dagster.config.formats.older import items_of, part_of


def mappings_of(raw: Raw) -> list[tuple[str, list[tuple[str, str, Raw]]]]:
    """Return the mappings of a file, the one that takes precedence first.

    Each is its path and its entries; an entry is its path, the key that holds the field's name, and the object itself.
    """
    sink, schema = part_of(raw, "sink"), part_of(raw, "schema")
    candidates = [
        ("sink.table_mapping", "field_name", items_of(sink, "table_mapping")),
        ("sink.mapping", "name", items_of(sink, "mapping")),
        ("schema.fields", "name", items_of(schema, "fields")),
    ]
    mappings = []
    for path, named, fields in candidates:
        entries = [(f"{path}[{i}]", named, entry) for i, entry in enumerate(fields)]
        # In schema.fields an entry without a column declares a field and maps nothing.
        mapped = [e for e in entries if path != "schema.fields" or e[2].get("column_name") or e[2].get("column_type")]
        mappings += [(path, mapped)] if mapped else []
    return mappings


def mapping_entries(raw: Raw) -> tuple[str, list[tuple[str, str, Raw]]]:
    """Return the mapping that is used: its path and its entries, as in `mappings_of`; no entries when there is none.

    `check_references` reports other mappings that differ from it.
    """
    usual_path = "schema.fields" if part_of(raw, "schema") else "sink.table_mapping"
    return next(iter(mappings_of(raw)), (usual_path, []))
