"""The ClickHouse engine of the chdb wheel, one per process and data folder.

A handle on it is cheap (0.1 ms) and carries what belongs to one conversation: database, settings, query
parameters, temporary tables. So each request gets a fresh handle and nothing has to be undone afterwards; a
session keeps its handle, and there the request's own settings are put back.
"""

import os
import re
import tempfile
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import IO, Any

from glassflow_dagster.local.clickhouse_front.errors import (
    SESSION_IS_LOCKED,
    SESSION_NOT_FOUND,
    SYNTAX_ERROR,
    UNKNOWN_SETTING,
    EngineError,
    engine_error,
)
from glassflow_dagster.local.clickhouse_front.statement import Insert

# The binding itself: chdb's own wrapper around it cannot tell a statement's class, and puts its words before errors.
_CHDB = import_module("chdb._chdb")

# Formats whose pieces, one after the other, are the whole: no header, no footer, nothing counted over all rows.
STREAMABLE_FORMATS = frozenset(
    {
        "Native",
        "TabSeparated",
        "TSV",
        "TabSeparatedRaw",
        "TSVRaw",
        "CSV",
        "RowBinary",
        "JSONEachRow",
        "JSONCompactEachRow",
    }
)

_SETTING_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)*")


@dataclass(frozen=True)
class Conversation:
    """What a request brings besides its statement. `session` is None for none."""

    database: str | None
    settings: Mapping[str, str]
    parameters: Mapping[str, str]
    read_only: bool
    session: str | None = None
    session_seconds: float = 60.0
    session_must_exist: bool = False


@dataclass(frozen=True)
class Counts:
    """Rows and bytes of a finished statement, as the summary header gives them."""

    rows_read: int = 0
    bytes_read: int = 0
    rows_written: int = 0
    bytes_written: int = 0


@dataclass
class _Session:
    handle: Any
    lock: threading.Lock = field(default_factory=threading.Lock)
    expires: float = 0.0


class Engine:
    """The engine on one data folder. Thread-safe; blocking, so to be called from worker threads.

    Raises RuntimeError when another process has the folder open.
    """

    def __init__(self, folder: Path) -> None:
        self._path = str(folder)
        # The engine lives as long as a handle does.
        self._anchor = _CHDB.connect(self._path)
        self._sessions: dict[str, _Session] = {}
        self._sessions_lock = threading.Lock()
        with _errors():
            self.version, self.time_zone = _text(self._anchor, "SELECT version(), timezone()").split("\t")

    def close(self) -> None:
        """Close the engine; what was written is on disk."""
        with self._sessions_lock:
            for session in self._sessions.values():
                session.handle.close()
            self._sessions.clear()
        self._anchor.close()

    @contextmanager
    def handle(self, conversation: Conversation) -> Iterator["Handle"]:
        """A handle with the conversation's database, settings and parameters set.

        Raises EngineError for an unknown database or setting, and for a session in use.
        """
        if conversation.session is None:
            raw = _CHDB.connect(self._path)
            try:
                with _errors():
                    raw.query("SET implicit_select = 0")  # chdb's own default lets `1 + 1` be a statement
                    _begin(raw, conversation)
                yield Handle(raw)
            finally:
                raw.close()
        else:
            with self._session(conversation) as raw:
                yield Handle(raw)

    @contextmanager
    def _session(self, conversation: Conversation) -> Iterator[Any]:
        name = conversation.session or ""
        with self._sessions_lock:
            self._end_idle_sessions()
            session = self._sessions.get(name)
            if session is None and conversation.session_must_exist:
                raise engine_error(SESSION_NOT_FOUND, f"Session {name} not found. (SESSION_NOT_FOUND)")
            if session is None:
                session = self._sessions[name] = _Session(_CHDB.connect(self._path))
                session.handle.query("SET implicit_select = 0")
            if not session.lock.acquire(blocking=False):
                raise engine_error(
                    SESSION_IS_LOCKED, f"Session {name} is locked by a concurrent client. (SESSION_IS_LOCKED)"
                )
        try:
            names = [*conversation.settings, *(["readonly"] if conversation.read_only else [])]
            before = _settings(session.handle, names)
            database = _text(session.handle, "SELECT currentDatabase()")
            try:
                with _errors():
                    _begin(session.handle, conversation)
                yield session.handle
            finally:
                _restore(session.handle, before)
                if conversation.database:
                    session.handle.query(f"USE {_identifier(database)}")
        finally:
            session.expires = time.monotonic() + conversation.session_seconds
            session.lock.release()

    def _end_idle_sessions(self) -> None:
        now = time.monotonic()
        idle = [name for name, session in self._sessions.items() if session.expires < now and not session.lock.locked()]
        for name in idle:
            self._sessions.pop(name).handle.close()


class Handle:
    """One conversation with the engine; one statement at a time."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def returns_rows(self, sql: str) -> bool:
        """Whether the statement answers with a result set. Raises EngineError for several statements in one."""
        found = self._raw.classify_query(sql)
        if found["statement_count"] > 1:
            raise engine_error(SYNTAX_ERROR, "Syntax error (Multi-statements are not allowed). (SYNTAX_ERROR)")
        return bool(found["query_class"] == _CHDB.query_class.READ_ONLY)

    def run(self, sql: str, output_format: str) -> tuple[bytes, Counts]:
        """The whole result, and what the statement read and wrote. `sql` has no FORMAT clause."""
        with _errors():
            result = self._raw.query(sql, output_format)
            return bytes(result.bytes()), Counts(
                rows_read=result.storage_rows_read(),
                bytes_read=result.storage_bytes_read(),
                rows_written=result.rows_written(),
                bytes_written=result.bytes_written(),
            )

    def stream(self, sql: str, output_format: str) -> Generator[bytes, None, None]:
        """The result in pieces of a few hundred kB.

        `sql` is a SELECT without a FORMAT clause, the format one of STREAMABLE_FORMATS.
        """
        with _errors():
            pieces = self._raw.send_query(sql, output_format)
        finished = False
        try:
            while True:
                with _errors():
                    piece = self._raw.streaming_fetch_result(pieces)
                if piece is None or not piece.rows_read():
                    finished = True
                    return
                yield bytes(piece.bytes())
        finally:
            if not finished:
                with suppress(RuntimeError):  # a query that has failed is over already
                    self._raw.streaming_cancel_query(pieces)

    def insert(self, statement: Insert, data: Iterable[bytes]) -> Counts:
        """Insert what follows the statement: its own first bytes, then `data` in pieces.

        The data goes by way of a file: chdb's own streaming insert keeps errors that come with writing a block (a
        violated constraint, too many partitions, a failing view) to itself.
        """
        with _data_file() as (file, path):
            for piece in chain([statement.data], data):
                file.write(piece)
            file.flush()
            sql = (
                f"{statement.header} FROM INFILE {_literal(path)} COMPRESSION 'none' {statement.settings} "
                f"FORMAT {statement.data_format}"
            )
            with _errors():
                result = self._raw.query(sql)
        return Counts(rows_written=result.rows_written(), bytes_written=result.bytes_written())


@contextmanager
def _data_file() -> Iterator[tuple[IO[bytes], str]]:
    """A file for one insert's data and the name to open it by; in memory, where the system has such files."""
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("insert"), "wb") as file:
            yield file, f"/proc/self/fd/{file.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as named:
            yield named.file, named.name


@contextmanager
def _errors() -> Iterator[None]:
    """Every error of the engine comes as a RuntimeError with ClickHouse's text."""
    try:
        yield
    except RuntimeError as error:
        raise EngineError(str(error)) from error


def _begin(raw: Any, conversation: Conversation) -> None:
    if conversation.database:
        raw.query(f"USE {_identifier(conversation.database)}")
    settings = {**conversation.settings, **{f"param_{name}": value for name, value in conversation.parameters.items()}}
    for name in settings:
        if not _SETTING_NAME.fullmatch(name):
            raise engine_error(UNKNOWN_SETTING, f"Unknown setting '{name}'. (UNKNOWN_SETTING)")
    if settings:
        raw.query("SET " + ", ".join(f"{name} = {_literal(value)}" for name, value in settings.items()))
    if conversation.read_only:
        raw.query("SET readonly = 2")  # after the others, which it would refuse


def _settings(raw: Any, names: Iterable[str]) -> dict[str, str | None]:
    """The session's own value of each of these settings; None where it has the default."""
    listed = ", ".join(_literal(name) for name in names)
    if not listed:
        return {}
    rows = _text(raw, f"SELECT name, value, changed FROM system.settings WHERE name IN ({listed})")  # noqa: S608
    split = (row.split("\t") for row in rows.splitlines())
    return {name: value if changed == "1" else None for name, value, changed in split}


def _restore(raw: Any, settings: Mapping[str, str | None]) -> None:
    if "readonly" in settings:
        raw.query("SET readonly = 0")
    # Values come out of the text format escaped as a literal wants them.
    for name, value in settings.items():
        raw.query(f"SET {name} = " + ("DEFAULT" if value is None else f"'{value}'"))


def _text(raw: Any, sql: str) -> str:
    return bytes(raw.query(sql, "TabSeparated").bytes()).decode().removesuffix("\n")


def _literal(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _identifier(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"
