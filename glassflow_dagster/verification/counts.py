"""Whether every record in Kafka is accounted for in ClickHouse: `counts_agree`.

Kafka is asked how many records there are, ClickHouse how many rows; the ledger says only what was left out and why.
Here the questions are asked; what the answers mean is `verdict.py`'s affair.
"""

from collections.abc import Callable
from datetime import timedelta

from clickhouse_connect.driver.client import Client

from glassflow_dagster.clickhouse.client import connect
from glassflow_dagster.clickhouse.ddl import LEDGER
from glassflow_dagster.clickhouse.identifiers import full_name
from glassflow_dagster.clickhouse.ledger import LedgerTotals, read_totals
from glassflow_dagster.clickhouse.queries import fetch
from glassflow_dagster.clickhouse.tables import Table, count_rows, require_table
from glassflow_dagster.config.durations import milliseconds
from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.verification.kafka_side import count_kafka
from glassflow_dagster.verification.keys import MAX_DISTINCT_ROWS, key_columns, key_expression
from glassflow_dagster.verification.settle import settle
from glassflow_dagster.verification.verdict import CountsReport, Distinct, Facts, judge, rows_fit


def compare_counts(config: PipelineConfig, report: Callable[[str], None]) -> CountsReport:
    """Count in Kafka and in ClickHouse and compare; raises `GlassflowError` when one of them cannot be asked."""
    client = connect(config.sink.connection_params)
    name, books = config.sink.full_table, config.sink.connection_params.database
    table = require_table(client, *name)

    def look() -> tuple[LedgerTotals, int]:
        # The ledger first: a batch under way then makes the table too full, never too empty.
        return read_totals(client, books, config.pipeline_id), count_rows(client, *name)

    def fits(found: tuple[LedgerTotals, int]) -> bool:
        totals, rows = found
        expected = totals.rows_before + totals.outcomes.written
        may_hold_more = config.checks.other_writers or config.sink.delivery == "at_least_once" or bool(totals.losses)
        return rows_fit(table, rows, expected, may_hold_more=may_hold_more)

    totals, rows = settle(look, fits)
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
            distinct=_count_distinct(client, table, columns, rows) if dedup else Distinct(),
            recent_written=_recent_written(client, books, config.pipeline_id, totals, window),
        )
    )


def _count_distinct(client: Client, table: Table, columns: tuple[str, ...] | None, rows: int) -> Distinct:
    if columns is None:
        return Distinct(reason="a key field has no column that keeps its values apart; map it to one, such as String")
    if rows > MAX_DISTINCT_ROWS:
        return Distinct(reason=f"the table has more than {MAX_DISTINCT_ROWS:,} rows")
    query = f"SELECT uniqExact({key_expression(columns)}), count() FROM {full_name(table.database, table.name)}"  # noqa: S608
    keys, seen = fetch(client, query)[0]
    return Distinct(keys=keys, rows=seen)


def _recent_written(
    client: Client, books: str, pipeline_id: str, totals: LedgerTotals, window: timedelta | None
) -> int:
    if window is None or totals.last_batch_time is None:
        return 0
    last = round(totals.last_batch_time.timestamp() * 1000)
    found = fetch(
        client,
        # Of the last incarnation only: another checkpoint does not know the keys of the one before.
        f"SELECT sum(written) FROM {full_name(books, LEDGER)} WHERE pipeline_id = {{pipeline:String}} "  # noqa: S608
        "AND toUnixTimestamp64Milli(batch_time) > {after:Int64} AND toUnixTimestamp64Milli(batch_time) <= {last:Int64} "
        f"AND incarnation = (SELECT argMax(incarnation, batch_time) FROM {full_name(books, LEDGER)} "
        "WHERE pipeline_id = {pipeline:String})",
        {"pipeline": pipeline_id, "after": last - milliseconds(window), "last": last},
    )
    return int(found[0][0])
