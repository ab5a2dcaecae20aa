"""Whether every record in Kafka is accounted for in ClickHouse: `counts_agree`.

Kafka is asked how many records there are, ClickHouse how many rows; the ledger says only what was left out and why.
Here the questions are asked; what the answers mean is `count_rules.py`'s affair.
"""

from collections.abc import Callable
from datetime import timedelta

from clickhouse_connect.driver.client import Client

from glassflow_dagster.bookkeeping.ledger import LedgerSums, add_later, read_written
from glassflow_dagster.bookkeeping.losses import read_losses
from glassflow_dagster.bookkeeping.totals import LedgerTotals, complete, read_sums
from glassflow_dagster.clickhouse.errors import LimitReached
from glassflow_dagster.clickhouse.identifiers import full_name
from glassflow_dagster.clickhouse.tables import Table, count_rows, require_table
from glassflow_dagster.config.model.checks import Checks
from glassflow_dagster.config.model.durations import milliseconds
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.verification.budget import connect_within_limits, limits_told, most_rows
from glassflow_dagster.verification.count_rules import CountsReport, Distinct, Facts, judge, rows_fit
from glassflow_dagster.verification.kafka_counts import count_kafka
from glassflow_dagster.verification.keys import count_keys, key_columns, key_expression
from glassflow_dagster.verification.wait_until_stable import wait_until_stable


def compare_counts(config: PipelineConfig, report: Callable[[str], None]) -> CountsReport:
    """Count in Kafka and in ClickHouse and compare.

    Raises `LimitReached` when a limit ends a query, and another `GlassflowError` when a server cannot be asked.
    """
    with limits_told(config.checks):
        return _compare(config, report)


def _compare(config: PipelineConfig, report: Callable[[str], None]) -> CountsReport:
    client = connect_within_limits(config)
    database = config.sink.connection_params.database
    table = require_table(client, *config.sink.full_table)
    sums, rows = _sums_and_rows(client, config, table)
    totals = complete(client, database, config.pipeline_id, sums)
    if not totals.batches:
        return CountsReport(
            passed=True, exact=False, description="No batch has been written yet; there is nothing to compare."
        )
    columns = key_columns(config, table)
    # On the event clock the batches say nothing about which rows are in one window, nor do those of a join, where an
    # event may be written long after it was read.
    dedup = None if config.join else config.dedup_of(config.source)
    window = dedup.time_window if dedup and dedup.clock == "processing" else None
    return judge(
        Facts(
            table=table,
            other_writers=config.checks.other_writers,
            delivery=config.sink.delivery,
            window=window,
            key_columns=columns,
            rows=rows,
            totals=totals,
            joins=config.join is not None,
            kafka=count_kafka(config, totals, report),
            distinct=_count_distinct(client, table, columns, config.checks, rows) if dedup else Distinct(),
            recent_written=_recent_written(client, database, config.pipeline_id, totals, window),
        )
    )


def _sums_and_rows(client: Client, config: PipelineConfig, table: Table) -> tuple[LedgerSums, int]:
    """Give the ledger's sums and the table's rows, as soon as they fit, or as they are when they will not.

    The whole ledger is summed once; further looks add the batches that have come since.
    """
    database, name = config.sink.connection_params.database, config.sink.full_table
    sums = read_sums(client, database, config.pipeline_id)
    may_hold_more = (
        config.checks.other_writers
        or config.sink.delivery == "at_least_once"
        or bool(read_losses(client, database, config.pipeline_id, sums.checkpoint_id))
    )

    def look() -> tuple[LedgerSums, int]:
        nonlocal sums
        # The ledger first: a batch under way then makes the table too full, never too empty.
        more = add_later(client, database, config.pipeline_id, sums)
        # Before the first batch nobody knows which checkpoint it will be of.
        sums = more if more.batches else read_sums(client, database, config.pipeline_id)
        return sums, count_rows(client, *name)

    def fits(found: tuple[LedgerSums, int]) -> bool:
        expected = found[0].rows_before + found[0].outcomes.written
        return rows_fit(table, found[1], expected, may_hold_more=may_hold_more)

    found = wait_until_stable(look, fits)
    if not fits(found):
        # What is not right is said of the whole ledger, and of the checkpoint that is the newest by now.
        return read_sums(client, database, config.pipeline_id), count_rows(client, *name)
    return found


def _count_distinct(
    client: Client, table: Table, columns: tuple[str, ...] | None, checks: Checks, rows: int
) -> Distinct:
    if columns is None:
        return Distinct(reason="a key field has no column that keeps its values apart; map it to one, such as String")
    if rows > most_rows(checks):
        return Distinct(reason=f"checks.max_memory_mib is enough for {most_rows(checks):,} rows")
    try:
        with limits_told(checks):
            keys, seen = count_keys(client, full_name(table.database, table.name), key_expression(columns))
    except LimitReached as limit:
        return Distinct(reason=str(limit))
    return Distinct(keys=keys, rows=seen)


def _recent_written(
    client: Client, database: str, pipeline_id: str, totals: LedgerTotals, window: timedelta | None
) -> int:
    if window is None or totals.last_batch_time is None:
        return 0
    last = round(totals.last_batch_time.timestamp() * 1000)
    return read_written(client, database, pipeline_id, last - milliseconds(window), last)
