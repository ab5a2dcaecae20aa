"""The column that says when a row came, by which rows of one deduplication window are told from later ones.

The batch time, where it is mapped, is the very clock of deduplication in processing time. A column filled by the server
(`ingested_at DEFAULT now()`) runs behind it, by minutes after a crash; the ledger knows each batch's time and when it
was done, which sets that right.
"""

from dataclasses import dataclass

from glassflow_dagster.clickhouse.errors import TableProblem
from glassflow_dagster.clickhouse.identifiers import quote_name
from glassflow_dagster.clickhouse.tables import Table
from glassflow_dagster.config.model.fields import TimeUnit
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.config.model.types import ColumnType
from glassflow_dagster.config.problems import suggestion

# What the column is called in GlassFlow's own examples.
_USUAL_NAME = "ingested_at"
TIMES = ("DateTime", "DateTime64")


# Milliseconds since 1970 of a whole number, by what it counts.
_FROM_UNIT = {"s": "{} * 1000", "ms": "{}", "us": "intDiv({}, 1000)", "ns": "intDiv({}, 1000000)"}


@dataclass(frozen=True)
class RowTime:
    """The column by which a row has its place in time.

    is_clock: whether it is the very time that deduplication went by. resolution_ms: how coarse it is, beyond
    milliseconds (0: exact). unit: what it counts, where it is a whole number; None for a DateTime or DateTime64.
    """

    column: str
    is_clock: bool
    resolution_ms: int
    unit: TimeUnit | None = None

    @property
    def milliseconds(self) -> str:
        """Write the time as SQL, milliseconds since 1970."""
        name = quote_name(self.column)
        if self.unit is None:
            return f"toUnixTimestamp64Milli(toDateTime64({name}, 3))"
        return _FROM_UNIT[self.unit].format(f"toInt64({name})")

    def since(self, seconds: int) -> str:
        """Write a condition on the rows of the last seconds, of a form that an index on the column can serve."""
        if self.unit is None:
            return f"{quote_name(self.column)} >= now() - {seconds}"
        return f"{self.milliseconds} >= (toUnixTimestamp(now()) - {seconds}) * 1000"


def arrival_column(config: PipelineConfig, table: Table) -> RowTime | None:
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
        return time_column(table, named, is_clock=named in batch_time)
    for column in (*batch_time, _USUAL_NAME):
        if column in _time_columns(table):
            return time_column(table, column, is_clock=column in batch_time)
    return None


def time_column(table: Table, column: str, *, is_clock: bool) -> RowTime:
    """Describe a DateTime or DateTime64 column of a table."""
    return RowTime(column, is_clock, _resolution_ms(table.columns[column].type.base))


def _time_columns(table: Table) -> list[str]:
    return [name for name, column in table.columns.items() if column.type.base.name in TIMES]


def _resolution_ms(kind: ColumnType) -> int:
    digits = kind.arguments[0] if kind.name == "DateTime64" and kind.arguments else 0
    assert isinstance(digits, int)
    return round(10 ** (3 - digits)) if digits < 3 else 0  # noqa: PLR2004 - milliseconds, the batch time's own
