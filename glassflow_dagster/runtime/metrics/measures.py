"""What is measured while records are delivered: how old they are when they become rows, and their inserts.

Workers measure a partition, the driver adds the partitions up. This module runs inside Spark's Python workers.
"""

from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, Field

from glassflow_dagster.runtime.metrics.histogram import Histogram

if TYPE_CHECKING:
    from numpy.typing import NDArray

# From the delay of a small batch (`max_delay_time` of 100 ms and less) to a day of backlog.
_AGE_SECONDS = (0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0, 86400.0)
# An insert of 1,000 rows takes some 10 ms; one is repeated for 5 minutes.
_REQUEST_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
# A block has at most `max_batch_size` rows and 64 MiB.
_ROWS = (1.0, 10.0, 100.0, 1_000.0, 5_000.0, 10_000.0, 20_000.0, 50_000.0, 100_000.0, 200_000.0)
_BYTES = tuple(float(1024 * 4**power) for power in range(9))
# A batch takes 0.2 s and more; one that waits for a server takes up to five minutes.
_BATCH_SECONDS = (*_REQUEST_SECONDS, 120.0, 300.0)

# The code of an attempt to which the server gave no answer.
NO_ANSWER = "none"


def event_ages() -> Histogram:
    """Return an empty histogram of records' ages in seconds."""
    return Histogram(bounds=_AGE_SECONDS)


def batch_durations() -> Histogram:
    """Return an empty histogram of seconds that a phase of a batch takes."""
    return Histogram(bounds=_BATCH_SECONDS)


def _request_durations() -> Histogram:
    return Histogram(bounds=_REQUEST_SECONDS)


def _row_numbers() -> Histogram:
    return Histogram(bounds=_ROWS)


def _byte_numbers() -> Histogram:
    return Histogram(bounds=_BYTES)


class InsertMeasures(BaseModel):
    """The insert requests into one table that succeeded, and the repeated ones by ClickHouse's error code.

    bytes: of the request's body, before compression.
    """

    seconds: Histogram = Field(default_factory=_request_durations)
    rows: Histogram = Field(default_factory=_row_numbers)
    bytes: Histogram = Field(default_factory=_byte_numbers)
    retries: dict[str, int] = {}

    def __add__(self, other: "InsertMeasures") -> "InsertMeasures":
        """Return the measures of both."""
        codes = self.retries.keys() | other.retries.keys()
        return InsertMeasures(
            seconds=self.seconds + other.seconds,
            rows=self.rows + other.rows,
            bytes=self.bytes + other.bytes,
            retries={code: self.retries.get(code, 0) + other.retries.get(code, 0) for code in codes},
        )


class Measures(BaseModel):
    """The measures of a partition, a batch, or all batches of a driver.

    event_to_row: seconds from a record's timestamp in Kafka to the answer of the insert that wrote its row; of a join
        it is empty.
    inserts: by table, `database.table`.
    """

    event_to_row: Histogram = Field(default_factory=event_ages)
    inserts: dict[str, InsertMeasures] = {}

    def add_rows(self, ages: "NDArray[Any]") -> None:
        """Count rows that were inserted. ages: the seconds since their records' timestamps."""
        self.event_to_row.observe_all(ages)

    def add_insert(self, table: str, seconds: float, rows: int, size: int) -> None:
        """Count an insert request that succeeded. size: its bytes."""
        insert = self.inserts.setdefault(table, InsertMeasures())
        insert.seconds.observe(seconds)
        insert.rows.observe(rows)
        insert.bytes.observe(size)

    def add_retry(self, table: str, code: int | None) -> None:
        """Count an attempt that is repeated. code: ClickHouse's error code, None when it gave no answer."""
        retries = self.inserts.setdefault(table, InsertMeasures()).retries
        name = NO_ANSWER if code is None else str(code)
        retries[name] = retries.get(name, 0) + 1

    def __add__(self, other: "Measures") -> "Measures":
        """Return the measures of both."""
        empty = InsertMeasures()
        tables = self.inserts.keys() | other.inserts.keys()
        return Measures(
            event_to_row=self.event_to_row + other.event_to_row,
            inserts={table: self.inserts.get(table, empty) + other.inserts.get(table, empty) for table in tables},
        )
