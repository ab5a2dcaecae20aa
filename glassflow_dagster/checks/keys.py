"""The table's columns that hold the deduplication key, and the count of distinct keys."""

from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.expressions.syntax import Field
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.source import Source
from glassflow_dagster.definition.stages import TransformStage, plan_stages, without_hidden
from glassflow_dagster.stores.clickhouse.identifiers import own_alias, quote_name
from glassflow_dagster.stores.clickhouse.queries import fetch
from glassflow_dagster.stores.clickhouse.table import Table

# Types in which two different keys may become one value: "2024-01-01 00:00:00" and 1704067200, the texts "::1" and
# "0::1" or "1.5" and "1.50", or numbers that differ after seven digits.
_LOSSY = frozenset({"DateTime", "DateTime64", "Date", "Date32", "IPv6", "Decimal", "Float32"})

# An alias beside the table's columns.
_ROWS = own_alias("rows")

# A source_id and the name of a field of it.
_Field = tuple[str, str]


def sources_of_unique_key(config: PipelineConfig) -> tuple[Source, ...]:
    """Return the sources whose deduplication keys, taken together, are unique among the rows of one window.

    () when one of these sources is not deduplicated. With `match: latest` a left event of a join makes at most one row,
    so the left source's key (the first one's) is unique; with `match: all` it makes at most one row with each right
    event, so both sources' keys together are.
    """
    makes_pairs = config.join is not None and config.join.match == "all"
    sources = config.inputs if makes_pairs else config.inputs[:1]
    return sources if all(config.dedup_of(source) for source in sources) else ()


def key_columns(config: PipelineConfig, table: Table) -> tuple[str, ...] | None:
    """Return the target's columns that hold the fields by which records are deduplicated, in the order of the key.

    None when rows have no unique key (see `sources_of_unique_key`), or when a field of it has no column that keeps
    different values distinct: none is mapped, a transform changed the value, or the column's type rounds.
    """
    dedups = ((source.source_id, config.dedup_of(source)) for source in sources_of_unique_key(config))
    fields = [(source_id, name) for source_id, dedup in dedups if dedup for name in dedup.key_fields]
    unchanged = _unchanged_fields(config)
    columns: dict[_Field, str] = {}  # the first suitable column of each field
    for mapping in config.sink.mapping:
        column, field = table.columns.get(mapping.column_name), unchanged.get(mapping.name)
        if column is not None and field is not None and column.type.base.name not in _LOSSY:
            columns.setdefault(field, mapping.column_name)
    return tuple(columns[field] for field in fields) if fields and all(f in columns for f in fields) else None


def _unchanged_fields(config: PipelineConfig) -> dict[str, _Field]:
    """Return mappable name -> source field, for each name that holds a source field's value unchanged.

    Deduplication reads keys before any transform, so a transformed value does not identify a key. Unchanged names are
    the source's fields, or a join's output fields, and outputs of a stateless transform that are a bare field name,
    with its type or as text.
    """
    source_id = config.source.source_id
    # visible: the names that the next transform reads; mappable: those that the mapping reads after it.
    visible = {field.name: (source_id, field.name) for field in config.source.schema_fields}
    if config.join:
        visible = {output.joined_name: (output.source_id, output.name) for output in config.join.output_fields}
    mappable = visible
    for stage in plan_stages(config).steps:
        if isinstance(stage, TransformStage):
            # Only an output whose expression is a bare field name (`output.value.root`), of its type or as text.
            mappable = {
                output.name: visible[root.name]
                for output in stage.outputs
                if isinstance(root := output.value.root, Field) and output.kind in (output.value.kind, "string")
                if root.name in visible
            }
            visible = {**without_hidden(visible, [output.name for output in stage.outputs]), **mappable}
    return mappable


def key_expression(columns: tuple[str, ...]) -> str:
    """Return the key as SQL: a tuple of its columns."""
    return f"tuple({', '.join(quote_name(column) for column in columns)})"


def count_keys(client: Client, source: str, key: str, condition: str = "1") -> tuple[int, int]:
    """Return (number of rows, number of distinct keys) of rows that fulfil a condition. source, key, condition: SQL.

    Keys are distinguished by a 128-bit hash, as in `uniqExact`; but GROUP BY can spill to the server's disk.
    """
    groups = f"SELECT count() AS {_ROWS} FROM {source} WHERE {condition} GROUP BY sipHash128({key})"
    rows, keys = fetch(client, f"SELECT sum({_ROWS}), count() FROM ({groups})")[0]
    return int(rows), int(keys)
