"""What the checks on a large table and a long ledger cost ClickHouse, compared with their earlier implementation.

A table has rows of the last day, each with a key of its own of 32 digits. Duplicates are searched as until 2026-11-23,
by `uniqExact` and a pass over all keys, and as `no_residual_duplicates` searches now, in a share of the keys that
follows from `checks.max_memory_mib`. A ledger has many batches of 12 partitions. While `counts_agree` waits for a
batch, one read used to take the whole ledger and now takes what has come since the previous read. Memory is the peak of
any single query, as the server reports it.

    make bench-verification      or: python -m benchmarks.verification --rows 1000000 --batches 10000 --runs 1
"""

import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.httpclient import HttpClient

from benchmarks import results
from benchmarks.console import say
from benchmarks.results import Figures, Runs
from benchmarks.stack import Stack, running_stack
from glassflow_dagster.checks.duplicates import Scope, Search, duplicates_query, find_residual_duplicates
from glassflow_dagster.checks.row_time import time_column
from glassflow_dagster.definition.load import load_pipeline
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.ledger import LEDGER, add_later_batches
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.bookkeeping.totals import read_sums, read_totals
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.identifiers import full_name
from glassflow_dagster.stores.clickhouse.queries import execute, fetch
from glassflow_dagster.stores.clickhouse.table import count_rows, require_table
from glassflow_dagster.stores.clickhouse.tables.prepare import prepare_target

ROWS = 100_000_000
BATCHES = 1_000_000
PARTITIONS = 12
_DAY = 86_400  # seconds
# seconds; all rows are within the last day, and stay so until the benchmark has ended
_SPREAD = 20 * 3600
_WINDOW_MS = 600_000

_DEFINITION = """
version: v3
pipeline_id: verification
sources:
  - type: kafka
    source_id: events
    connection_params: {brokers: ["127.0.0.1:1"]}
    topic: verification
    schema_fields: [{name: id, type: string}]
transforms:
  - {type: dedup, source_id: events, config: {key: id, time_window: 10m}}
sink:
  type: clickhouse
  connection_params: {host: 127.0.0.1, port: 1, database: verification, username: default}
  table: events
  mapping:
    - {name: id, column_name: id, column_type: String}
    - {name: _batch_time, column_name: came, column_type: DateTime64(3)}
  create_table: {order_by: came}
"""

WHOLE, SHARE = "duplicates: every key, as it was", "duplicates: a share, as it is"
ALL_BATCHES, LATER_BATCHES = "one look: all batches, as it was", "one look: later batches, as it is"


def main() -> None:
    """Run the benchmark and write its results."""
    parser = results.parser("verification")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the table")
    parser.add_argument("--batches", type=int, default=BATCHES, help="batches in the ledger")
    arguments = parser.parse_args()
    runs = Runs()
    with running_stack() as stack:
        bench = Bench(stack, arguments.rows, arguments.batches)
        for _ in range(arguments.runs):
            runs.measure(WHOLE, lambda: measured(bench.find_duplicates_in_all_keys))
            runs.measure(SHARE, lambda: measured(bench.find_duplicates_in_share))
            runs.measure(ALL_BATCHES, lambda: measured(bench.read_whole_ledger))
            runs.measure(LATER_BATCHES, lambda: measured(bench.read_later_batches))
    runs.compare("duplicates: as it is to as it was", SHARE, WHOLE)
    runs.compare("one look: as it is to as it was", LATER_BATCHES, ALL_BATCHES)
    runs.write(
        arguments.results,
        "verification",
        {"rows": arguments.rows, "batches": arguments.batches, "partitions": PARTITIONS},
    )


class Bench:
    """A pipeline that never ran, with its table and ledger filled by the server."""

    def __init__(self, stack: Stack, rows: int, batches: int) -> None:
        self._config = self._load(stack)
        self._client = connect(self._config.sink.connection_params)
        self._database = self._config.sink.connection_params.database
        prepare_target(self._client, self._config, create=True)
        ensure_bookkeeping(self._client, self._database)
        say(f"filling a table with {rows:,} rows and a ledger with {batches:,} batches ...")
        fill_table(self._client, full_name(*self._config.sink.full_table), rows)
        fill_ledger(self._client, LEDGER.full_name(self._database), self._config.pipeline_id, batches)
        self._sums = read_sums(self._client, self._database, self._config.pipeline_id)

    def find_duplicates_in_all_keys(self) -> None:
        """Run the earlier query of `no_residual_duplicates`: all rows of the last day at once, without a limit."""
        table = require_table(self._client, *self._config.sink.full_table)
        search = Search(
            table=table,
            key="tuple(`id`)",
            window_ms=_WINDOW_MS,
            time=time_column(table, "came", is_clock=True),
            ledger=LEDGER.full_name(self._database),
            pipeline_id=self._config.pipeline_id,
            scope=Scope(_DAY),
        )
        source = full_name(*self._config.sink.full_table)
        query = f"SELECT count(), uniqExact({search.key}) FROM {source} WHERE {search.condition}"
        fetch(self._client, query)
        fetch(self._client, duplicates_query(search, final=False))

    def find_duplicates_in_share(self) -> None:
        """Run the check; exit if it fails."""
        found = find_residual_duplicates(self._config, lambda _: None)
        if not found.passed:
            raise SystemExit(found.description)
        say(found.description)

    def read_whole_ledger(self) -> None:
        """Read ledger and table as `counts_agree` did, five times a second."""
        read_totals(self._client, self._database, self._config.pipeline_id)
        count_rows(self._client, *self._config.sink.full_table)

    def read_later_batches(self) -> None:
        """Read ledger and table as `counts_agree` does now."""
        add_later_batches(self._client, self._database, self._config.pipeline_id, self._sums)
        count_rows(self._client, *self._config.sink.full_table)

    @staticmethod
    def _load(stack: Stack) -> PipelineConfig:
        file = stack.folder / "verification.yaml"
        file.write_text(_DEFINITION, encoding="utf-8")
        return load_pipeline(file, stack.environment)


def fill_table(client: Client, table: str, rows: int) -> None:
    """Insert rows, spread over the last hours."""
    begun = round((time.time() - _SPREAD) * 1000)
    execute(
        client,
        f"INSERT INTO {table} (id, came) SELECT lower(hex(sipHash128(number))), "
        f"fromUnixTimestamp64Milli({begun} + intDiv(number * {_SPREAD * 1000}, {rows})) FROM numbers({rows})",
    )


def fill_ledger(client: Client, ledger: str, pipeline_id: str, batches: int) -> None:
    """Insert batches of one checkpoint, a second apart, each with 100 records of every partition."""
    offsets = (
        "arrayMap(p -> CAST(('verification', p, number * 100, (number + 1) * 100), "
        f"'Tuple(topic String, partition UInt32, `from` UInt64, until UInt64)'), range({PARTITIONS}))"
    )
    execute(
        client,
        f"INSERT INTO {ledger} (pipeline_id, checkpoint_id, batch_id, batch_time, offsets, read, written) "
        "SELECT {pipeline:String}, toUUID('11111111-1111-1111-1111-111111111111'), number, "
        f"now64(3) - toIntervalSecond({batches} - number), {offsets}, {PARTITIONS * 100}, {PARTITIONS * 100} "
        f"FROM numbers({batches})",
        {"pipeline": pipeline_id},
    )


def measured(work: Callable[[], None]) -> Figures:
    """Run `work`; return its seconds, and the peak memory of a single query in MiB."""
    peaks = [0]
    query = HttpClient.query

    def recorded_query(self: HttpClient, *arguments: Any, **named: Any) -> Any:
        result = query(self, *arguments, **named)
        peaks.append(int(result.summary.get("memory_usage", 0)))
        return result

    begun = time.perf_counter()
    with patch.object(HttpClient, "query", recorded_query):
        work()
    return {"seconds": time.perf_counter() - begun, "memory_mib": max(peaks) / 2**20}


if __name__ == "__main__":
    main()
