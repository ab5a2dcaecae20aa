"""Tables that several definitions write to: each of them must say so, since their checks see the rows of all.

A table is known by its server's address, so two definitions may write tables of one name on different servers. With
GLASSFLOW_CLICKHOUSE_URL, which replaces all addresses, they write the same one.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.problems import Problem

_THIS_HOST = frozenset({"localhost", "127.0.0.1", "::1"})
_KEY = "sink.shared_table: true"


class TableAddress(NamedTuple):
    """A table on a server."""

    host: str
    port: int
    database: str
    table: str

    @classmethod
    def of(cls, connection: ClickHouseConnection, database: str, table: str) -> "TableAddress":
        """Return the address of a table that is reached through a connection."""
        host = connection.host.lower()
        return cls("localhost" if host in _THIS_HOST else host, connection.http, database, table)

    @property
    def name(self) -> str:
        """The table as `database.table`."""
        return f"{self.database}.{self.table}"


@dataclass(frozen=True)
class Writer:
    """A definition that writes to tables.

    shares: it says so.
    tables: the path in the definition of each.
    file: None for a definition that is no file.
    """

    pipeline_id: str
    file: Path | None
    shares: bool
    tables: Mapping[TableAddress, str]

    @classmethod
    def of(cls, config: PipelineConfig) -> "Writer":
        """Return the writer that a loaded definition is."""
        connection = config.sink.connection_params
        tables = {TableAddress.of(connection, *sink.full_table): sink.paths.table for sink in config.sink.by_table}
        return cls(config.pipeline_id, config.origin.file, config.sink.shared_table, tables)

    @property
    def text(self) -> str:
        """The pipeline as an error names it, with its file."""
        return f"pipeline {self.pipeline_id!r}" + (f" ({self.file})" if self.file else "")


def others_of(address: TableAddress, pipeline_id: str, writers: Iterable[Writer]) -> list[Writer]:
    """Return the writers of a table other than a pipeline itself, each pipeline once."""
    others = {writer.pipeline_id: writer for writer in writers if address in writer.tables}
    return [writer for name, writer in others.items() if name != pipeline_id]


def sharing_problems(writer: Writer, writers: Iterable[Writer], current: Writer | None = None) -> list[Problem]:
    """Return a problem for each table of a definition that others write to, unless all of them say that they share it.

    writers: all, which may have the definition itself.
    current: what an edit replaces. If that writes a table already, saying that it is shared is right, whatever the
        others say.
    """
    found = []
    all_writers = list(writers)
    for address, path in writer.tables.items():
        others = others_of(address, writer.pipeline_id, all_writers)
        if writer.shares and current is not None and address in current.tables:
            continue
        silent = [other for other in others if not other.shares]
        if others and (silent or not writer.shares):
            found.append(Problem(path, f"{address.name} {_text(writer, others, silent)}"))
    return found


def _text(writer: Writer, others: list[Writer], silent: list[Writer]) -> str:
    """Return what is wrong with a table that others write to, and what to do; follows its name."""
    named = " and ".join(other.text for other in silent or others)
    if writer.shares:
        which = "which does" if len(silent) == 1 else "which do"
        return f"is also written by {named}, {which} not say {_KEY}; write it there, or name another table"
    where = "here and there" if silent else "here, too"
    return (
        f"is also written by {named}; name another table, or write {_KEY} {where}: the checks then cannot compare the "
        "number of rows"
    )
