"""Alerts: at the edges only, and not lost when the webhook is down."""

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import dagster as dg
import pytest

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.orchestration.alerts import data_quality_alerts, due_alerts, run_failure_alerts
from glassflow_dagster.resources.alerts import Alert, AlertResource

KEY = dg.AssetCheckKey(dg.AssetKey("orders"), "counts_agree")
NAME = "orders:counts_agree"
LOG = logging.getLogger("test")


@dg.asset
def orders() -> None:
    """An asset to check."""


@dg.asset_check(asset=orders)
def counts_agree() -> dg.AssetCheckResult:
    """Never run here: results are reported."""
    return dg.AssetCheckResult(passed=True)


@dg.job
def broken() -> None:
    @dg.op
    def fail() -> None:
        raise dg.Failure("the stream did not start: ClickHouse cannot be reached")

    fail()


DEFINITIONS = dg.Definitions(
    assets=[orders], asset_checks=[counts_agree], jobs=[broken], sensors=[data_quality_alerts, run_failure_alerts]
)


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """The bodies that a real HTTP server received."""
    received: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setenv("GLASSFLOW_ALERT_WEBHOOK", f"http://127.0.0.1:{server.server_port}/hook")
        yield received
        server.shutdown()


def test_an_alert_is_sent_when_a_check_turns_red_once_and_when_it_is_green_again(webhook: list[dict[str, Any]]) -> None:
    cursor = None
    sent = []
    with dg.instance_for_test() as instance:
        for passed in (True, False, False, True):
            instance.report_runless_asset_event(
                dg.AssetCheckEvaluation(
                    KEY.asset_key, KEY.name, passed=passed, metadata={}, description="4 rows missing"
                )
            )
            context = dg.build_sensor_context(
                instance=instance,
                repository_def=DEFINITIONS.get_repository_def(),
                resources={"alerts": AlertResource()},
                cursor=cursor,
            )
            cursor = data_quality_alerts.evaluate_tick(context).cursor
            sent.append([body["state"] for body in webhook])
    assert sent == [[], ["ERROR"], ["ERROR"], ["ERROR", "RESOLVED"]]
    assert webhook[0]["subject"] == NAME
    assert webhook[0]["text"] == f"ERROR: {NAME}: 4 rows missing"


def test_a_red_check_that_is_being_run_again_is_no_news(webhook: list[dict[str, Any]]) -> None:
    with dg.instance_for_test() as instance:
        context = dg.build_sensor_context(
            instance=instance,
            repository_def=DEFINITIONS.get_repository_def(),
            resources={"alerts": AlertResource()},
            cursor=json.dumps({NAME: "ERROR"}),
        )
        assert json.loads(str(data_quality_alerts.evaluate_tick(context).cursor)) == {NAME: "ERROR"}
    assert webhook == []


def test_a_warning_that_becomes_an_error_is_news() -> None:
    assert due_alerts({NAME: "WARN"}, {NAME: ("ERROR", "why")}) == [Alert(NAME, "ERROR", "why")]


def test_a_first_red_result_is_news_and_a_first_green_one_is_not() -> None:
    assert due_alerts({}, {NAME: ("WARN", "why")}) == [Alert(NAME, "WARN", "why")]
    assert due_alerts({}, {NAME: ("PASSED", "fine")}) == []


def test_a_failed_run_is_reported_with_its_reason(webhook: list[dict[str, Any]]) -> None:
    with dg.instance_for_test() as instance:
        result = broken.execute_in_process(instance=instance, raise_on_error=False)
        context = dg.build_run_status_sensor_context(
            "run_failure_alerts",
            dagster_event=result.get_run_failure_event(),
            dagster_instance=instance,
            dagster_run=result.dagster_run,
            resources={"alerts": AlertResource()},
        ).for_run_failure()
        run_failure_alerts(context)
    assert webhook[0]["state"] == "FAILED"
    assert webhook[0]["reason"] == "the stream did not start: ClickHouse cannot be reached"


def test_without_a_webhook_an_alert_goes_to_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("GLASSFLOW_ALERT_WEBHOOK", raising=False)
    AlertResource().send(Alert(NAME, "ERROR", "why"), LOG)
    assert caplog.messages == [f"ERROR: {NAME}: why"]


@pytest.mark.parametrize("address", ["http://127.0.0.1:1/secret-token", "file:///etc/passwd"])
def test_a_webhook_that_does_not_take_the_alert_is_an_error_without_its_address(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("GLASSFLOW_ALERT_WEBHOOK", address)
    with pytest.raises(GlassflowError, match="GLASSFLOW_ALERT_WEBHOOK: ") as caught:
        AlertResource().send(Alert(NAME, "ERROR", "why"), LOG)
    assert address not in str(caught.value)
