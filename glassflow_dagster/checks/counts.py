"""The check `counts_agree`: every record in Kafka is accounted for in ClickHouse.

Records are counted in Kafka, rows in ClickHouse; the ledger explains the difference. This module counts;
`count_rules.py` evaluates the counts.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta

from clickhouse_connect.driver.client import Client

from glassflow_dagster.checks.budget import connect_within_limits, explaining_limits, max_rows_at_once
from glassflow_dagster.checks.count_rules import CountsReport, Distinct, Facts, evaluate_counts, rows_fit
from glassflow_dagster.checks.kafka_counts import count_kafka, count_unread
from glassflow_dagster.checks.keys import count_keys, key_columns, key_expression
from glassflow_dagster.checks.wait_until_stable import wait_until_stable
from glassflow_dagster.definition.model.checks import Checks
from glassflow_dagster.definition.model.durations import milliseconds
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.ledger import LedgerSums, RowsByTable, add_later_batches, read_rows_written
from glassflow_dagster.stores.bookkeeping.losses import read_losses
from glassflow_dagster.stores.bookkeeping.totals import LedgerTotals, complete_totals, read_sums
from glassflow_dagster.stores.clickhouse.errors import LimitReached
from glassflow_dagster.stores.clickhouse.identifiers import full_name
from glassflow_dagster.stores.clickhouse.table import Table, count_rows, require_table


def compare_counts(config: PipelineConfig, report: Callable[[str], None]) -> CountsReport:
    """Count in Kafka and in ClickHouse, and return the comparison.

    Raises `LimitReached` when a limit ends a query, and another `GlassflowError` when a server cannot be reached.
    """
    with explaining_limits(config.checks):
        return _compare(config, report)


def _compare(config: PipelineConfig, report: Callable[[str], None]) -> CountsReport:
    """Read all counts, and return their evaluation.

    Before the first batch nothing is compared: that passes only while there are no records to read.
    """
    client = connect_within_limits(config)
    database = config.sink.connection_params.database
    tables = [require_table(client, *sink.full_table) for sink in config.sink.by_table]
    sums, rows = _sums_and_rows(client, config, tables)
    totals = complete_totals(client, database, config.pipeline_id, sums)
    if not totals.batches:
        return _before_first_batch(count_unread(config))
    kafka = count_kafka(config, totals, report)
    # Batch times tell which rows are within one window only on the processing clock and without a join, where an event
    # may be written long after it was read.
    dedup = None if config.join else config.dedup_of(config.source)
    window = dedup.time_window if dedup and dedup.clock == "processing" else None
    recent = _recent_written(client, database, config.pipeline_id, totals, window)
    facts = []
    for of_table, table, count in zip(config.by_table, tables, rows, strict=True):
        columns = key_columns(of_table, table)
        name, own = of_table.sink.table_name, of_table.sink.is_own
        facts.append(
            Facts(
                table=table,
                other_writers=config.other_writers,
                delivery=config.sink.delivery,
                window=window,
                key_columns=columns,
                rows=count,
                table_rows=totals.by_table.of(name, own=own),
                totals=totals,
                joins=config.join is not None,
                kafka=kafka,
                distinct=_count_distinct(client, table, columns, config.checks, count) if dedup else Distinct(),
                recent_written=recent.of(name, own=own).written,
            )
        )
    return evaluate_counts(facts)


def _before_first_batch(waiting: int) -> CountsReport:
    """Return the report where no batch has been written. waiting: the records that the first ones will read."""
    if not waiting:
        text = "No batch has been written yet, and no records wait; there is nothing to compare."
        return CountsReport(passed=True, exact=False, description=text)
    text = (
        f"Not compared: no batch has been written yet, and {waiting:,} records wait. If the stream's first batch does "
        "not end, look at its status and log."
    )
    return CountsReport(
        passed=False, exact=False, description=text, figures={"records_waiting": waiting}, records_wait=True
    )


def _sums_and_rows(client: Client, config: PipelineConfig, tables: Sequence[Table]) -> tuple[LedgerSums, list[int]]:
    """Return the ledger's sums and the tables' row counts as soon as they agree, or as they are when they do not.

    The whole ledger is summed once; each further reading adds the batches that have been written since.
    """
    database = config.sink.connection_params.database
    sums = read_sums(client, database, config.pipeline_id)
    may_hold_more = (
        bool(config.other_writers)
        or config.sink.delivery == "at_least_once"
        or bool(read_losses(client, database, config.pipeline_id, sums.checkpoint_id))
    )

    def count() -> list[int]:
        return [count_rows(client, table.database, table.name) for table in tables]

    def read() -> tuple[LedgerSums, list[int]]:
        nonlocal sums
        # The ledger first: a batch in flight may then add rows to the table, but never rows to the ledger alone.
        more = add_later_batches(client, database, config.pipeline_id, sums)
        # Before the first batch its checkpoint is unknown, so read the newest checkpoint again.
        sums = more if more.batches else read_sums(client, database, config.pipeline_id)
        return sums, count()

    def fits(reading: tuple[LedgerSums, list[int]]) -> bool:
        ledger, counts = reading
        by_table = zip(config.sink.by_table, tables, counts, strict=True)
        return all(
            rows_fit(
                table,
                rows,
                ledger.by_table.of(sink.table_name, own=sink.is_own).expected(rows),
                may_hold_more=may_hold_more,
            )
            for sink, table, rows in by_table
        )

    reading = wait_until_stable(read, fits)
    if not fits(reading):
        # Report a difference on a fresh sum of the whole ledger, whose newest checkpoint may be another one by now.
        return read_sums(client, database, config.pipeline_id), count()
    return reading


def _count_distinct(
    client: Client, table: Table, columns: tuple[str, ...] | None, checks: Checks, rows: int
) -> Distinct:
    """Count the distinct keys; or return the reason why not: no key columns, too many rows, or a limit was reached."""
    if columns is None:
        return Distinct(
            reason="a key field has no column that keeps its values distinct; map it to one, such as String"
        )
    if rows > max_rows_at_once(checks):
        return Distinct(reason=f"checks.max_memory_mib is enough for {max_rows_at_once(checks):,} rows")
    try:
        with explaining_limits(checks):
            counted_rows, keys = count_keys(client, full_name(table.database, table.name), key_expression(columns))
    except LimitReached as limit:
        return Distinct(reason=str(limit))
    return Distinct(keys=keys, rows=counted_rows)


def _recent_written(
    client: Client, database: str, pipeline_id: str, totals: LedgerTotals, window: timedelta | None
) -> RowsByTable:
    """Return the rows that the batches of the last deduplication window wrote; none without a window."""
    if window is None or totals.last_batch_time is None:
        return RowsByTable()
    last_ms = round(totals.last_batch_time.timestamp() * 1000)
    return read_rows_written(client, database, pipeline_id, after_ms=last_ms - milliseconds(window), until_ms=last_ms)
