"""Dead letters as they lie in ClickHouse: those of one pipeline, chosen by a condition.

A condition may use every column of the table, and `replayed`: whether the letter was sent again.
"""

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from glassflow_dagster.clickhouse.client import connect
from glassflow_dagster.clickhouse.ddl import DEAD_LETTERS, LEDGER, PURGES, REPLAYS
from glassflow_dagster.clickhouse.errors import TableProblem, explain
from glassflow_dagster.clickhouse.identifiers import full_name
from glassflow_dagster.clickhouse.ledger import require_books
from glassflow_dagster.clickhouse.queries import failure, fetch
from glassflow_dagster.config.model import PipelineConfig
from glassflow_dagster.dead_letters.condition import WrongCondition, within_parentheses

ALL = "1"

_COLUMNS = (
    "toString(incarnation)", "batch_id", "toUnixTimestamp64Milli(batch_time)", "topic", "partition", "offset",
    "toUnixTimestamp64Milli(timestamp)", "base64Encode(key)", "base64Encode(value)",
    "arrayMap(h -> (base64Encode(h.1), base64Encode(h.2)), headers)", "stage", "reason", "attempt", "origin_topic",
    "origin_partition", "origin_offset", "passed_dedup", "toUnixTimestamp(expires_at)", "replayed",
)  # fmt: skip


@dataclass(frozen=True)
class Letter:
    """A record that could not go on, as it was read, and why. Times are in milliseconds, expiry in seconds."""

    incarnation: str
    batch_id: int
    batch_time_ms: int
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    stage: str
    reason: str
    attempt: int
    origin_topic: str
    origin_partition: int
    origin_offset: int
    passed_dedup: bool
    expires_at: int
    replayed: bool

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> "Letter":
        """Read a row of `_COLUMNS`."""
        values = dict(zip(cls.__dataclass_fields__, row, strict=True))
        headers = tuple((_bytes(name).decode(errors="replace"), _maybe(value)) for name, value in values["headers"])
        return cls(**{
            **values, "key": _maybe(values["key"]), "value": _maybe(values["value"]), "headers": headers,
            "passed_dedup": bool(values["passed_dedup"]), "replayed": bool(values["replayed"]),
        })  # fmt: skip


@dataclass(frozen=True)
class LetterBox:
    """The dead letters of one pipeline. Raises `TableProblem` when the books do not exist yet."""

    client: Client
    database: str
    pipeline_id: str

    @classmethod
    def open(cls, config: PipelineConfig) -> "LetterBox":
        """Open a pipeline's letters."""
        connection = config.sink.connection_params
        client = connect(connection)
        require_books(client, connection.database)
        return cls(client, connection.database, config.pipeline_id)

    @property
    def parameters(self) -> dict[str, Any]:
        """What every query on letters needs."""
        return {"pipeline": self.pipeline_id}

    def table(self, name: str) -> str:
        """Write the name of one of the books."""
        return full_name(self.database, name)

    def chosen(self, condition: str) -> str:
        """Write a query for the letters that a condition chooses: all columns, and `replayed`."""
        replays = (
            f"SELECT incarnation, topic, partition, offset, attempt FROM {self.table(REPLAYS)} "  # noqa: S608 - quoted
            "WHERE pipeline_id = {pipeline:String}"
        )
        purged = f"SELECT {PLACE} FROM {self.table(PURGES)} WHERE pipeline_id = {{pipeline:String}}"  # noqa: S608
        sent = "(incarnation, origin_topic, origin_partition, origin_offset, toUInt16(attempt + 1))"
        # The pipeline's letters are chosen first, and by themselves: no condition reaches those of others.
        return (
            f"SELECT * FROM (SELECT *, {sent} IN ({replays}) AS replayed FROM {self.table(DEAD_LETTERS)} "  # noqa: S608
            f"WHERE pipeline_id = {{pipeline:String}} AND expires_at > now() AND ({PLACE}) NOT IN ({purged})) "
            f"WHERE {within_parentheses(condition)}"
        )

    def count(self, condition: str = ALL) -> int:
        """Count the letters that a condition chooses."""
        return int(self.ask(f"SELECT count() FROM ({self.chosen(condition)})", condition)[0][0])  # noqa: S608

    def ask(self, query: str, condition: str, **parameters: Any) -> list[tuple[Any, ...]]:
        """Ask a query that holds a condition; raises `WrongCondition` where the server does not understand it."""
        try:
            return fetch(self.client, query, self.parameters | parameters)
        except TableProblem as error:
            raise self._about(condition, error) from error

    def read(self, condition: str, *, newest_first: bool = False, limit: int | None = None) -> Iterator[Letter]:
        """Yield the letters that a condition chooses, in the order in which they were refused, or newest first."""
        order = ("batch_time", "topic", "partition", "offset")
        direction = " DESC" if newest_first else ""
        query = (
            f"SELECT {', '.join(_COLUMNS)} FROM ({self.chosen(condition)}) "  # noqa: S608 - quoted
            f"ORDER BY {', '.join(name + direction for name in order)}"
            + (f" LIMIT {limit}" if limit is not None else "")
        )
        try:
            with self.client.query_rows_stream(query, parameters=self.parameters) as rows:
                yield from (Letter.from_row(row) for row in rows)
        except (ClickHouseError, OSError) as error:
            problem = failure(self.client, error)
            raise (self._about(condition, error) if isinstance(problem, TableProblem) else problem) from error

    def newest_incarnation(self) -> str:
        """Give the checkpoint that wrote last; an older one's records were read anew by it."""
        query = f"SELECT toString(argMax(incarnation, batch_time)) FROM {self.table(LEDGER)} "  # noqa: S608 - quoted
        return str(fetch(self.client, query + "WHERE pipeline_id = {pipeline:String}", self.parameters)[0][0])

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


# What tells one letter of a pipeline from all others.
PLACE = "incarnation, topic, partition, offset"


def as_json(letter: Letter) -> dict[str, Any]:
    """Give a letter as plain values; bytes as text where they are text, else as {"base64": ...}."""
    return {
        **{name: getattr(letter, name) for name in Letter.__dataclass_fields__ if not name.endswith("_ms")},
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


def _maybe(text: str | None) -> bytes | None:
    return None if text is None else _bytes(text)


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
