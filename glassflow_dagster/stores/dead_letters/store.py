"""Access to the dead letters of one pipeline in ClickHouse, selected by a condition.

A condition is SQL on the columns of the dead letter table and on `replayed`: whether the dead letter was sent again.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.stores.bookkeeping.dead_letter_table import (
    DEAD_LETTER_COLUMNS,
    ORDER_BY_TIME,
    DeadLetter,
    dead_letters_query,
)
from glassflow_dagster.stores.bookkeeping.ledger import newest_checkpoint
from glassflow_dagster.stores.bookkeeping.tables import require_bookkeeping_tables
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.errors import TableProblem, explain
from glassflow_dagster.stores.clickhouse.queries import fetch, to_glassflow_error
from glassflow_dagster.stores.dead_letters.condition import WrongCondition, within_parentheses
from glassflow_dagster.stores.kafka.schema_values import NotDecodedError, UnusableSchemaError, ValueReader

ALL = "1"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class DeadLetterStore:
    """The dead letters of one pipeline."""

    client: Client
    database: str
    pipeline_id: str

    @classmethod
    def open(cls, config: PipelineConfig) -> "DeadLetterStore":
        """Connect to ClickHouse; raises `TableProblem` when the bookkeeping tables do not exist yet."""
        connection = config.sink.connection_params
        client = connect(connection)
        require_bookkeeping_tables(client, connection.database)
        return cls(client, connection.database, config.pipeline_id)

    @property
    def parameters(self) -> dict[str, Any]:
        """The query parameters of every query on dead letters."""
        return {"pipeline": self.pipeline_id}

    def query_for(self, condition: str) -> str:
        """Return the SELECT of the dead letters that fulfil a condition: all columns, and `replayed`."""
        # The pipeline is selected in a subquery, so that no condition can reach dead letters of other pipelines.
        return f"SELECT * FROM ({dead_letters_query(self.database)}) WHERE {within_parentheses(condition)}"

    def count(self, condition: str = ALL) -> int:
        """Return the number of dead letters that fulfil a condition."""
        return int(self.fetch(f"SELECT count() FROM ({self.query_for(condition)})", condition)[0][0])

    def waiting(self) -> str:
        """Return the condition of the dead letters that wait: of the newest checkpoint, and not replayed."""
        return f"NOT replayed AND checkpoint_id = '{newest_checkpoint(self.client, self.database, self.pipeline_id)}'"

    def fetch(self, query: str, condition: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query that contains a condition; raises `WrongCondition` when the server rejects it.

        condition: for the error's text only.
        parameters: further query parameters.
        Raises what `queries.fetch` raises.
        """
        try:
            return fetch(self.client, query, self.parameters | parameters)
        except TableProblem as error:
            raise self._condition_error(condition, error) from error

    def read(
        self,
        condition: str,
        *,
        newest_first: bool = False,
        limit: int | None = None,
        order: Sequence[str] = ORDER_BY_TIME,
    ) -> Iterator[DeadLetter]:
        """Yield the dead letters that fulfil a condition, in this order, or newest first.

        Raises what `fetch` raises.
        """
        direction = " DESC" if newest_first else ""
        query = (
            f"SELECT {', '.join(DEAD_LETTER_COLUMNS)} FROM ({self.query_for(condition)}) "
            f"ORDER BY {', '.join(name + direction for name in order)}"
            + (f" LIMIT {limit}" if limit is not None else "")
        )
        try:
            with self.client.query_rows_stream(query, parameters=self.parameters) as rows:
                yield from (DeadLetter.from_row(row) for row in rows)
        except (ClickHouseError, OSError) as error:
            problem = to_glassflow_error(self.client, error)
            raise (self._condition_error(condition, error) if isinstance(problem, TableProblem) else problem) from error

    def execute(self, statement: str, condition: str) -> None:
        """Run a statement that contains a condition; raises what `fetch` raises. condition: for the error's text."""
        try:
            self.client.command(statement, parameters=self.parameters)
        except (ClickHouseError, OSError) as error:
            problem = to_glassflow_error(self.client, error, statement)
            raise (self._condition_error(condition, error) if isinstance(problem, TableProblem) else problem) from error

    @staticmethod
    def _condition_error(condition: str, error: BaseException) -> WrongCondition:
        """Return an error that shows the condition and the server's message.

        error: the client's own, or the `TableProblem` that was raised from it.
        """
        cause = error.__cause__ if isinstance(error, TableProblem) and error.__cause__ else error
        return WrongCondition(f"--where {condition!r}: {explain(cause)}")


def as_json(dead_letter: DeadLetter, decoded: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a dead letter as values for JSON: times as `_iso` writes them; bytes as text if UTF-8, else Base64.

    decoded: what `decoded_value` has found, for the key of that name.
    """
    return {
        **{name: getattr(dead_letter, name) for name in DeadLetter.__dataclass_fields__ if not name.endswith("_ms")},
        "batch_time": _iso(dead_letter.batch_time_ms),
        "timestamp": _iso(dead_letter.timestamp_ms),
        "key": readable(dead_letter.key),
        "value": readable(dead_letter.value),
        "headers": [[name, readable(value)] for name, value in dead_letter.headers],
        **({} if decoded is None else {"decoded": decoded}),
    }


def decoded_value(dead_letter: DeadLetter, reader: ValueReader | None) -> dict[str, Any] | None:
    """Return the record of a value with a schema; None without a reader, and for a value that it cannot decode.

    Raises `GlassflowError` where the schema registry does not answer.
    """
    if reader is None:
        return None
    try:
        _, record = reader.decode(dead_letter.value, dead_letter.headers)
    except (NotDecodedError, UnusableSchemaError):
        # One dead letter's schema says nothing of those of others.
        return None
    return record


def readable(content: bytes | None) -> str | dict[str, str] | None:
    """Return bytes as text if they are UTF-8, else as {"base64": ...}."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _iso(milliseconds: int) -> str:
    """Return a time in ISO 8601; as `1700000000000000 ms` where it is after the year 9999, or before the year 1.

    Kafka takes any timestamp of a producer, as one in microseconds.
    """
    try:
        return (_EPOCH + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds")
    except OverflowError:
        return f"{milliseconds} ms"
