"""An address that leads to several servers: reject tables that only one server has instead of taking rows for lost."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from uuid import uuid4

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.errors import Fenced
from glassflow_dagster.local.ports import free_port
from glassflow_dagster.stores.bookkeeping.fencing import Epoch, begin_epoch
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from glassflow_dagster.stores.bookkeeping.windows import Windows
from glassflow_dagster.stores.clickhouse.client import connect
from glassflow_dagster.stores.clickhouse.errors import ClickHouseRefused, TableProblem
from glassflow_dagster.stores.clickhouse.server_run import require_one_server
from glassflow_dagster.stores.clickhouse.tables.prepare import create_target, secure_target
from tests.local.conftest import Server
from tests.stores.clickhouse.definitions import sms_status
from tests.stores.clickhouse.load_balancer import balance

pytestmark = pytest.mark.servers

DATABASE = "analytics"


@dataclass
class Pair:
    """Two servers with bookkeeping tables of their own, and a port that leads to both in turn."""

    one: ClickHouseConnection
    other: ClickHouseConnection
    both: ClickHouseConnection


def _connection(port: int) -> ClickHouseConnection:
    return ClickHouseConnection(host="127.0.0.1", port=9000, http_port=port, database=DATABASE, username="default")


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with ExitStack() as stack:
        ports = []
        for name in ("one", "other"):
            server = Server(tmp_path_factory.mktemp(name), free_port())
            stack.callback(server.end)
            server.start()
            with connect(_connection(server.port).model_copy(update={"database": "default"})) as client:
                create_target(client, sms_status())
                ensure_bookkeeping(client, DATABASE)
            ports.append(server.port)
        both = stack.enter_context(balance(ports))
        yield Pair(*(_connection(port) for port in (*ports, both)))


@pytest.fixture
def both(pair: Pair) -> Iterator[Client]:
    with connect(pair.both) as client:
        yield client


def test_a_start_refuses_an_address_of_servers_that_have_their_tables_for_themselves(pair: Pair, both: Client) -> None:
    config = sms_status(connection_params=pair.both)
    table = create_target(both, config)
    with pytest.raises(
        ClickHouseRefused, match=r"leads to several servers .*but analytics\.sms_statuses_latest is not repl"
    ):
        secure_target(both, config, table, Windows(both, DATABASE))


def test_a_single_server_is_told_from_several(pair: Pair, both: Client) -> None:
    def problem(client: Client) -> str:
        try:
            require_one_server(client, "analytics.t")
        except ClickHouseRefused as refused:
            return str(refused)
        return ""

    with connect(pair.one) as one:
        assert problem(one) == ""
    assert "leads to several servers" in problem(both)


def test_a_row_that_the_other_server_does_not_have_is_not_another_driver(pair: Pair, both: Client) -> None:
    with connect(pair.one) as client:
        epoch = begin_epoch(client, DATABASE, "p", str(uuid4()), "/state/p", {})
        epoch.require_newest(client)
    with connect(pair.other) as client, pytest.raises(Fenced, match="has lost this driver's row"):
        epoch.require_newest(client)
    with pytest.raises(ClickHouseRefused, match=r"sink\.connection_params\.host, or use replicated engines"):
        _ask_twice(both, epoch)


def _ask_twice(client: Client, epoch: Epoch) -> None:
    for _ in range(2):
        client.close_connections()  # a new connection for each query, as after an idle minute
        epoch.require_newest(client)


def test_tables_that_are_not_replicated_are_not_taken_for_replicated_ones(pair: Pair) -> None:
    with (
        connect(pair.one) as client,
        pytest.raises(TableProblem, match=r"is not replicated, but .*bookkeeping_engine: ReplicatedMergeTree.*ATTACH"),
    ):
        ensure_bookkeeping(client, DATABASE, "ReplicatedMergeTree")
