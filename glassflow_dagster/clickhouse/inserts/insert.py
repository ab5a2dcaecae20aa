"""One block, one request, one token: an insert that may be repeated until its outcome is certain.

ClickHouse drops a block whose token the table knows, provided that the repetition is cut into the same blocks: so one
request is one block, and everything that decides about cutting is pinned and sent again unchanged.

A server that restarted while the outcome was open may know the token and not have the rows, or the other way round.
Then the rows are looked for in the table, and what is missing is sent, under tokens that follow each other until it is
there: a token that the server knows without the rows costs a request and writes nothing. Nothing of it has to be noted,
as each of these tokens is tried by every repetition in the same order.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.summary import QuerySummary

from glassflow_dagster.clickhouse.errors import (
    Answer,
    ClickHouseUnreachable,
    InsertRefused,
    RowsRefused,
    TooManyPartitions,
    UnclearAnswer,
    classify,
    error_code,
    explain,
    is_right_missing,
)
from glassflow_dagster.clickhouse.identifiers import full_name, quote_name
from glassflow_dagster.clickhouse.inserts.already_written import missing_rows
from glassflow_dagster.clickhouse.inserts.arrow_stream import to_ipc_stream
from glassflow_dagster.clickhouse.inserts.tokens import Token
from glassflow_dagster.clickhouse.layout import Layout, read_layout
from glassflow_dagster.clickhouse.queries import pauses
from glassflow_dagster.clickhouse.server_run import ServerRun, read_server_run, require_same_server

# ClickHouse refuses a block for more partitions than these. Source: its setting max_partitions_per_insert_block.
PARTITIONS_PER_BLOCK = 100

# No block may be cut at a size: ClickHouse's own limit, where the block is smaller.
_LEAST_BLOCK_LIMIT = 1_048_449

_PINNED: dict[str, Any] = {
    # The status is sent when the outcome is known; without it an error may come behind a 200.
    "wait_end_of_query": 1,
    # Asynchronous inserts, the default since 26.2, would gather blocks of other requests.
    "async_insert": 0,
    "wait_for_async_insert": 1,
    "insert_deduplicate": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    # A view that fails must fail the insert, or its target misses rows in silence.
    "materialized_views_ignore_errors": 0,
    "min_insert_block_size_rows": 0,
    "min_insert_block_size_bytes": 0,
    # The tokens that a batch makes are reckoned by it.
    "max_partitions_per_insert_block": PARTITIONS_PER_BLOCK,
    # All parts of a block are written before the first is put in place: with 0, the default, each partition is put in
    # place before the next is written, and one that throws leaves those before it, in the table and behind its views
    # (MergeTreeSink::consume() in ClickHouse's src/Storages/MergeTree/MergeTreeSink.cpp).
    "max_insert_delayed_streams_for_parallel_write": 1_000_000,
    # A NULL for a column that takes none is an error and never a silent default.
    "input_format_null_as_default": 0,
}

# Newer servers' own switches, which older ones would refuse as unknown.
_PINNED_WHERE_KNOWN: dict[str, Any] = {
    "deduplicate_insert": "enable",
    "max_insert_block_size_bytes": 0,
    "use_strict_insert_block_limits": 0,
    "throw_on_max_partitions_per_insert_block": 1,
    # A Distributed table answers when the shards have the rows, each row on the shard of its key; its own name for
    # that before 23.12 comes first.
    "insert_distributed_sync": 1,
    "distributed_foreground_insert": 1,
    "insert_distributed_one_random_shard": 0,
    "insert_shard_id": 0,
}

# A server in trouble may say anything once or twice.
_UNKNOWN_REPEATS = 3
# Tokens that are tried behind restarts: each of them needs a server that died in it.
_MOST_TOKENS = 20
_POLL_SECONDS = 0.2
# What the ids of requests begin with; behind it stands the token.
_QUERY_ID = "glassflow/"


class Fence(Protocol):
    """What keeps an older driver from writing."""

    def confirm(self, client: Client) -> None:
        """Raise `GlassflowError` when a newer driver has come; errors of the client are its own."""


@dataclass
class Inserter:
    """Inserts the blocks of one batch, or of one command, each until its outcome is certain.

    retry_seconds: how long an insert is tried. fence: of the driver that writes, asked before every attempt; None for
    what is no driver's. begun: the run of the server before which none of these blocks was sent; None where that is
    not known. repeated: whether some of them may have been sent by an earlier attempt at the batch.
    """

    client: Client
    retry_seconds: float
    report: Callable[[str], None]
    fence: Fence | None = None
    begun: ServerRun | None = None
    repeated: bool = False
    _layouts: dict[tuple[str, str], Layout] = field(default_factory=dict)
    # Codes on none of the lists that were found to be the rows' fault, by table.
    _learned: set[tuple[str, int | None]] = field(default_factory=set)

    def insert(
        self, database: str, table: str, block: pa.Table, token: Token, settings: Mapping[str, Any] | None = None
    ) -> None:
        """Insert a block under its token, and return when it is certain to be there once.

        `block` has the table's column names; its rows become one ClickHouse block, so the order and number of rows must
        be the same whenever the same token is used. settings: those that the table asks for, beside the usual ones.
        Raises what `Fence.confirm` raises, `RowsRefused` when values are at fault, `TooManyPartitions` and
        `InsertRefused` when the table does not take the block, and `ClickHouseUnreachable` when the outcome is still
        open after `retry_seconds`.
        """
        if block.num_rows:
            _Delivery(self, database, table, block, token, settings or {}).run()

    def has_restarted(self) -> None:
        """Take note that the server was started anew: no block is certain to be sent for the first time now."""
        self.repeated = True

    def layout(self, database: str, table: str) -> Layout:
        """Give a table's layout, read once; errors of the client are its own."""
        place = (database, table)
        if place not in self._layouts:
            self._layouts[place] = read_layout(self.client, database, table)
        return self._layouts[place]

    def classify(self, table: str, error: BaseException) -> Answer:
        """Do as `classify`; a code that was found to be the rows' fault is that from then on."""
        return Answer.ROW if (table, error_code(error)) in self._learned else classify(error)

    def learn(self, table: str, error: BaseException) -> None:
        """Take a code for the rows' fault from here on."""
        self._learned.add((table, error_code(error)))


class _Restarted(Exception):
    """The server that answers is not the one that an earlier attempt was sent to."""


class _Delivery:
    """One block on its way into a table."""

    def __init__(  # noqa: PLR0913, PLR0917 - what an insert is made of
        self,
        inserter: Inserter,
        database: str,
        table: str,
        block: pa.Table,
        token: Token,
        settings: Mapping[str, Any],
    ) -> None:
        self._settings = settings
        self._inserter, self._client = inserter, inserter.client
        self._database, self._table, self._block, self._token = database, table, block, token
        self._name = f"{database}.{table}"
        columns = ", ".join(map(quote_name, block.column_names))
        self._statement = f"INSERT INTO {full_name(database, table)} ({columns}) FORMAT ArrowStream"
        self._deadline = time.monotonic() + inserter.retry_seconds

    def run(self) -> None:
        try:
            self._send(self._block, self._token, self._inserter.begun, certain=not self._inserter.repeated)
        except _Restarted:
            self._inserter.has_restarted()
            self._settle()

    def _settle(self) -> None:
        """Look for the block's rows and send what is missing, until all of them are there."""
        self._inserter.report(
            f"{self._name}: ClickHouse was started anew while an insert was under way; looking for its rows "
            f"({self._token})"
        )
        for number in range(_MOST_TOKENS):
            try:
                run = self._patiently(lambda: read_server_run(self._client))
                missing = self._patiently(self._missing)
                token = self._token.again(number)
                if missing:
                    self._send(self._block.take(missing), token, run, certain=False)
                elif number == 0 and self._layout.has_views:
                    # The table drops it; a view that had not got it when the server died gets it now.
                    self._send(self._block, self._token, run, certain=False)
                    return
                else:
                    return
            except _Restarted:
                continue
        raise ClickHouseUnreachable(
            f"{self._name}: a block is not there after {_MOST_TOKENS} attempts behind restarts of ClickHouse "
            f"({self._token}); look after the server and start again, the block will be looked for"
        )

    @property
    def _layout(self) -> Layout:
        return self._inserter.layout(self._database, self._table)

    def _missing(self) -> list[int]:
        """Find the rows that are not in the table, once no request of an earlier attempt can still put them there."""
        while self._is_under_way():
            if time.monotonic() > self._deadline:
                raise ClickHouseUnreachable(f"{self._name}: an earlier insert of a block does not end ({self._token})")
            time.sleep(_POLL_SECONDS)
        return missing_rows(self._client, self._layout, self._block)

    def _is_under_way(self) -> bool:
        own = "SELECT count() FROM system.processes WHERE startsWith(query_id, {token:String})"
        try:
            found = self._client.query(own, parameters={"token": f"{_QUERY_ID}{self._token}"}).result_rows
        except ClickHouseError as error:
            if not is_right_missing(error):
                raise
            self._inserter.report(
                f"warning: whether an earlier insert into {self._name} is still under way cannot be seen, and it is "
                "taken for ended; grant SELECT ON system.processes to the pipeline's user"
            )
            return False
        return bool(found[0][0])

    def _patiently(self, ask: Callable[[], Any]) -> Any:
        """Ask until the server answers; errors that are not passing are raised as those of an insert."""
        for pause in pauses():
            try:
                return ask()
            except (ClickHouseError, OSError) as error:
                self._raise_unless_passing(error, pause, certain=False)
            time.sleep(pause)
        raise AssertionError("pauses have no end")

    def _send(self, block: pa.Table, token: Token, run: ServerRun | None, *, certain: bool) -> None:
        """Send a block until its outcome is certain; certain: no attempt before can have arrived.

        Raises `_Restarted` where the server that answers is not of this run, and an attempt before may have been sent
        to that one.
        """
        body = to_ipc_stream(block)
        settings = insert_settings(self._client, token, block.num_rows) | dict(self._settings)
        unknown: Counter[int | None] = Counter()
        for pause in pauses():
            try:
                if self._inserter.fence:
                    self._inserter.fence.confirm(self._client)
                if not certain:
                    self._require_same(run)
                _send(self._client, self._statement, body, settings)
                if not certain:
                    self._require_same(run)
            except (ClickHouseError, OSError) as error:
                self._raise_unless_passing(error, pause, certain=certain)
                unknown[error_code(error)] += 1
                if self._answer(error) is Answer.UNKNOWN and unknown[error_code(error)] >= _UNKNOWN_REPEATS:
                    self._judge(error, block, certain=certain)
                certain = False
            else:
                return
            time.sleep(pause)

    def _require_same(self, run: ServerRun | None) -> None:
        if not self._layout.forgets_with_its_server:
            return
        now = read_server_run(self._client)
        if run is not None:
            require_same_server(self._client, run, now, self._name)
            if now.is_same(run):
                return
        if not self._layout.changes_rows:
            raise _Restarted
        self._inserter.report(
            f"warning: ClickHouse was started anew while an insert into {self._name} was under way, and rows of a "
            f"{self._layout.engine} table cannot be looked for; whether they are there once its token decides "
            f"({self._token})"
        )

    def _answer(self, error: BaseException) -> Answer:
        return self._inserter.classify(self._name, error)

    def _raise_unless_passing(self, error: BaseException, pause: float, *, certain: bool) -> None:
        answer = self._answer(error)
        if answer is Answer.ROW:
            raise RowsRefused(self._name, explain(error), certain=certain) from error
        if answer is Answer.PARTITIONS:
            raise TooManyPartitions(
                f"{self._name} takes rows of {PARTITIONS_PER_BLOCK} partitions at once: {explain(error)}; choose a "
                "coarser PARTITION BY"
            ) from error
        if answer is Answer.TABLE:
            raise self._refused(error) from error
        if time.monotonic() + pause > self._deadline:
            raise ClickHouseUnreachable(
                f"ClickHouse did not confirm a block for {self._name}: {explain(error)}; "
                "look after the server and start again, the block will be repeated under its token"
            ) from error
        unknown = " (not known; taken for passing)" if answer is Answer.UNKNOWN else ""
        self._inserter.report(f"insert into {self._name}: {explain(error)}{unknown}; again in {pause:.1f} s")

    def _judge(self, error: BaseException, block: pa.Table, *, certain: bool) -> None:
        """Raise what an error that keeps coming means: a block without rows tells whether the table is at fault."""
        settings = insert_settings(self._client, self._token.empty(), 0)
        try:
            _send(self._client, self._statement, to_ipc_stream(block.slice(0, 0)), settings)
        except (ClickHouseError, OSError) as other:
            if error_code(other) == error_code(error):
                raise self._refused(error) from error
            return  # the server has other troubles, which the next attempt will meet
        self._inserter.learn(self._name, error)
        raise RowsRefused(self._name, explain(error), certain=certain) from error

    def _refused(self, error: BaseException) -> InsertRefused:
        return InsertRefused(
            f"{self._name} takes no rows: {explain(error)}; correct the table (or the user's rights) and start again, "
            "the batch will be replayed"
        )


def insert_settings(client: Client, token: Token, rows: int) -> dict[str, Any]:
    """Give the settings of an insert of one block under a token; they are the same for every repetition.

    But for the request's own id, by which an attempt that is still under way is found.
    """
    known = {name: value for name, value in _PINNED_WHERE_KNOWN.items() if name in client.server_settings}
    block_limit = {"max_insert_block_size": max(rows, _LEAST_BLOCK_LIMIT)}
    names = {"insert_deduplication_token": token.text, "query_id": f"{_QUERY_ID}{token}/{uuid.uuid4()}"}
    return {**_PINNED, **known, **block_limit, **names}


def _send(client: Client, statement: str, body: bytes, settings: dict[str, Any]) -> None:
    """Send one request. An insert that is done has nothing to say: whatever stands in the answer's body is an error."""
    said = client.command(statement, data=body, settings=settings)
    if not isinstance(said, QuerySummary):
        raise UnclearAnswer(str(said))
