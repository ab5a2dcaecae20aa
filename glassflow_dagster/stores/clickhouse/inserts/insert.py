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

from glassflow_dagster.runtime.metrics.measures import Measures
from glassflow_dagster.stores.clickhouse.errors import (
    ClickHouseUnreachable,
    ErrorInResponseBody,
    ErrorKind,
    InsertRefused,
    RowsRefused,
    TooManyPartitions,
    classify,
    error_code,
    explain,
    failing_view,
    view_remedy,
)
from glassflow_dagster.stores.clickhouse.identifiers import full_name, quote_name
from glassflow_dagster.stores.clickhouse.inserts.batch_begin import BatchBegin, TableState, read_state
from glassflow_dagster.stores.clickhouse.inserts.block import Block
from glassflow_dagster.stores.clickhouse.inserts.interrupted import (
    QUERY_ID_PREFIX,
    InterruptedInsert,
    MutatedRows,
    Restarted,
)
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.layout import Layout, is_replicated, read_layout
from glassflow_dagster.stores.clickhouse.queries import backoff_pauses
from glassflow_dagster.stores.clickhouse.server_run import require_same_server

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


class Fence(Protocol):
    """Protection against writes of an outdated driver; implemented by `bookkeeping.fencing.Epoch`."""

    def require_newest_cached(self, client: Client) -> None:
        """Raise `GlassflowError` when a newer driver has started; raises the client's own errors as well."""


@dataclass
class Inserter:
    """Inserts the blocks of one batch, or of one command, each repeated until its outcome is certain.

    retry_seconds: the time limit of one insert.
    fence: checked before every attempt; None when no driver writes.
    begin: the server when the batch began.
    repeated: whether an earlier attempt at the batch may have sent some of the blocks.
    mutated_rows: what rows of an earlier attempt are that cannot be found since a mutation; None when nobody has said
        so.
    measures: of its requests.
    """

    client: Client
    retry_seconds: float
    report: Callable[[str], None]
    fence: Fence | None = None
    begin: BatchBegin = field(default_factory=BatchBegin)
    repeated: bool = False
    mutated_rows: MutatedRows | None = None
    measures: Measures = field(default_factory=Measures)
    _layouts: dict[tuple[str, str], Layout] = field(default_factory=dict)
    # (table, error code) of unknown errors that proved to be caused by rows.
    _row_errors: set[tuple[str, int | None]] = field(default_factory=set)

    def insert(
        self, database: str, table: str, block: Block, token: Token, settings: Mapping[str, Any] | None = None
    ) -> None:
        """Insert a block under its token, and return when its rows are certain to be in the table once.

        block: has the table's column names. Its rows become one ClickHouse block, so the order and number of rows must
            be the same whenever the same token is used.
        settings: extra insert settings.
        An empty block is not sent.

        Raises what `Fence.require_newest_cached` raises, `RowsRefused` when values are at fault, `TooManyPartitions`
        and `InsertRefused` when the table does not take the block, and `ClickHouseUnreachable` when the outcome is
        still uncertain after `retry_seconds`.
        """
        if block.num_rows:
            _BlockInsert(self, database, table, block, token, settings or {}).run()

    def note_restart(self) -> None:
        """Record that the server restarted: from now on no block counts as sent for the first time."""
        self.repeated = True

    def forget_layout(self, database: str, table: str) -> None:
        """Read a table's layout again when it is needed: another table may have taken its place."""
        self._layouts.pop((database, table), None)

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


class _BlockInsert:
    """The insert of one block, from the first attempt until its outcome is certain.

    In its methods, `is_first` says that no earlier attempt can have inserted the block.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - the parts of an insert
        self, inserter: Inserter, database: str, table: str, block: Block, token: Token, settings: Mapping[str, Any]
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

        Nothing is certain in a repeated batch: the driver that began it may have inserted the block.
        """
        try:
            self._send_until_certain(self._block, self._token, self._at_begin, is_first=not self._inserter.repeated)
        except Restarted:
            self._inserter.note_restart()
            self._inserter.forget_layout(self._database, self._table)
            InterruptedInsert(
                self._client, self._layout, self._block, self._token,
                begin=self._inserter.begin, mutated_rows=self._inserter.mutated_rows, deadline=self._deadline,
                report=self._inserter.report, retry=self._retry, send=self._send_again,
            ).complete()  # fmt: skip

    def _send_again(self, block: Block, token: Token, before: TableState) -> None:
        self._send_until_certain(block, token, before, is_first=False)

    @property
    def _at_begin(self) -> TableState:
        return self._inserter.begin.state_of(self._name)

    def _read_state(self) -> TableState:
        return read_state(self._client, self._database, self._table)

    @property
    def _layout(self) -> Layout:
        return self._inserter.layout(self._database, self._table)

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

    def _send_until_certain(self, block: Block, token: Token, before: TableState, *, is_first: bool) -> None:
        """Send a block under a token until its outcome is certain.

        before: the state in which all earlier attempts were sent. When there may have been earlier attempts (not
        `is_first`), the state is checked before and after each request: a token is reliable within one run of the
        server, and one table. Raises `Restarted` when it has changed. A replicated table then gets the block until
        that is confirmed twice in succession. An error of kind UNKNOWN counts as transient until its code has occurred
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
                    self._require_unchanged(before)
                self._send_measured(body, settings, block.num_rows)
                if not is_first:
                    self._require_unchanged(before)
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
        send(self._client, self._statement, body, settings)
        self._inserter.measures.add_insert(self._name, time.monotonic() - began, rows, len(body))

    def _require_unchanged(self, before: TableState) -> None:
        """Raise `Restarted` unless run and table are still those of `before`; an unknown run counts as a restart.

        Tokens of replicated tables survive a restart, but not another table of that name. Only warns for tables whose
        rows cannot be searched for, as in a SummingMergeTree: a row that was merged cannot be found by its values.
        Raises `ClickHouseRefused` when another server answers.
        """
        layout = self._layout
        if not layout.is_merge_tree:
            return
        now = self._read_state()
        if is_replicated(layout.engine):
            if not before.is_same_table(now):
                raise Restarted
            return
        if before.run and now.run:
            require_same_server(self._client, before.run, now.run, self._name)
        if before.is_unchanged(now):
            return
        if layout.lasting(self._block.column_names) and not layout.changes_rows:
            raise Restarted
        self._inserter.report(
            f"warning: ClickHouse restarted or the table was changed during an insert into {self._name}, and the rows "
            f"of this {layout.engine} table cannot be searched for; only the insert token ({self._token}) prevents "
            "duplicates"
        )

    def _kind_of(self, error: BaseException) -> ErrorKind:
        return self._inserter.classify(self._name, error)

    def _raise_unless_transient(self, error: BaseException, pause: float, *, is_first: bool) -> None:
        """Report a transient or unknown error, if the next attempt begins before the deadline.

        Otherwise raise `ClickHouseUnreachable`. An error of kind ROW, PARTITIONS or TABLE is raised at once, as
        `RowsRefused`, `TooManyPartitions` or `InsertRefused`.

        pause: seconds until the next attempt.
        is_first: no earlier attempt can have inserted the block.
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
            send(self._client, self._statement, block.slice(0, 0).body(), settings)
        except (ClickHouseError, OSError) as error_when_empty:
            if error_code(error_when_empty) == error_code(error):
                raise self._table_error(error) from error
            return  # the next attempt with rows decides
        self._inserter.add_row_error(self._name, error)
        raise RowsRefused(self._name, explain(error), none_inserted=is_first) from error

    def _table_error(self, error: BaseException) -> InsertRefused:
        """Return the error for a table that takes no rows, or for a view behind it that fails."""
        if view := failing_view(error):
            return InsertRefused(
                f"view {view} behind {self._name} fails: {explain(error)}; {view_remedy(view, error)}, then start the "
                f"pipeline again; it replays the batch, and {self._name} keeps the rows that it may have already"
            )
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
    names = {"insert_deduplication_token": token.text, "query_id": f"{QUERY_ID_PREFIX}{token}/{uuid.uuid4()}"}
    return {**_PINNED, **known_to_server, **block_limit, **names}


def send(client: Client, statement: str, body: bytes, settings: dict[str, Any]) -> None:
    """Send one insert request; raises `ErrorInResponseBody` for a response body: a successful insert has none."""
    response = client.command(statement, data=body, settings=settings)
    if not isinstance(response, QuerySummary):
        raise ErrorInResponseBody(str(response))
