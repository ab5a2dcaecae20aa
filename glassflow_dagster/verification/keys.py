"""The columns by which the table tells keys apart, where it can."""

from glassflow_dagster.clickhouse.identifiers import quote_name
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.config.stages import TransformStage, plan_stages, without_hidden
from glassflow_dagster.expressions.language.syntax import Field

# Two keys may become one value: "2024-01-01 00:00:00" and 1704067200, the texts "::1" and "0::1" or "1.5" and "1.50",
# or numbers that differ after seven digits.
_LOSSY = frozenset({"DateTime", "DateTime64", "Date", "Date32", "IPv6", "Decimal", "Float32"})

# Distinct keys are held in memory by the server, some 40 bytes each.
MAX_DISTINCT_ROWS = 10_000_000


def key_columns(config: PipelineConfig, table: Table) -> tuple[str, ...] | None:
    """Give the column of each key field, in order; None when one has no column that keeps its values apart."""
    if config.dedup is None:
        return None
    held = _fields_held(config)
    columns: dict[str, str] = {}
    for mapping in config.sink.mapping:
        column = table.columns.get(mapping.column_name)
        if mapping.name in held and column is not None and column.type.base.name not in _LOSSY:
            columns.setdefault(held[mapping.name], mapping.column_name)
    fields = config.dedup.key_fields
    return tuple(columns[name] for name in fields) if all(name in columns for name in fields) else None


def _fields_held(config: PipelineConfig) -> dict[str, str]:
    """Give the field of the source that each mappable name holds unchanged; keys are read before any transform."""
    visible = {field.name: field.name for field in config.source.schema_fields}
    mappable = visible
    for stage in plan_stages(config).steps:
        if isinstance(stage, TransformStage):
            mappable = {
                output.name: visible[root.name]
                for output in stage.outputs
                if isinstance(root := output.value.root, Field) and output.kind == output.value.kind
                if root.name in visible
            }
            visible = {**without_hidden(visible, [output.name for output in stage.outputs]), **mappable}
    return mappable


def key_expression(columns: tuple[str, ...]) -> str:
    """Write the key as SQL: one value a row."""
    return f"tuple({', '.join(quote_name(column) for column in columns)})"
