"""Dead letters as they lie in ClickHouse: those of one pipeline, chosen by a condition.

A condition may use every column of the table, and `replayed`: whether the letter was sent again.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from glassflow_dagster.bookkeeping.dead_letters import LETTER_COLUMNS, LETTER_ORDER, DeadLetter, letters_query
from glassflow_dagster.bookkeeping.tables import require_bookkeeping_tables
from glassflow_dagster.clickhouse.client import connect
from glassflow_dagster.clickhouse.errors import TableProblem, explain
from glassflow_dagster.clickhouse.queries import failure, fetch
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.dead_letters.condition import WrongCondition, within_parentheses

ALL = "1"


@dataclass(frozen=True)
class DeadLetterStore:
    """The dead letters of one pipeline. Raises `TableProblem` when the bookkeeping tables do not exist yet."""

    client: Client
    database: str
    pipeline_id: str

    @classmethod
    def open(cls, config: PipelineConfig) -> "DeadLetterStore":
        """Open a pipeline's letters."""
        connection = config.sink.connection_params
        client = connect(connection)
        require_bookkeeping_tables(client, connection.database)
        return cls(client, connection.database, config.pipeline_id)

    @property
    def parameters(self) -> dict[str, Any]:
        """What every query on letters needs."""
        return {"pipeline": self.pipeline_id}

    def chosen(self, condition: str) -> str:
        """Write a query for the letters that a condition chooses: all columns, and `replayed`."""
        # The pipeline's letters are chosen first, and by themselves: no condition reaches those of others.
        return f"SELECT * FROM ({letters_query(self.database)}) WHERE {within_parentheses(condition)}"

    def count(self, condition: str = ALL) -> int:
        """Count the letters that a condition chooses."""
        return int(self.ask(f"SELECT count() FROM ({self.chosen(condition)})", condition)[0][0])

    def ask(self, query: str, condition: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Ask a query that holds a condition; raises `WrongCondition` where the server does not understand it."""
        try:
            return fetch(self.client, query, self.parameters | parameters)
        except TableProblem as error:
            raise self._about(condition, error) from error

    def read(self, condition: str, *, newest_first: bool = False, limit: int | None = None) -> Iterator[DeadLetter]:
        """Yield the letters that a condition chooses, in the order in which they were refused, or newest first."""
        direction = " DESC" if newest_first else ""
        query = (
            f"SELECT {', '.join(LETTER_COLUMNS)} FROM ({self.chosen(condition)}) "
            f"ORDER BY {', '.join(name + direction for name in LETTER_ORDER)}"
            + (f" LIMIT {limit}" if limit is not None else "")
        )
        try:
            with self.client.query_rows_stream(query, parameters=self.parameters) as rows:
                yield from (DeadLetter.from_row(row) for row in rows)
        except (ClickHouseError, OSError) as error:
            problem = failure(self.client, error)
            raise (self._about(condition, error) if isinstance(problem, TableProblem) else problem) from error

    def command(self, statement: str, condition: str) -> None:
        """Run a statement that holds a condition; raises what `ask` does."""
        try:
            self.client.command(statement, parameters=self.parameters)
        except (ClickHouseError, OSError) as error:
            problem = failure(self.client, error, statement)
            raise (self._about(condition, error) if isinstance(problem, TableProblem) else problem) from error

    @staticmethod
    def _about(condition: str, error: BaseException) -> WrongCondition:
        cause = error.__cause__ if isinstance(error, TableProblem) and error.__cause__ else error
        return WrongCondition(f"--where {condition!r}: {explain(cause)}")


def as_json(letter: DeadLetter) -> dict[str, Any]:
    """Give a letter as plain values; bytes as text where they are text, else as {"base64": ...}."""
    return {
        **{name: getattr(letter, name) for name in DeadLetter.__dataclass_fields__ if not name.endswith("_ms")},
        "batch_time": _iso(letter.batch_time_ms),
        "timestamp": _iso(letter.timestamp_ms),
        "key": readable(letter.key),
        "value": readable(letter.value),
        "headers": [[name, readable(value)] for name, value in letter.headers],
    }


def readable(content: bytes | None) -> str | dict[str, str] | None:
    """Give bytes as text where they are text."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
