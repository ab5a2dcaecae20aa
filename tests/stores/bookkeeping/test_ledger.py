"""Sums of the ledger over batches, on a real ClickHouse."""

from dataclasses import replace
from uuid import uuid4

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.stores.bookkeeping.ledger import (
    LEDGER,
    LedgerRow,
    insert_ledger_row,
    read_arrivals,
    read_max_event_times,
)
from glassflow_dagster.stores.bookkeeping.outcomes import Outcomes
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.bookkeeping.totals import read_totals
from glassflow_dagster.stores.clickhouse.errors import TableProblem
from glassflow_dagster.stores.clickhouse.inserts.insert import Inserter
from glassflow_dagster.stores.clickhouse.inserts.tokens import Token

pytestmark = pytest.mark.servers


def ledger_row(pipeline: str, batch: int, first: int, until: int) -> LedgerRow:
    return LedgerRow(
        pipeline_id=pipeline,
        checkpoint_id=str(uuid4()),
        batch_id=batch,
        batch_time_ms=1_700_000_000_000 + batch,
        definition="d",
        offsets={"topic": {0: (first, until), 3: (0, 1)}},
        rows_before=7,
        outcomes=Outcomes(read=10, written=8, duplicates=1, dead_letters=1),
        blocks=1,
        bytes=80,
    )


def test_the_ledger_sums_up_batches_and_ranges(client: Client, connection: ClickHouseConnection) -> None:
    ensure_bookkeeping(client, connection.database)
    row, inserter = ledger_row("mine", 0, 5, 14), Inserter(client, 10, print)
    for batch, (first, until) in enumerate([(5, 14), (14, 20), (22, 23)]):
        values = {**vars(row), "batch_id": batch, "batch_time_ms": row.batch_time_ms + batch}
        values["offsets"] = {"topic": {0: (first, until)}}
        for _ in range(2):  # a replay
            insert_ledger_row(
                Inserter(client, 10, print), connection.database, LedgerRow(**values), Token(f"token {batch}")
            )
    insert_ledger_row(inserter, connection.database, ledger_row("other", 0, 0, 1), Token("other"))
    totals = read_totals(client, connection.database, "mine")
    assert (totals.batches, totals.rows_before) == (3, 7)
    assert (totals.outcomes.read, totals.outcomes.written, totals.outcomes.dead_letters) == (30, 24, 3)
    (found,) = totals.ranges
    assert (found.topic, found.partition, found.first, found.until, found.gap) == ("topic", 0, 5, 23, 2)


def test_the_newest_event_times_are_those_of_the_batches_that_are_asked_for(
    client: Client, connection: ClickHouseConnection
) -> None:
    ensure_bookkeeping(client, connection.database)
    first = ledger_row("mine", 0, 5, 14)
    earlier_than_dates = -(10**17)  # microseconds since 1970, in the year -1199
    for batch, left, right in ((0, 9, None), (1, 5, None), (2, 7, earlier_than_dates), (3, 11, 12)):
        row = replace(first, batch_id=batch, left_max_event_time=left, right_max_event_time=right)
        insert_ledger_row(Inserter(client, 10, print), connection.database, row, Token(f"token {batch}"))

    def found(batches: range) -> tuple[int | None, int | None]:
        return read_max_event_times(client, connection.database, "mine", first.checkpoint_id, batches)

    assert found(range(3)) == (9, earlier_than_dates)
    assert found(range(1, 2)) == (5, None)
    assert found(range(0)) == (None, None)


def test_arrivals_are_the_ends_of_each_ten_seconds_in_which_batches_read_events(
    client: Client, connection: ClickHouseConnection
) -> None:
    ensure_bookkeeping(client, connection.database)
    first = ledger_row("mine", 0, 5, 14)
    for batch, (second, read) in enumerate([(0, 1), (11, 1), (13, 0), (15, 1), (19, 1), (30, 0)]):
        row = replace(
            first, batch_id=batch, batch_time_ms=1_700_000_000_000 + second * 1000, outcomes=Outcomes(read=read)
        )
        insert_ledger_row(Inserter(client, 10, print), connection.database, row, Token(f"token {batch}"))
    found = read_arrivals(client, connection.database, "mine", first.checkpoint_id, after=1_700_000_000.0)
    assert sorted(found) == [1_700_000_011.0, 1_700_000_019.0]


def test_a_ledger_without_batches_is_all_zero_and_a_missing_one_is_said(
    client: Client, connection: ClickHouseConnection
) -> None:
    with pytest.raises(TableProblem, match="no pipeline of this version has run"):
        read_totals(client, connection.database, "mine")
    ensure_bookkeeping(client, connection.database)
    totals = read_totals(client, connection.database, "mine")
    assert (totals.batches, totals.ranges, totals.last_batch_time) == (0, (), None)


def test_in_batches_of_older_versions_each_record_is_one_event(
    client: Client, connection: ClickHouseConnection
) -> None:
    ensure_bookkeeping(client, connection.database)
    ledger = LEDGER.full_name(connection.database)
    client.command(f"ALTER TABLE {ledger} DROP COLUMN records")
    client.command(f"INSERT INTO {ledger} (pipeline_id, checkpoint_id, read) VALUES ('mine', generateUUIDv4(), 10)")
    ensure_bookkeeping(client, connection.database)
    assert read_totals(client, connection.database, "mine").outcomes.records == 10
