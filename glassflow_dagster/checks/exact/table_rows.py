"""The table's rows, read by Spark's executors: a hash of the key and a hash of all compared values, computed by SQL."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.identifiers import full_name, own_alias

# Aliases beside the table's columns.
_KEY, _ROW = own_alias("key_hash"), own_alias("row_hash")

ROWS_SCHEMA = "key_hash STRING, row_hash STRING"


@dataclass(frozen=True)
class TableReader:
    """Reads slices of a table's rows, partitioned by the key's hash; a function for `mapInArrow`.

    key, row: SQL of the hashes.
    slices: the number of slices.
    """

    connection: ClickHouseConnection
    database: str
    table: str
    key: str
    row: str
    slices: int

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each slice whose number is in the first column of the input."""
        client = connect(self.connection)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with client.query_arrow_stream(self.query(number), use_strings=True) as stream:
                    for part in stream:
                        yield from pa.table(part).to_batches() if isinstance(part, pa.Table) else [part]

    def query(self, number: int) -> str:
        """Return the SELECT of one slice."""
        hashes = f"SELECT {self.key} AS {_KEY}, {self.row} AS {_ROW} FROM {full_name(self.database, self.table)}"
        return (
            f"SELECT {_KEY} AS key_hash, {_ROW} AS row_hash FROM ({hashes}) "
            f"WHERE cityHash64({_KEY}) % {self.slices} = {number}"
        )


def texts_query(database: str, table: str, key: str, text: str) -> str:
    """Return the SELECT of (hash, text) of the keys whose hash is in the parameter `keys`. key, text: SQL of both."""
    return (
        f"SELECT {key} AS {_KEY}, any({text}) FROM {full_name(database, table)} "
        f"WHERE {_KEY} IN {{keys:Array(String)}} GROUP BY {_KEY}"
    )


def actual_rows(spark: SparkSession, config: PipelineConfig, key: str, row: str) -> DataFrame:
    """Return the rows of a pipeline's table, read in one slice per core. key, row: SQL of the hashes.

    Columns out: key_hash STRING, row_hash STRING.
    """
    database, table = config.sink.full_table
    slices = spark.sparkContext.defaultParallelism
    reader = TableReader(config.sink.connection_params, database, table, key=key, row=row, slices=slices)
    # One partition for each slice number.
    numbers = spark.range(start=0, end=slices, step=1, numPartitions=slices)
    return numbers.mapInArrow(reader, ROWS_SCHEMA)
