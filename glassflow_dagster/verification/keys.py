"""The columns by which the table tells keys apart, where it can."""

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.identifiers import quote_name
from glassflow_dagster.clickhouse.queries import fetch
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.source import Source
from glassflow_dagster.config.stages import TransformStage, plan_stages, without_hidden
from glassflow_dagster.expressions.language.syntax import Field

# Two keys may become one value: "2024-01-01 00:00:00" and 1704067200, the texts "::1" and "0::1" or "1.5" and "1.50",
# or numbers that differ after seven digits.
_LOSSY = frozenset({"DateTime", "DateTime64", "Date", "Date32", "IPv6", "Decimal", "Float32"})

# A source_id and the name of a field of it.
_Field = tuple[str, str]


def deduplicated_sources(config: PipelineConfig) -> tuple[Source, ...]:
    """Give the sources whose deduplication keys together no two rows of one window share; none: nothing forbids it.

    A left event of a join makes at most one row with `match: latest`, and at most one with each right event with
    `match: all`: there the keys of both count.
    """
    pairs = config.join is not None and config.join.match == "all"
    sources = config.inputs if pairs else config.inputs[:1]
    return sources if all(config.dedup_of(source) for source in sources) else ()


def key_columns(config: PipelineConfig, table: Table) -> tuple[str, ...] | None:
    """Give the column of each key field of `deduplicated_sources`, in order.

    None when there is no key, or when one of its fields has no column that keeps its values apart.
    """
    dedups = ((source.source_id, config.dedup_of(source)) for source in deduplicated_sources(config))
    fields = [(source_id, name) for source_id, dedup in dedups if dedup for name in dedup.key_fields]
    kept = _fields_held(config)
    columns: dict[_Field, str] = {}
    for mapping in config.sink.mapping:
        column, field = table.columns.get(mapping.column_name), kept.get(mapping.name)
        if column is not None and field is not None and column.type.base.name not in _LOSSY:
            columns.setdefault(field, mapping.column_name)
    return tuple(columns[field] for field in fields) if fields and all(f in columns for f in fields) else None


def _fields_held(config: PipelineConfig) -> dict[str, _Field]:
    """Give the field of a source that each mappable name holds unchanged; keys are read before any transform.

    Those are the fields themselves, or a join's output fields, and what a stateless transform passes on by its bare
    name, as it is or as a text.
    """
    source_id = config.source.source_id
    visible = {field.name: (source_id, field.name) for field in config.source.schema_fields}
    if config.join:
        visible = {output.joined_name: (output.source_id, output.name) for output in config.join.output_fields}
    mappable = visible
    for stage in plan_stages(config).steps:
        if isinstance(stage, TransformStage):
            mappable = {
                output.name: visible[root.name]
                for output in stage.outputs
                if isinstance(root := output.value.root, Field) and output.kind in (output.value.kind, "string")
                if root.name in visible
            }
            visible = {**without_hidden(visible, [output.name for output in stage.outputs]), **mappable}
    return mappable


def key_expression(columns: tuple[str, ...]) -> str:
    """Write the key as SQL: one value a row."""
    return f"tuple({', '.join(quote_name(column) for column in columns)})"


def count_keys(client: Client, source: str, key: str, condition: str = "1") -> tuple[int, int]:
    """Count the rows that a condition chooses, and their keys, in one query. source, key, condition: SQL.

    Keys are told apart by 128 bits of hash, as `uniqExact` does it; unlike its state, that of GROUP BY goes to the
    server's disk where memory is short.
    """
    groups = f"SELECT count() AS n FROM {source} WHERE {condition} GROUP BY sipHash128({key})"
    rows, keys = fetch(client, f"SELECT sum(n), count() FROM ({groups})")[0]
    return int(rows), int(keys)
