"""The column that says when a row came, by which rows of one deduplication window are told from later ones.

The batch time, where it is mapped, is the very clock of deduplication. A column filled by the server (`ingested_at
DEFAULT now()`) runs behind it, by minutes after a crash; the ledger knows each batch's time and when it was done, which
sets that right.
"""

from dataclasses import dataclass

from glassflow_dagster.clickhouse.errors import TableProblem
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.config.problems import suggestion
from glassflow_dagster.config.types import ColumnType

# What the column is called in GlassFlow's own examples.
_USUAL_NAME = "ingested_at"
_TIMES = ("DateTime", "DateTime64")


@dataclass(frozen=True)
class Arrival:
    """A time column; `resolution_ms` is how coarse its clock is, beyond milliseconds (0: exact)."""

    column: str
    is_batch_time: bool
    resolution_ms: int


def arrival_column(config: PipelineConfig, table: Table) -> Arrival | None:
    """Choose the column: the definition's, the mapped batch time, or `ingested_at`; None when there is none of them.

    Raises `TableProblem` when `checks.arrival_column` names no time column of the table.
    """
    batch_time = [m.column_name for m in config.sink.mapping if m.name == "_batch_time"]
    named = config.checks.arrival_column
    if named is not None:
        if named not in _time_columns(table):
            raise TableProblem(
                f"checks.arrival_column: {table.database}.{table.name} has no DateTime column {named!r}; "
                f"{suggestion(named, _time_columns(table) or ['(none)'])}"
            )
        return _arrival(table, named, is_batch_time=named in batch_time)
    for column in (*batch_time, _USUAL_NAME):
        if column in _time_columns(table):
            return _arrival(table, column, is_batch_time=column in batch_time)
    return None


def _arrival(table: Table, column: str, *, is_batch_time: bool) -> Arrival:
    return Arrival(column, is_batch_time, _resolution_ms(table.columns[column].type.base))


def _time_columns(table: Table) -> list[str]:
    return [name for name, column in table.columns.items() if column.type.base.name in _TIMES]


def _resolution_ms(kind: ColumnType) -> int:
    digits = kind.arguments[0] if kind.name == "DateTime64" and kind.arguments else 0
    assert isinstance(digits, int)  # noqa: S101 - DateTime64's first argument is its number of digits
    return round(10 ** (3 - digits)) if digits < 3 else 0  # noqa: PLR2004 - milliseconds, the batch time's own
