"""The three places where an older definition may say which field fills which column."""

from glassflow_dagster.config.formats.draft import Raw
from glassflow_dagster.config.formats.older import items_of, part_of


def mappings_of(raw: Raw) -> list[tuple[str, list[tuple[str, str, Raw]]]]:
    """List the mappings that a file has: place, and each entry's path, the key of its field's name, and the entry."""
    sink, schema = part_of(raw, "sink"), part_of(raw, "schema")
    places = [
        ("sink.table_mapping", "field_name", items_of(sink, "table_mapping")),
        ("sink.mapping", "name", items_of(sink, "mapping")),
        ("schema.fields", "name", items_of(schema, "fields")),
    ]
    found = []
    for place, named, fields in places:
        entries = [(f"{place}[{i}]", named, entry) for i, entry in enumerate(fields)]
        # In schema.fields an entry without a column only declares its field.
        mapped = [e for e in entries if place != "schema.fields" or e[2].get("column_name") or e[2].get("column_type")]
        found += [(place, mapped)] if mapped else []
    return found


def mapping_entries(raw: Raw) -> tuple[str, list[tuple[str, str, Raw]]]:
    """Give the mapping that counts; `check_references` sees to it that no other says something else."""
    usual = "schema.fields" if part_of(raw, "schema") else "sink.table_mapping"
    return next(iter(mappings_of(raw)), (usual, []))
