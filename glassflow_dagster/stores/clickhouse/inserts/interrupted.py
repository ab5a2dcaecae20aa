"""Completes an insert of which an attempt was interrupted by a restart of the server, or by a change of the table.

The table is searched for the block's rows, and missing ones are sent until they are certain to be in it once.
This module runs inside Spark's Python workers: it imports neither pyspark nor pandas.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Literal, Protocol, TypeVar

from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError

from glassflow_dagster.stores.clickhouse.errors import ClickHouseUnreachable, InsertRefused, is_right_missing
from glassflow_dagster.stores.clickhouse.inserts.already_written import missing_rows
from glassflow_dagster.stores.clickhouse.inserts.batch_begin import BatchBegin, TableState, read_state
from glassflow_dagster.stores.clickhouse.inserts.block import Block
from glassflow_dagster.stores.clickhouse.inserts.mutations import changes_since
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token
from glassflow_dagster.stores.clickhouse.layout import Layout

T = TypeVar("T")

# What an operator may say of rows that a mutation may have removed: they were written before, or they were not.
MutatedRows = Literal["written", "missing"]

# Query ids of inserts are this prefix, the token and a UUID.
QUERY_ID_PREFIX = "glassflow/"

# How often missing rows are sent: each further time needs a server that died during the one before.
_MOST_ATTEMPTS = 20
_POLL_SECONDS = 0.2


class Restarted(Exception):
    """The server has restarted, or the table was changed, since an earlier attempt: the block's token is unreliable."""


class Retry(Protocol):
    """Repeats a query on transient errors."""

    def __call__(self, query: Callable[[], T], /) -> T:
        """Return the result of a query; raises other errors as those of an insert."""


@dataclass(frozen=True)
class InterruptedInsert:
    """The insert of a block that an earlier attempt may have written, under tokens that are no longer reliable.

    begin: the server when the batch began.
    mutated_rows: what rows are that cannot be found since a mutation; None when nobody has said so.
    deadline: when to give up waiting for an earlier request, by `time.monotonic`.
    report: receives messages for the user.
    send: inserts rows under a token until that is certain; raises `Restarted` unless the server and the table are still
        in the state that it is given.
    """

    client: Client
    layout: Layout
    block: Block
    token: Token
    _: KW_ONLY
    begin: BatchBegin
    mutated_rows: MutatedRows | None
    deadline: float
    report: Callable[[str], None]
    retry: Retry
    send: Callable[[Block, Token, TableState], None]

    @property
    def _name(self) -> str:
        return f"{self.layout.database}.{self.layout.table}"

    @property
    def _at_begin(self) -> TableState:
        return self.begin.state_of(self._name)

    def complete(self) -> None:
        """Find the rows that the table lacks, and send them, again after each further restart of the server.

        Raises `InsertRefused` where it cannot be known whether rows are missing, and `ClickHouseUnreachable` after
        `_MOST_ATTEMPTS`.
        """
        self.report(
            f"{self._name}: ClickHouse restarted or the table was changed during an insert; searching the table for "
            f"the insert's rows ({self.token})"
        )
        # What is left to do after a restart in between; a view that has got its block needs it no more.
        steps = [*([self._send_to_views] if self.layout.has_views else []), self._send_missing]
        for _ in range(_MOST_ATTEMPTS):
            with suppress(Restarted):
                while steps:
                    steps[0](self._read_state())
                    del steps[0]
                return
        raise ClickHouseUnreachable(
            f"{self._name}: a block is still missing after {_MOST_ATTEMPTS} attempts, each after a restart of "
            f"ClickHouse ({self.token}); check the server, then start the pipeline again; it first searches the "
            "table for the block's rows"
        )

    def _read_state(self) -> TableState:
        """Return the present state; raises `InsertRefused` when the table has no token window any more."""
        state = self.retry(lambda: read_state(self.client, self.layout.database, self.layout.table))
        if self._at_begin.lost_window(state):
            raise InsertRefused(
                f"{self._name} was replaced by another table, or its settings were changed, while a batch was in "
                "flight: it keeps no insert tokens now; start the pipeline again, which restores its deduplication "
                "window and searches the table for the batch's rows"
            )
        return state

    def _send_to_views(self, state: TableState) -> None:
        """Send the whole block under its own token, for the views: the table drops the partitions that it has.

        A view keeps one block per token, so after some of the partitions it would take no others. A table without the
        batch's tokens would have the rows twice; it gets none here.
        """
        if self._at_begin.lost_tokens(state):
            self.report(
                f"warning: {self._name} was replaced or altered during an insert, and its materialized views may lack "
                f"rows of it ({self.token}); compare the views with the table"
            )
            return
        self._wait_for_earlier_request()
        self.send(self.block, self.token, state)

    def _send_missing(self, state: TableState) -> None:
        """Find the rows that the table lacks, and send them; raises `Restarted` after a restart.

        First under the block's own token: the server may never have got them, or it may have the token without them.
        Then under a token of the server's present run, which proves that they have arrived.
        """
        missing = self.retry(self._find_missing_rows)
        lost_tokens = self._at_begin.lost_tokens(state)
        if missing and lost_tokens and self._is_mutated(missing):
            return
        if missing and (lost_tokens or not self.layout.has_views):
            self.send(self.block.take(missing), self.token, state)
            missing = self.retry(self._find_missing_rows)
        if missing and not self._is_mutated(missing):
            self._warn_of_views(len(missing))
            token = self.token.again(state.run.key if state.run else "")
            self.send(self.block.take(missing), token, state)
            self._require_found(token)

    def _is_mutated(self, missing: Sequence[int]) -> bool:
        """Return True when missing rows count as written, since a mutation may have removed or changed them.

        To be asked of rows whose token the table knows, so that it had them or lost them when the server died, or of a
        table without the batch's tokens. missing: row numbers. Raises `InsertRefused` when there was a mutation and
        nobody has said what such rows are.
        """
        if self.begin.at_ms is None or not self.layout.keeps_rows:
            return False
        changes = self.retry(self._read_changes)
        if not changes or self.mutated_rows == "missing":
            return False
        if self.mutated_rows == "written":
            self.report(
                f"{self._name}: {len(missing)} rows count as written that a mutation may have removed ({self.token})"
            )
            return True
        raise InsertRefused(
            f"{self._name}: {len(missing)} rows of an insert that was interrupted are not found in the table, "
            f"which was changed since the insert by {changes[0]!r}. It cannot be known whether these rows were "
            f"written and then changed or removed, or were lost ({self.token}). Start once with `run FILE "
            "--mutated-rows written` if the change explains it: the rows count as written; or with `--mutated-rows "
            "missing`: they are inserted now"
        )

    def _read_changes(self) -> Sequence[str]:
        """Return the mutations of the table since the batch began; none, with a warning, where they are not visible."""
        since = self.begin.at_ms or 0
        try:
            return changes_since(self.client, self.layout.database, self.layout.table, since)
        except ClickHouseError as error:
            if not is_right_missing(error):
                raise
            self.report(
                f"warning: cannot see whether rows of {self._name} were deleted or updated during an insert; assuming "
                "that they were not; grant SELECT ON system.mutations and system.parts to the pipeline's user"
            )
            return ()

    def _require_found(self, token: Token) -> None:
        """Raise `InsertRefused` when rows are not found that were just inserted: then the search is not to be trusted.

        Where the server removes single rows, it may have removed these by now.
        """
        if not self.layout.keeps_rows or not self.retry(self._find_missing_rows):
            return
        raise InsertRefused(
            f"{self._name}: rows that were inserted just now are not found by their values ({token}), so the table may "
            "have rows of this block twice. Do not start the pipeline again before you know why: another process may "
            "delete or change rows, or this is a defect of glassflow-dagster, which please report with the table's "
            "SHOW CREATE TABLE"
        )

    def _warn_of_views(self, rows: int) -> None:
        """Report that views get rows of the block once more; their table knew the block's token without the rows."""
        if self.layout.has_views:
            self.report(
                f"warning: the materialized views of {self._name} may have {rows} rows twice, because ClickHouse "
                f"restarted when it had stored an insert's token and not yet its rows ({self.token}); compare the "
                "views with the table"
            )

    def _find_missing_rows(self) -> list[int]:
        """Wait until no earlier request of this block is running; return the row numbers missing in the table."""
        self._wait_for_earlier_request()
        return missing_rows(self.client, self.layout, self.block)

    def _wait_for_earlier_request(self) -> None:
        """Wait until no earlier request of this block is running; raises `ClickHouseUnreachable` at the deadline."""
        while self._is_request_running():
            if time.monotonic() > self.deadline:
                raise ClickHouseUnreachable(
                    f"{self._name}: an earlier insert of a block is still running ({self.token})"
                )
            time.sleep(_POLL_SECONDS)

    def _is_request_running(self) -> bool:
        """Return True while the server runs a request of this block; False with a warning when that is not visible."""
        own_requests = "SELECT count() FROM system.processes WHERE startsWith(query_id, {token:String})"
        try:
            result_rows = self.client.query(
                own_requests, parameters={"token": f"{QUERY_ID_PREFIX}{self.token}"}
            ).result_rows
        except ClickHouseError as error:
            if not is_right_missing(error):
                raise
            self.report(
                f"warning: cannot see whether an earlier insert into {self._name} is still running; assuming that it "
                "has ended; grant SELECT ON system.processes to the pipeline's user"
            )
            return False
        return bool(result_rows[0][0])
