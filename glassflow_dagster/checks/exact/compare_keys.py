"""The comparison of `verify --exact`: the table has exactly the rows that follow from the records in Kafka, by key.

The counts of `verify` agree when one row is lost and another doubled; this comparison does not. It reads everything
again: the topics between the ledger's first and last offsets, and the compared columns of the whole table. Only hashes
are compared; a few keys that differ are looked up for the report.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from clickhouse_connect.driver.client import Client
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from glassflow_dagster.checks.exact.canonical import Comparable, comparable, hashed, joined, readable_key
from glassflow_dagster.checks.exact.expected import declare_for_reading, expected_rows, whole_ranges, without_refused
from glassflow_dagster.checks.exact.table_rows import actual_rows, texts_query
from glassflow_dagster.checks.kafka_counts import Spans, measure
from glassflow_dagster.checks.key_rules import (
    NO_KEY_COLUMNS,
    DifferingRows,
    KeyDifferences,
    KeysContext,
    KeysReport,
    evaluate_keys,
    together,
    undecided,
    why_undecided,
)
from glassflow_dagster.checks.keys import key_columns
from glassflow_dagster.checks.wait_until_stable import wait_until_stable
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.stores.bookkeeping.dead_letter_table import read_refused_by_server, read_undecoded
from glassflow_dagster.stores.bookkeeping.ledger import BatchHistory, last_batch, read_history
from glassflow_dagster.stores.bookkeeping.schema_changes import effective_definition
from glassflow_dagster.stores.bookkeeping.totals import LedgerTotals, read_totals
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.queries import fetch
from glassflow_dagster.stores.clickhouse.table import Table, require_table
from glassflow_dagster.stores.kafka.topic_pattern import with_topics
from glassflow_dagster.stores.kafka.topics import offsets
from glassflow_dagster.stream.spark.session import SHUFFLE_PARTITIONS
from glassflow_dagster.stream.spark.spark_errors import explain_failure

# Records per shuffle partition: some tens of megabytes of hashes.
RECORDS_PER_PARTITION = 1_000_000
_EXAMPLES = 3  # keys named in the report, of each kind


@dataclass(frozen=True)
class Compared:
    """A table, the columns of its key, the columns whose values are compared, and those that cannot be compared.

    config: the definition with the sink of the table (`PipelineConfig.by_table`).
    index: the table's position in it.
    """

    config: PipelineConfig
    table: Table
    index: int
    key: tuple[Comparable, ...]
    values: tuple[Comparable, ...]
    left_out: tuple[str, ...]

    @property
    def of_expected(self) -> dict[str, Column]:
        """The columns of a row that Kafka's records lead to: key_hash, row_hash and key (its text), all STRING."""
        # `hashed` and `joined` return a pair: a column for Spark, and the same as SQL for ClickHouse.
        key_hash, _ = hashed(self.key)
        row_hash, _ = hashed(self.values)
        key, _ = joined(self.key)
        return {"key_hash": key_hash, "row_hash": row_hash, "key": key}

    @property
    def key_names(self) -> tuple[str, ...] | None:
        """The names of the key's columns; None when the key cannot be compared."""
        return tuple(column.name for column in self.key) or None

    @property
    def name(self) -> str:
        """The table's name, as `database.table`."""
        return self.config.sink.table_name


def reconcile_keys(spark: SparkSession, config: PipelineConfig, report: Callable[[str], None]) -> KeysReport:
    """Return the comparison of the rows expected from Kafka's records with the tables' rows, by key.

    spark: a session of `start_session`; its settings are not changed.
    report: receives progress.
    Raises `GlassflowError` when Kafka, ClickHouse or Spark fails.

    The pipeline may be running: the tables are read first, then the ledger is read again. Rows of batches in the first
    ledger reading must be in their table, rows of later batches may be.
    """
    client, database = connect(config.sink.connection_params), config.sink.connection_params.database
    config = effective_definition(client, config)
    compared = compared_tables(client, config)
    totals = read_totals(client, database, config.pipeline_id)
    history_before = read_history(client, database, config.pipeline_id)
    if history_before.last_batch is None or not whole_ranges(history_before.ranges):
        return undecided(["no batch has been written yet"])
    reasons = _why_undecided(config, history_before, totals, compared)
    if reasons:
        return undecided(reasons)
    with_key = [of_table for of_table in compared if of_table.key]
    session = spark.newSession()
    session.conf.set(SHUFFLE_PARTITIONS, _partitions(spark, totals, compared))
    cached: list[DataFrame] = []
    try:
        for of_table in with_key:
            report(f"reading {of_table.table.rows:,} rows of {of_table.name} ...")
            cached.append(actual_by_key(_rows(session, of_table)).persist())
            # Reads the table now, before the ledger is read again.
            cached[-1].count()
        history = _history_after_open_batch(client, database, config)
        reasons = _why_undecided(config, history, totals, compared)
        if reasons:
            return undecided(reasons)
        report(f"reading the records of {', '.join(sorted(whole_ranges(history.ranges)))} ...")
        undecoded = read_undecoded(client, database, config.pipeline_id, history.checkpoint_id)
        declare_for_reading(session, config)
        # Of a pattern, the topics that were read: they decide the order within a batch.
        read = with_topics(config, whole_ranges(history.ranges).keys() - {config.replay_topic})
        tables = [of_table.table for of_table in compared]
        keep = [of_table.of_expected for of_table in compared]
        rows = expected_rows(session, read, tables, history, undecoded, keep)
        positions = read_refused_by_server(client, database, config.pipeline_id, history.checkpoint_id)
        expected = expected_by_key(without_refused(rows, positions, config), until_batch=history_before.last_batch)
        if len(with_key) > 1:
            # Each table takes its part.
            cached.append(expected.persist())
        reports = {of_table.name: undecided([NO_KEY_COLUMNS]) for of_table in compared}
        for of_table, actual in zip(with_key, cached, strict=False):
            differences = find_differences(client, of_table, expected, actual)
            reports[of_table.name] = evaluate_keys(differences, _context(config, of_table, totals))
    except PySparkException as error:
        raise GlassflowError(f"the keys could not be compared: {explain_failure(error, rest='')}") from error
    finally:
        for frame in cached:
            frame.unpersist()
    return together(reports)


def compared_tables(client: Client, config: PipelineConfig) -> list[Compared]:
    """Return the columns to compare of each of the sink's tables; raises `TableProblem` when one is missing."""
    return [
        compared_columns(of_table, require_table(client, *of_table.sink.full_table), index)
        for index, of_table in enumerate(config.by_table)
    ]


def compared_columns(config: PipelineConfig, table: Table, index: int) -> Compared:
    """Return the columns to compare. Without deduplication the key of a row is all its compared values.

    The key is empty when one of its columns is missing or cannot be compared. config, index: see `Compared`.
    """
    mapped = [mapping.column_name for mapping in config.sink.mapping]
    values = tuple(column for name in mapped if (column := comparable(table, name, index)))
    left_out = tuple(name for name in mapped if comparable(table, name, index) is None)
    key = values
    if config.dedup_of(config.source) is not None:
        columns = [comparable(table, name, index) for name in key_columns(config, table) or ()]
        key = tuple(column for column in columns if column) if all(columns) else ()
    return Compared(config, table, index, key=key, values=values, left_out=left_out)


def _why_undecided(
    config: PipelineConfig, history: BatchHistory, totals: LedgerTotals, compared: Sequence[Compared]
) -> list[str]:
    """Return the reasons why no table's keys can be compared."""
    reasons = list(why_undecided(config, history, _spans(config, totals)))
    if not any(of_table.key for of_table in compared):
        reasons.append(NO_KEY_COLUMNS)
    if totals.losses:
        reasons.append("run --accept-loss skipped records or discarded a state (glassflow_losses)")
    return reasons


def _context(config: PipelineConfig, compared: Compared, totals: LedgerTotals) -> KeysContext:
    """Return the circumstances by which the differences of a table are evaluated."""
    before = totals.by_table.of(compared.name, own=compared.config.sink.is_own).before
    rows_before = compared.table.rows if before is None else before
    return KeysContext(config, compared.table, totals, rows_before, compared.key_names, compared.left_out)


def _spans(config: PipelineConfig, totals: LedgerTotals) -> Spans:
    """Return the ledger's ranges compared with the brokers' current offsets."""
    available = {
        topic: offsets(config.connection, topic) for topic in sorted({r.topic for r in totals.ranges if not r.gone})
    }
    return measure(totals.ranges, available)


def _partitions(spark: SparkSession, totals: LedgerTotals, compared: Sequence[Compared]) -> int:
    """Return the number of shuffle partitions: by the number of records, but no fewer than Spark's parallelism."""
    records = max(totals.outcomes.read, *(of_table.table.rows for of_table in compared))
    return max(spark.sparkContext.defaultParallelism, records // RECORDS_PER_PARTITION + 1)


def _history_after_open_batch(client: Client, database: str, config: PipelineConfig) -> BatchHistory:
    """Wait for another batch in the ledger, for a limited time, and return the history.

    A batch that was in flight while the table was read may have been seen there; the history then has it, too.
    """
    before = read_history(client, database, config.pipeline_id)
    wait_until_stable(
        lambda: last_batch(client, database, config.pipeline_id, before.checkpoint_id),
        lambda newest: newest != before.last_batch,
    )
    return read_history(client, database, config.pipeline_id)


def _rows(spark: SparkSession, compared: Compared) -> DataFrame:
    """Return the rows that a table has. Columns out: key_hash STRING, row_hash STRING."""
    return actual_rows(spark, compared.config, hashed(compared.key)[1], hashed(compared.values)[1])


def actual_by_key(rows: DataFrame) -> DataFrame:
    """Return a table's rows by key.

    Columns in: key_hash STRING, row_hash STRING. Columns out: key_hash STRING, rows LONG, values DECIMAL (`_values`).
    """
    return rows.groupBy("key_hash").agg(F.count("*").alias("rows"), _values().alias("values"))


def expected_by_key(rows: DataFrame, until_batch: int) -> DataFrame:
    """Return the expected rows by key.

    Columns out: table_index INT, key_hash STRING, key STRING, must LONG (rows of the batches up to `until_batch`, which
    the table must have), may LONG (rows of all batches; later ones were written while the table was read), wanted
    DECIMAL (the sum of the hashes of the `may` rows, which is compared where the table has that many).
    """
    must = F.count_if(F.col("batch_id") <= F.lit(until_batch)).alias("must")
    return rows.groupBy("table_index", "key_hash").agg(
        F.min("key").alias("key"), must, F.count("*").alias("may"), _values().alias("wanted")
    )


def _values() -> Column:
    """Return the sum of the rows' hashes, which is independent of their order; 38 digits hold it for 64-bit hashes."""
    return F.sum(F.xxhash64("row_hash").cast("decimal(38, 0)"))


def find_differences(client: Client, compared: Compared, expected: DataFrame, actual: DataFrame) -> KeyDifferences:
    """Join a table's rows by key, and return the number of rows and keys of each kind of difference.

    expected: columns of `expected_by_key`, of all tables.
    actual: columns of `actual_by_key`, of this one.
    """
    expected = expected.where(F.col("table_index") == compared.index)
    # For a key that only one side has, the numbers of the other side are NULL, and so is the comparison of the values.
    both = expected.join(actual, "key_hash", "full_outer").select(
        "key_hash",
        "key",
        *(F.coalesce(name, F.lit(0)).alias(name) for name in ("must", "may", "rows")),
        F.coalesce(F.col("values") != F.col("wanted"), F.lit(1).cast("boolean")).alias("differ"),
    )
    kinds = both.select(
        "key_hash",
        "key",
        "must",
        "rows",
        F.when(F.col("rows") == 0, F.col("must")).otherwise(F.lit(0)).alias("lost"),
        F.greatest(F.col("must") - F.col("rows"), F.lit(0)).alias("missing"),
        F.greatest(F.col("rows") - F.col("may"), F.lit(0)).alias("surplus"),
        F.when((F.col("rows") == F.col("must")) & (F.col("rows") == F.col("may")) & F.col("differ"), F.col("rows"))
        .otherwise(F.lit(0))
        .alias("changed"),
    ).persist()
    kind_names = ("lost", "missing", "surplus", "changed")
    try:
        sums = [
            *(F.sum(name).alias(name) for name in kind_names),
            F.sum("must").alias("must"),
            F.sum("rows").alias("rows"),
        ]
        keys = [F.count_if(F.col(name) > 0).alias(f"{name}_keys") for name in kind_names]
        total = kinds.agg(*sums, *keys).first()
        assert total is not None
        differing = {
            name: DifferingRows(total[name], total[f"{name}_keys"], _examples(client, compared, kinds, name))
            for name in kind_names
            if total[name]
        }
    finally:
        kinds.unpersist()
    # Without any row the sums are NULL.
    return KeyDifferences(expected=total["must"] or 0, rows=total["rows"] or 0, **differing)


def _examples(client: Client, compared: Compared, kinds: DataFrame, name: str) -> tuple[str, ...]:
    """Return a few keys with a difference of kind `name`, the same ones on each call.

    kinds: per key its hash, its text (NULL when no record has it), and the number of differing rows of each kind. The
    text of a key that no record has is read from the table.
    """
    rows = kinds.where(F.col(name) > 0).orderBy("key_hash").limit(_EXAMPLES).select("key_hash", "key").collect()
    unknown = [row["key_hash"] for row in rows if row["key"] is None]
    texts = {}
    if unknown:
        (_, text), (_, digest) = joined(compared.key), hashed(compared.key)
        query = texts_query(*compared.config.sink.full_table, digest, text)
        texts = dict(fetch(client, query, {"keys": unknown}))
    return tuple(readable_key(row["key"] or texts[row["key_hash"]]) for row in rows)
