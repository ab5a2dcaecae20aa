"""The target's column with the event time, by which duplicates are searched on the event clock."""

from glassflow_dagster.checks.row_time import TIMES, RowTime, time_column
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.model.transforms import DedupConfig, Stateless
from glassflow_dagster.stores.clickhouse.table import Table

_INTEGERS = ("Int64", "UInt64", "Int32", "UInt32")


def event_time_column(config: PipelineConfig, dedup: DedupConfig, table: Table) -> RowTime | None:
    """Return a column that is filled with the event time without loss; None when there is none.

    A time column holds it when the event time is in seconds; an integer column in any unit. None with a stateless
    transform: its output of the same name may be another value.
    """
    if any(isinstance(transform, Stateless) for transform in config.transforms):
        return None
    for mapping in config.sink.mapping:
        if mapping.name == dedup.event_time and mapping.column_name in table.columns:
            type_name = table.columns[mapping.column_name].type.base.name
            # ClickHouse reads a number in a DateTime column as seconds.
            if type_name in TIMES and dedup.time_unit == "s":
                return time_column(table, mapping.column_name, is_clock=True)
            if type_name in _INTEGERS:
                return RowTime(mapping.column_name, is_clock=True, resolution_ms=0, unit=dedup.time_unit)
    return None
