"""Heartbeats and stop requests in a real ClickHouse."""

import json
from uuid import uuid4

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.stores.bookkeeping.drivers import DRIVERS, insert_report, newest_epochs, newest_report
from glassflow_dagster.stores.bookkeeping.fencing import Epoch
from glassflow_dagster.stores.bookkeeping.stop_requests import StopRequests, request_stop, stop_requester, stop_requests
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.clickhouse.queries import execute, fetch

pytestmark = pytest.mark.servers


@pytest.fixture
def database(client: Client, connection: ClickHouseConnection) -> str:
    ensure_bookkeeping(client, connection.database)
    return connection.database


def epoch(database: str, number: int, pipeline: str = "p") -> Epoch:
    return Epoch(database, pipeline, str(uuid4()), number, str(uuid4()))


def report(client: Client, of: Epoch, heartbeat: str, *, wanted: bool = True, is_last: bool = False) -> None:
    insert_report(client, of, "/state/p", heartbeat, wanted=wanted, is_last=is_last)


def test_the_newest_heartbeat_of_the_newest_driver_counts(client: Client, database: str) -> None:
    older, newer = epoch(database, 1), epoch(database, 2)
    assert newest_report(client, database, "p") is None
    report(client, newer, '{"n": 1}')
    report(client, newer, '{"n": 2}', wanted=False)
    # The older driver ends after the newer one has begun.
    report(client, older, '{"n": 3}', is_last=True)
    report(client, epoch(database, 9, "q"), '{"n": 4}')
    found = newest_report(client, database, "p")
    assert found
    assert (found.epoch, found.driver, found.folder, found.wanted) == (2, newer.driver, "/state/p", False)
    assert found.heartbeat == '{"n": 2}'


def test_the_newest_epoch_of_a_submission_is_found(client: Client, database: str) -> None:
    assert newest_epochs(client, database, "p", "a") == (0, 0)
    for number, submission in ((1, "a"), (2, "a"), (3, "b")):
        report(client, epoch(database, number), json.dumps({"submission": submission}))
    report(client, epoch(database, 4, "q"), json.dumps({"submission": "a"}))
    assert newest_epochs(client, database, "p", "a") == (2, 3)
    assert newest_epochs(client, database, "p", "c") == (0, 3)


def test_all_requests_are_counted(client: Client, database: str) -> None:
    assert stop_requests(client, database, "p") == StopRequests()
    for number in (2, 1):
        request_stop(client, database, "p", number)
    request_stop(client, database, "q", 7)
    assert stop_requests(client, database, "p") == StopRequests(count=2, epoch=2)


def test_there_may_be_no_tables_yet(client: Client) -> None:
    assert newest_epochs(client, "nowhere", "p", "a") == (0, 0)
    assert stop_requests(client, "nowhere", "p") == StopRequests()


def test_the_age_is_by_the_clock_of_the_server(client: Client, database: str) -> None:
    report(client, epoch(database, 1), "{}")
    found = newest_report(client, database, "p")
    assert found
    assert 0 <= found.age < 600
    table = DRIVERS.full_name(database)
    execute(
        client,
        f"INSERT INTO {table} (pipeline_id, epoch, inserted_at) SELECT 'later', 1, now64(3) - INTERVAL 90 SECOND",
    )
    later = newest_report(client, database, "later")
    assert later
    assert 90 <= later.age < 690


def test_heartbeats_expire_and_the_last_one_remains_longer(client: Client, database: str) -> None:
    driver = epoch(database, 1)
    report(client, driver, "a")
    report(client, driver, "b", is_last=True)
    days = fetch(
        client,
        f"SELECT heartbeat, dateDiff('day', inserted_at, expires_at) FROM {DRIVERS.full_name(database)} ORDER BY ALL",
    )
    assert days == [("a", 1), ("b", 90)]


def test_a_heartbeat_may_be_large_and_have_any_text(client: Client, database: str) -> None:
    text = json.dumps({"message": 'it\'s \\ "quoted" \n\t {x:String} é', "lags": {str(n): n for n in range(100_000)}})
    report(client, epoch(database, 1), text)
    found = newest_report(client, database, "p")
    assert found
    assert found.heartbeat == text


def test_without_the_table_there_is_no_driver(client: Client, connection: ClickHouseConnection) -> None:
    assert newest_report(client, connection.database, "p") is None


def test_a_stop_request_is_for_the_drivers_up_to_its_epoch(client: Client, database: str) -> None:
    assert stop_requester(client, database, "p", 1) is None
    request_stop(client, database, "p", 2)
    assert stop_requester(client, database, "p", 1) is not None
    assert stop_requester(client, database, "p", 2) is not None
    assert stop_requester(client, database, "p", 3) is None
    assert stop_requester(client, database, "q", 1) is None
