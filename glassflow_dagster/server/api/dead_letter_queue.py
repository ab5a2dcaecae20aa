"""A pipeline's dead letters as GlassFlow's queue: those that wait, that is of the newest checkpoint and not replayed.

Consuming does not delete: a position is kept in a file, up to which dead letters have been handed out. So an answer
that does not arrive loses nothing; `dlq/list` still has them, and they can be replayed.
"""

import base64
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.runtime.file_lock import locked_file
from glassflow_dagster.server.api import message_ids
from glassflow_dagster.server.api.catalog import iso
from glassflow_dagster.server.api.files import write_atomically
from glassflow_dagster.stores.bookkeeping.dead_letter_marks import count_purged
from glassflow_dagster.stores.bookkeeping.dead_letter_table import ORDER_BY_BATCH, DeadLetter
from glassflow_dagster.stores.bookkeeping.tables import has_dead_letters_table
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.identifiers import quote_text
from glassflow_dagster.stores.dead_letters.purge import purge
from glassflow_dagster.stores.dead_letters.store import ALL, DeadLetterStore

# Stage -> GlassFlow's component; any other stage is in its sink.
_COMPONENTS = {"decode": "ingestor", "filter": "dedup", "transform": "dedup", "dedup": "dedup", "join": "join"}
_SINK = "sink"
# Ids of one query: ClickHouse reads statements of up to 256 KiB, and a topic's name may have 249 characters.
IDS_AT_ONCE = 250


@dataclass(frozen=True)
class DeadLetterQueue:
    """The dead letters of a pipeline. folder: where the positions of consumers are kept."""

    config: PipelineConfig
    folder: Path

    def state(self) -> dict[str, Any]:
        """Return the numbers of dead letters, and the times of the last one and of the last consumer.

        total_messages: all that have not expired, with those that were replayed, purged and discarded.
        """
        consumed = self._consumed()
        last = iso(consumed.at) if consumed.at else None
        with self._store() as store:
            if store is None:
                return {
                    "last_received_at": None, "last_consumed_at": last, "total_messages": 0, "unconsumed_messages": 0,
                }  # fmt: skip
            unconsumed = f"countIf({store.waiting()} AND {consumed.condition})"
            query = f"SELECT count(), toUnixTimestamp64Milli(max(batch_time)), {unconsumed} FROM "
            [(count, newest, waiting)] = store.fetch(f"{query}({store.query_for(ALL)})", ALL)
            purged = count_purged(store.client, store.database, store.pipeline_id)
        return {
            "last_received_at": iso(newest / 1000) if count else None, "last_consumed_at": last,
            "total_messages": count + purged, "unconsumed_messages": waiting,
        }  # fmt: skip

    def consume(self, number: int) -> list[dict[str, Any]]:
        """Return the oldest dead letters that no consumer has got yet, and keep the position behind them."""
        with self._position_locked(), self._store() as store:
            if store is None:
                return []
            consumed = self._consumed()
            condition = f"{store.waiting()} AND {consumed.condition}"
            found = list(store.read(condition, limit=number, order=ORDER_BY_BATCH))
            if found:
                Consumed.now(message_ids.message_id(found[-1])).write(self._position)
        return [_answer(letter) for letter in found]

    def page(self, number: int, cursor: str | None, component: str | None, reason: str = "") -> dict[str, Any]:
        """Return dead letters that wait, the oldest first, behind the cursor; raises `ApiError` for a wrong one.

        reason: a part of their reasons, in any case; empty for all.
        """
        conditions = [message_ids.after(message_ids.parse(cursor))] if cursor else []
        conditions += [_of_component(component)] if component else []
        conditions += [f"positionCaseInsensitiveUTF8(reason, {quote_text(reason)}) > 0"] if reason else []
        with self._store() as store:
            if store is None:
                return {"messages": [], "has_more": False}
            condition = " AND ".join([store.waiting(), *conditions])
            found = list(store.read(condition, limit=number + 1, order=ORDER_BY_BATCH))
        page = [_answer(letter) for letter in found[:number]]
        if len(found) <= number:
            return {"messages": page, "has_more": False}
        return {"messages": page, "has_more": True, "next_cursor": page[-1]["message_id"]}

    def purge(self) -> None:
        """Delete all dead letters, replayed or not."""
        with self._store() as store:
            if store is not None:
                purge(store, ALL)

    def discard(self, ids: Sequence[str] | None) -> int:
        """Delete dead letters that wait, all of them for None; return their number. Raises `ApiError`."""
        keys = None if ids is None else [message_ids.parse(each) for each in ids]
        with self._store() as store:
            if store is None:
                return 0
            return sum(purge(store, f"{store.waiting()} AND {condition}") for condition in _conditions(keys))

    def replay_conditions(self, ids: Sequence[str] | None) -> tuple[list[str], list[str]]:
        """Return the conditions of dead letters to replay, and the ids of those that do not wait any more.

        ids: None for all. Raises `ApiError`.
        """
        keys = None if ids is None else [message_ids.parse(each) for each in ids]
        with self._store() as store:
            if store is None:
                return [], [*(ids or ())]
            if ids is None:
                # Not those that come while the request waits for others.
                waiting = store.waiting()
                [(count, newest)] = store.fetch(f"SELECT count(), max(batch_id) FROM ({store.query_for(waiting)})", ALL)
                return [f"{waiting} AND batch_id <= {newest}"] if count else [], []
            conditions = [f"{store.waiting()} AND {condition}" for condition in _conditions(keys)]
            there = {message_ids.message_id(letter) for condition in conditions for letter in store.read(condition)}
        return conditions if there else [], [each for each in ids if each not in there]

    @contextmanager
    def _store(self) -> Iterator[DeadLetterStore | None]:
        """Yield the store; None where no pipeline has written dead letters to this database yet."""
        try:
            store = DeadLetterStore.open(self.config)
        except TableProblem:
            # Tables of an earlier version have dead letters, too.
            connection = self.config.sink.connection_params
            with connect(connection) as client:
                if has_dead_letters_table(client, connection.database):
                    raise
            yield None
            return
        with store.client:
            yield store

    @property
    def _position(self) -> Path:
        return self.folder / f"{self.config.pipeline_id}.json"

    def _consumed(self) -> "Consumed":
        return Consumed.read(self._position)

    @contextmanager
    def _position_locked(self) -> Iterator[None]:
        """Hold the lock of the position, so that two consumers do not get the same dead letters."""
        file = self.folder / f".{self.config.pipeline_id}.lock"
        with locked_file(file, "make it writable", lambda: self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)):
            yield


@dataclass(frozen=True)
class Consumed:
    """How far consumers have come: the id of the last dead letter that one got, and when (since 1970)."""

    last: str = ""
    at: float = 0.0

    @classmethod
    def now(cls, last: str) -> "Consumed":
        """Return the position behind a dead letter."""
        return cls(last, time.time())

    @classmethod
    def read(cls, file: Path) -> "Consumed":
        """Return the position in a file; that before the first one where there is none."""
        try:
            return cls(**json.loads(file.read_text()))
        except FileNotFoundError:
            return cls()

    def write(self, file: Path) -> None:
        """Replace the file."""
        write_atomically(file, json.dumps({"last": self.last, "at": self.at}).encode(), 0o600)

    @property
    def condition(self) -> str:
        """The SQL condition of the dead letters behind the position."""
        return message_ids.after(message_ids.parse(self.last)) if self.last else ALL


def _conditions(keys: list[message_ids.Key] | None) -> Iterator[str]:
    """Yield conditions that together select these dead letters; None for all."""
    if keys is None:
        yield ALL
        return
    remaining = iter(keys)
    while part := list(islice(remaining, IDS_AT_ONCE)):
        yield message_ids.one_of(part)


def _of_component(component: str) -> str:
    """Return the SQL condition of the stages of GlassFlow's component."""
    stages = [stage for stage, name in _COMPONENTS.items() if name == component]
    if component == _SINK:
        return f"stage NOT IN ({', '.join(repr(stage) for stage in _COMPONENTS)})"
    return f"stage IN ({', '.join(repr(stage) for stage in stages)})" if stages else "0"


def _answer(letter: DeadLetter) -> dict[str, Any]:
    """Return GlassFlow's keys of a dead letter, and where the record is."""
    value = letter.value or b""
    try:
        text, encoding = value.decode(), {}
    except UnicodeDecodeError:
        text, encoding = base64.b64encode(value).decode(), {"original_message_encoding": "base64"}
    return {
        "message_id": message_ids.message_id(letter), "component": _COMPONENTS.get(letter.stage, _SINK),
        "error": letter.reason, "original_message": text, **encoding, "received_at": iso(letter.batch_time_ms / 1000),
        "stage": letter.stage, "topic": letter.topic, "partition": letter.partition, "offset": letter.offset,
        "attempt": letter.attempt,
    }  # fmt: skip
