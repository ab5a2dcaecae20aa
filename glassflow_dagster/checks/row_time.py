"""The column with the time when a row was written, by which rows of one deduplication window are distinguished.

A column that is mapped to the batch time has the time that deduplication uses on the processing clock. A column that
the server fills (`ingested_at DEFAULT now()`) is later than the batch time, by minutes after a crash; the ledger, with
each batch's time and end, corrects that.
"""

from dataclasses import dataclass

from glassflow_dagster.definition.model.fields import TimeUnit
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.types import ColumnType
from glassflow_dagster.definition.problems import suggestion
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.identifiers import quote_name
from glassflow_dagster.stores.clickhouse.table import Table

# The column's name in GlassFlow's own examples.
_USUAL_NAME = "ingested_at"
TIMES = ("DateTime", "DateTime64")


# SQL that converts an integer of a unit to milliseconds since 1970.
_MILLISECONDS_FROM = {"s": "{} * 1000", "ms": "{}", "us": "intDiv({}, 1000)", "ns": "intDiv({}, 1000000)"}


@dataclass(frozen=True)
class RowTime:
    """The column that has a row's time.

    is_clock: whether it is the time that deduplication used.
    resolution_ms: the column's resolution in milliseconds, 0 for milliseconds or finer.
    unit: the unit of an integer column; None for a DateTime or DateTime64.
    """

    column: str
    is_clock: bool
    resolution_ms: int
    unit: TimeUnit | None = None

    @property
    def milliseconds(self) -> str:
        """The time in milliseconds since 1970, as SQL."""
        name = quote_name(self.column)
        if self.unit is None:
            return f"toUnixTimestamp64Milli(toDateTime64({name}, 3))"
        return _MILLISECONDS_FROM[self.unit].format(f"toInt64({name})")

    def since(self, seconds: int) -> str:
        """Return the SQL condition on rows of the last `seconds`; an index on a DateTime column can serve it."""
        if self.unit is None:
            return f"{quote_name(self.column)} >= now() - {seconds}"
        return f"{self.milliseconds} >= (toUnixTimestamp(now()) - {seconds}) * 1000"


def arrival_column(config: PipelineConfig, table: Table) -> RowTime | None:
    """Return the column: `checks.arrival_column`, the mapped batch time, or `ingested_at`; None when there is none.

    Raises `TableProblem` when `checks.arrival_column` names no time column of the table.
    """
    batch_time = [m.column_name for m in config.sink.mapping if m.name == "_batch_time"]
    named = config.checks.arrival_column  # the definition's choice, which must exist
    if named is not None:
        if named not in _time_columns(table):
            raise TableProblem(
                f"checks.arrival_column: {table.full_name} has no DateTime column {named!r}; "
                f"{suggestion(named, _time_columns(table) or ['(none)'])}"
            )
        return time_column(table, named, is_clock=named in batch_time)
    for column in (*batch_time, _USUAL_NAME):
        if column in _time_columns(table):
            return time_column(table, column, is_clock=column in batch_time)
    return None


def time_column(table: Table, column: str, *, is_clock: bool) -> RowTime:
    """Return the `RowTime` of a DateTime or DateTime64 column of a table."""
    return RowTime(column, is_clock=is_clock, resolution_ms=_resolution_ms(table.columns[column].type.base))


def _time_columns(table: Table) -> list[str]:
    """Return the names of the DateTime and DateTime64 columns."""
    return [name for name, column in table.columns.items() if column.type.base.name in TIMES]


def _resolution_ms(kind: ColumnType) -> int:
    """Return the resolution of a time type in milliseconds; 0 for milliseconds or finer."""
    # Digits of the second's fraction; a DateTime has none.
    digits = kind.arguments[0] if kind.name == "DateTime64" and kind.arguments else 0
    assert isinstance(digits, int)
    return round(10 ** (3 - digits)) if digits < 3 else 0  # noqa: PLR2004 - milliseconds, the batch time's own
