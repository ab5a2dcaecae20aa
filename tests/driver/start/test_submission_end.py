"""A driver that a cluster starts again ends where its stream was stopped, or another driver runs it."""

from uuid import uuid4

import pytest
from clickhouse_connect.driver.client import Client

from glassflow_dagster.definition.model.connections import ClickHouseConnection
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.driver.start.submission_end import require_current
from glassflow_dagster.errors import Fenced
from glassflow_dagster.stores.bookkeeping.drivers import insert_report
from glassflow_dagster.stores.bookkeeping.fencing import Epoch
from glassflow_dagster.stores.bookkeeping.stop_requests import request_stop
from glassflow_dagster.stores.bookkeeping.tables import ensure_bookkeeping
from tests.control.runners.test_spark_submit import pipeline

pytestmark = pytest.mark.servers


@pytest.fixture
def config(client: Client, connection: ClickHouseConnection) -> PipelineConfig:
    ensure_bookkeeping(client, connection.database)
    found = pipeline()
    return found.model_copy(update={"sink": found.sink.model_copy(update={"connection_params": connection})})


def report(client: Client, config: PipelineConfig, number: int, submission: str) -> None:
    """Let a driver of a submission have an epoch."""
    epoch = Epoch(config.sink.connection_params.database, "orders", str(uuid4()), number, str(uuid4()))
    insert_report(client, epoch, "/state", f'{{"submission": "{submission}"}}', wanted=True, is_last=False)


def stop(client: Client, config: PipelineConfig, epoch: int) -> None:
    request_stop(client, config.sink.connection_params.database, "orders", epoch)


def why_ended(client: Client, config: PipelineConfig, submission: str) -> str:
    """Return why a driver of a submission ends at its start; '' where it goes on."""
    try:
        require_current(client, config, submission)
    except Fenced as error:
        return str(error)
    return ""


def test_a_first_start_goes_on_whatever_was_before(client: Client, config: PipelineConfig) -> None:
    assert why_ended(client, config, "mine") == ""
    report(client, config, 3, "other")
    stop(client, config, 3)
    assert why_ended(client, config, "mine") == ""


def test_a_driver_that_has_failed_goes_on(client: Client, config: PipelineConfig) -> None:
    report(client, config, 3, "other")
    stop(client, config, 3)
    report(client, config, 4, "mine")
    assert why_ended(client, config, "mine") == ""


def test_one_that_was_stopped_ends(client: Client, config: PipelineConfig) -> None:
    report(client, config, 4, "mine")
    stop(client, config, 4)
    assert "orders: was stopped" in why_ended(client, config, "mine")
    # Nobody but its launcher starts it.
    assert why_ended(client, config, "") == ""


def test_one_that_another_has_replaced_ends(client: Client, config: PipelineConfig) -> None:
    report(client, config, 4, "mine")
    report(client, config, 5, "other")
    assert "another driver was started meanwhile" in why_ended(client, config, "mine")
