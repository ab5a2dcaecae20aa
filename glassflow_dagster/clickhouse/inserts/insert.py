"""Inserts with exactly-once effect: one block, one request, one token, repeated until the outcome is certain.

ClickHouse drops a block whose token the table knows, provided that the repeated request is split into the same
blocks. So one request is one block, and all settings that influence the division are fixed.

A server that restarted while the outcome was uncertain may know the token without having the rows, or the other way
round. Then the table is searched for the rows, and missing ones are sent under a sequence of tokens until they are in
the table: a token that the server knows without the rows costs one request and writes nothing. The sequence needs no
record, as every repetition tries the same tokens in the same order.

A replica may confirm a repetition whose rows are lost: the block is on a replica that has died, this replica waits for
the quorum, and takes its end for success although the quorum has failed (waitForQuorum() in ClickHouse's
src/Storages/MergeTree/ReplicatedMergeTreeSink.cpp). A quorum fails together with its token, so a repetition counts as
certain when it is confirmed twice in succession: the second request finds the token, or writes the rows.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError
from clickhouse_connect.driver.summary import QuerySummary

from glassflow_dagster.clickhouse.errors import (
    ClickHouseUnreachable,
    ErrorInResponseBody,
    ErrorKind,
    InsertRefused,
    RowsRefused,
    TooManyPartitions,
    classify,
    error_code,
    explain,
    is_right_missing,
)
from glassflow_dagster.clickhouse.identifiers import full_name, quote_name
from glassflow_dagster.clickhouse.inserts.already_written import missing_rows
from glassflow_dagster.clickhouse.inserts.block import Block
from glassflow_dagster.clickhouse.inserts.tokens import Token
from glassflow_dagster.clickhouse.layout import Layout, is_replicated, read_layout
from glassflow_dagster.clickhouse.queries import backoff_pauses
from glassflow_dagster.clickhouse.server_run import ServerRun, read_server_run, require_same_server
from glassflow_dagster.metrics.measures import Measures

# ClickHouse rejects a block with rows of more partitions than this (its setting max_partitions_per_insert_block).
PARTITIONS_PER_BLOCK = 100

# max_insert_block_size is never below this, ClickHouse's default; a larger block raises it to its own row count.
_LEAST_BLOCK_LIMIT = 1_048_449

_PINNED: dict[str, Any] = {
    # Send the HTTP status only when the outcome is known; otherwise an error may follow a 200.
    "wait_end_of_query": 1,
    # Asynchronous inserts, the default since 26.2, would merge blocks of several requests.
    "async_insert": 0,
    "wait_for_async_insert": 1,
    "insert_deduplicate": 1,
    "deduplicate_blocks_in_dependent_materialized_views": 1,
    # A view that fails must fail the insert; otherwise the view's target silently lacks rows.
    "materialized_views_ignore_errors": 0,
    "min_insert_block_size_rows": 0,
    "min_insert_block_size_bytes": 0,
    # The number of tokens that a batch uses is calculated from this limit.
    "max_partitions_per_insert_block": PARTITIONS_PER_BLOCK,
    # Write all parts of a block before the first is committed. With 0, the default, each partition is committed before
    # the next is written, and an error leaves the earlier partitions in the table and in the targets of its views
    # (MergeTreeSink::consume() in ClickHouse's src/Storages/MergeTree/MergeTreeSink.cpp).
    "max_insert_delayed_streams_for_parallel_write": 1_000_000,
    # A NULL for a column that takes none is an error and never a silent default.
    "input_format_null_as_default": 0,
    # Names and types in a block are compared with the table's.
    "input_format_with_names_use_header": 1,
    "input_format_with_types_use_header": 1,
}

# Settings of newer servers, which older ones would reject as unknown.
_PINNED_WHERE_KNOWN: dict[str, Any] = {
    "deduplicate_insert": "enable",
    "max_insert_block_size_bytes": 0,
    "input_format_max_block_size_bytes": 0,
    "input_format_max_block_wait_ms": 0,
    # A body that ends early is an error, and its rows are not inserted.
    "input_format_connection_handling": 0,
    # In RowBinary a type is its name, and a JSON value its text.
    "input_format_binary_decode_types_in_binary_format": 0,
    "input_format_binary_read_json_as_string": 1,
    "use_strict_insert_block_limits": 0,
    "throw_on_max_partitions_per_insert_block": 1,
    # A Distributed table answers when the shards have the rows, each row on the shard of its key. The first of the two
    # names is that of versions before 23.12.
    "insert_distributed_sync": 1,
    "distributed_foreground_insert": 1,
    "insert_distributed_one_random_shard": 0,
    "insert_shard_id": 0,
}

# An unknown error that occurs fewer times is taken for transient.
_UNKNOWN_REPEATS = 3
# Number of tokens to try after restarts: each further one needs a server that died during the one before.
_MOST_TOKENS = 20
_POLL_SECONDS = 0.2
# Query ids are this prefix, the token and a UUID.
_QUERY_ID_PREFIX = "glassflow/"


class Fence(Protocol):
    """Protection against writes of an outdated driver; implemented by `bookkeeping.fencing.Epoch`."""

    def require_newest_cached(self, client: Client) -> None:
        """Raise `GlassflowError` when a newer driver has started; raises the client's own errors as well."""


@dataclass
class Inserter:
    """Inserts the blocks of one batch, or of one command, each repeated until its outcome is certain.

    retry_seconds: the time limit of one insert. fence: checked before every attempt; None when no driver writes. begun:
    the server's run when the batch began; none of its blocks was sent to an earlier run; None when unknown. repeated:
    whether an earlier attempt at the batch may have sent some of the blocks. measures: of its requests.
    """

    client: Client
    retry_seconds: float
    report: Callable[[str], None]
    fence: Fence | None = None
    begun: ServerRun | None = None
    repeated: bool = False
    measures: Measures = field(default_factory=Measures)
    _layouts: dict[tuple[str, str], Layout] = field(default_factory=dict)
    # (table, error code) of unknown errors that proved to be caused by rows.
    _row_errors: set[tuple[str, int | None]] = field(default_factory=set)

    def insert(
        self, database: str, table: str, block: Block, token: Token, settings: Mapping[str, Any] | None = None
    ) -> None:
        """Insert a block under its token, and return when its rows are certain to be in the table once.

        block: has the table's column names. Its rows become one ClickHouse block, so the order and number of rows must
        be the same whenever the same token is used. settings: extra insert settings. An empty block is not sent.

        Raises what `Fence.require_newest_cached` raises, `RowsRefused` when values are at fault, `TooManyPartitions`
        and `InsertRefused` when the table does not take the block, and `ClickHouseUnreachable` when the outcome is
        still uncertain after `retry_seconds`.
        """
        if block.num_rows:
            _BlockInsert(self, database, table, block, token, settings or {}).run()

    def note_restart(self) -> None:
        """Record that the server restarted: from now on no block counts as sent for the first time."""
        self.repeated = True

    def layout(self, database: str, table: str) -> Layout:
        """Return a table's layout, which is read once; raises the client's own errors."""
        table_id = (database, table)
        if table_id not in self._layouts:
            self._layouts[table_id] = read_layout(self.client, database, table)
        return self._layouts[table_id]

    def classify(self, table: str, error: BaseException) -> ErrorKind:
        """Return the kind of an insert's error; codes passed to `add_row_error` count as `ErrorKind.ROW`."""
        return ErrorKind.ROW if (table, error_code(error)) in self._row_errors else classify(error)

    def add_row_error(self, table: str, error: BaseException) -> None:
        """Classify an error's code as caused by rows from now on, for this table."""
        self._row_errors.add((table, error_code(error)))


class _Restarted(Exception):
    """The server has restarted since an earlier attempt, so the block's token is unreliable."""


class _BlockInsert:
    """The insert of one block, from the first attempt until its outcome is certain.

    In its methods, `is_first` says that no earlier attempt can have inserted the block.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of an insert
        self,
        inserter: Inserter,
        database: str,
        table: str,
        block: Block,
        token: Token,
        settings: Mapping[str, Any],
    ) -> None:
        """Prepare the insert; its time limit begins now. settings: extra insert settings."""
        self._settings = settings
        self._inserter, self._client = inserter, inserter.client
        self._database, self._table, self._block, self._token = database, table, block, token
        self._name = f"{database}.{table}"
        columns = ", ".join(map(quote_name, block.column_names))
        self._statement = f"INSERT INTO {full_name(database, table)} ({columns}) FORMAT {block.format}"
        self._deadline = time.monotonic() + inserter.retry_seconds

    def run(self) -> None:
        """Send the block; after a restart of the server, find and send the rows that are missing.

        Nothing is certain in a repeated batch: the driver that began it may have inserted the block. `begun` is the
        run of the server (from one start to the next) in which the batch began.
        """
        try:
            self._send_until_certain(
                self._block, self._token, self._inserter.begun, is_first=not self._inserter.repeated
            )
        except _Restarted:
            self._inserter.note_restart()
            self._send_missing_rows()

    def _send_missing_rows(self) -> None:
        """Search the table for the block's rows and send missing ones, repeated until no row is missing.

        Each pass uses the next token of `Token.again`, since the server may know the last one without the rows. Another
        restart of the server begins the next pass; after `_MOST_TOKENS` passes `ClickHouseUnreachable` is raised.

        A table with views first gets the whole block under its own token, and drops the partitions that it has: a view
        keeps one block per token, so after some of the partitions it would take no others.
        """
        self._inserter.report(
            f"{self._name}: ClickHouse restarted during an insert; searching the table for the insert's rows "
            f"({self._token})"
        )
        views_have_block = not self._layout.has_views
        for attempt in range(_MOST_TOKENS):
            try:
                run = self._retry(lambda: read_server_run(self._client))
                missing = self._retry(self._find_missing_rows)
                if not views_have_block:
                    self._send_until_certain(self._block, self._token, run, is_first=False)
                    views_have_block = True
                elif missing:
                    self._warn_of_views(len(missing))
                    # The next pass checks that the rows have arrived.
                    token = self._token.again(attempt)
                    self._send_until_certain(self._block.take(missing), token, run, is_first=False)
                else:
                    return
            except _Restarted:
                continue
        raise ClickHouseUnreachable(
            f"{self._name}: a block is still missing after {_MOST_TOKENS} attempts, each after a restart of "
            f"ClickHouse ({self._token}); check the server, then start the pipeline again; it first searches the "
            "table for the block's rows"
        )

    def _warn_of_views(self, rows: int) -> None:
        """Report that views get rows of the block once more; their table knew the block's token without the rows."""
        if self._layout.has_views:
            self._inserter.report(
                f"warning: the materialized views of {self._name} may have {rows} rows twice, because ClickHouse "
                f"restarted when it had stored an insert's token and not yet its rows ({self._token}); compare the "
                "views with the table"
            )

    @property
    def _layout(self) -> Layout:
        return self._inserter.layout(self._database, self._table)

    def _find_missing_rows(self) -> list[int]:
        """Wait until no earlier request of this block is running; return the row numbers missing in the table."""
        while self._is_request_running():
            if time.monotonic() > self._deadline:
                raise ClickHouseUnreachable(
                    f"{self._name}: an earlier insert of a block is still running ({self._token})"
                )
            time.sleep(_POLL_SECONDS)
        return missing_rows(self._client, self._layout, self._block)

    def _is_request_running(self) -> bool:
        """Return True while the server runs a request of this block; False with a warning when that is not visible."""
        own_requests = "SELECT count() FROM system.processes WHERE startsWith(query_id, {token:String})"
        try:
            result_rows = self._client.query(
                own_requests, parameters={"token": f"{_QUERY_ID_PREFIX}{self._token}"}
            ).result_rows
        except ClickHouseError as error:
            if not is_right_missing(error):
                raise
            self._inserter.report(
                f"warning: cannot see whether an earlier insert into {self._name} is still running; assuming that it "
                "has ended; grant SELECT ON system.processes to the pipeline's user"
            )
            return False
        return bool(result_rows[0][0])

    def _retry(self, query: Callable[[], Any]) -> Any:
        """Return the result of `query`, repeated on transient errors until the insert's deadline.

        Raises other errors as those of an insert (see `_raise_unless_transient`).
        """
        for pause in backoff_pauses():
            try:
                return query()
            except (ClickHouseError, OSError) as error:
                self._raise_unless_transient(error, pause, is_first=False)
            time.sleep(pause)
        raise AssertionError("the pauses have no end")

    def _send_until_certain(self, block: Block, token: Token, run: ServerRun | None, *, is_first: bool) -> None:
        """Send a block under a token until its outcome is certain.

        run: the server's run during which all earlier attempts were sent, None when unknown. When there may have been
        earlier attempts (not `is_first`), the run is checked before and after each request: a token is reliable within
        one run only. Raises `_Restarted` when the run has changed. A replicated table then gets the block until that is
        confirmed twice in succession. An error of kind UNKNOWN counts as transient until its code has occurred
        `_UNKNOWN_REPEATS` times.
        """
        body = block.body()
        settings = insert_settings(self._client, token, block.num_rows) | dict(self._settings)
        occurrences: Counter[int | None] = Counter()  # of each error code
        is_confirmed = False
        for pause in backoff_pauses():
            try:
                if self._inserter.fence:
                    self._inserter.fence.require_newest_cached(self._client)
                if not is_first:
                    self._require_same_run(run)
                self._send_measured(body, settings, block.num_rows)
                if not is_first:
                    self._require_same_run(run)
                if is_first or is_confirmed or not is_replicated(self._layout.engine):
                    return
                is_confirmed = True
                continue
            except (ClickHouseError, OSError) as error:
                self._raise_unless_transient(error, pause, is_first=is_first)
                occurrences[error_code(error)] += 1
                if self._kind_of(error) is ErrorKind.UNKNOWN and occurrences[error_code(error)] >= _UNKNOWN_REPEATS:
                    self._resolve_unknown_error(error, block, is_first=is_first)
                is_first = is_confirmed = False  # the attempt that failed may have inserted the block
            time.sleep(pause)

    def _send_measured(self, body: bytes, settings: dict[str, Any], rows: int) -> None:
        """Send a request, and measure it if it succeeds; raises the client's errors. rows: those of the body."""
        began = time.monotonic()
        _send(self._client, self._statement, body, settings)
        self._inserter.measures.add_insert(self._name, time.monotonic() - began, rows, len(body))

    def _require_same_run(self, run: ServerRun | None) -> None:
        """Raise `_Restarted` unless the server is still in `run`; None (unknown) counts as a restart.

        Does nothing for tables whose tokens survive a restart. Only warns for engines whose merges change rows, as in a
        SummingMergeTree: a row that was merged cannot be found by its values. Raises `ClickHouseRefused` when another
        server answers.
        """
        if not self._layout.tokens_unreliable_after_restart:
            return
        now = read_server_run(self._client)
        if run is not None:
            require_same_server(self._client, run, now, self._name)
            if now.is_same(run):
                return
        if not self._layout.changes_rows:
            raise _Restarted
        self._inserter.report(
            f"warning: ClickHouse restarted during an insert into {self._name}, and the rows of a "
            f"{self._layout.engine} table cannot be searched for; only the insert token ({self._token}) prevents "
            "duplicates"
        )

    def _kind_of(self, error: BaseException) -> ErrorKind:
        return self._inserter.classify(self._name, error)

    def _raise_unless_transient(self, error: BaseException, pause: float, *, is_first: bool) -> None:
        """Report a transient or unknown error, if the next attempt begins before the deadline.

        Otherwise raise `ClickHouseUnreachable`. An error of kind ROW, PARTITIONS or TABLE is raised at once, as
        `RowsRefused`, `TooManyPartitions` or `InsertRefused`. pause: seconds until the next attempt. is_first: no
        earlier attempt can have inserted the block.
        """
        kind = self._kind_of(error)
        if kind is ErrorKind.ROW:
            raise RowsRefused(self._name, explain(error), none_inserted=is_first) from error
        if kind is ErrorKind.PARTITIONS:
            raise TooManyPartitions(
                f"{self._name} rejects a block with rows of {PARTITIONS_PER_BLOCK} partitions: {explain(error)}; "
                "choose a coarser PARTITION BY"
            ) from error
        if kind is ErrorKind.TABLE:
            raise self._table_error(error) from error
        if time.monotonic() + pause > self._deadline:
            raise ClickHouseUnreachable(
                f"ClickHouse did not confirm a block for {self._name}: {explain(error)}; check the server, then start "
                "the pipeline again; it repeats the block with the same insert token"
            ) from error
        self._inserter.measures.add_retry(self._name, error_code(error))
        unknown = " (unknown; treated as transient)" if kind is ErrorKind.UNKNOWN else ""
        self._inserter.report(f"insert into {self._name}: {explain(error)}{unknown}; retrying in {pause:.1f} s")

    def _resolve_unknown_error(self, error: BaseException, block: Block, *, is_first: bool) -> None:
        """Insert an empty block to find the cause of a repeated unknown error, and raise accordingly.

        The same error means that the table is at fault (`InsertRefused`), success that rows are (`RowsRefused`). Return
        when the empty block fails with another error. is_first: no earlier attempt can have inserted the block.
        """
        settings = insert_settings(self._client, self._token.empty(), 0)
        try:
            _send(self._client, self._statement, block.slice(0, 0).body(), settings)
        except (ClickHouseError, OSError) as error_when_empty:
            if error_code(error_when_empty) == error_code(error):
                raise self._table_error(error) from error
            return  # the next attempt with rows decides
        self._inserter.add_row_error(self._name, error)
        raise RowsRefused(self._name, explain(error), none_inserted=is_first) from error

    def _table_error(self, error: BaseException) -> InsertRefused:
        """Return the error for a table that takes no rows."""
        return InsertRefused(
            f"{self._name} accepts no rows: {explain(error)}; correct the table or the user's rights, then start the "
            "pipeline again; it replays the batch"
        )


def insert_settings(client: Client, token: Token, rows: int) -> dict[str, Any]:
    """Return the settings of an insert of one block under a token: the same for every repetition, except `query_id`.

    The id is unique to the request and begins with the token, so that a running request of a block can be found. rows:
    the block's number of rows.
    """
    known_to_server = {name: value for name, value in _PINNED_WHERE_KNOWN.items() if name in client.server_settings}
    # The block must not be split, however many rows it has.
    block_limit = {"max_insert_block_size": max(rows, _LEAST_BLOCK_LIMIT)}
    names = {"insert_deduplication_token": token.text, "query_id": f"{_QUERY_ID_PREFIX}{token}/{uuid.uuid4()}"}
    return {**_PINNED, **known_to_server, **block_limit, **names}


def _send(client: Client, statement: str, body: bytes, settings: dict[str, Any]) -> None:
    """Send one insert request; raises `ErrorInResponseBody` for a response body: a successful insert has none."""
    response = client.command(statement, data=body, settings=settings)
    if not isinstance(response, QuerySummary):
        raise ErrorInResponseBody(str(response))
