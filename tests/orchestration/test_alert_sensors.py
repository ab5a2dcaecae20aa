"""Alerts: one when a check starts to fail, one when it recovers, each sent by itself, none lost by errors."""

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import dagster as dg
import pytest

from glassflow_dagster.orchestration.alerts import sensors
from glassflow_dagster.orchestration.alerts.alert import Alert, AlertUndelivered
from glassflow_dagster.orchestration.alerts.sensors import alert_tag, build_alert_sensors, due_alerts, load_cursor
from glassflow_dagster.orchestration.alerts.webhook import EnvironmentWebhook

KEY = dg.AssetCheckKey(dg.AssetKey("orders"), "counts_agree")
NAME = "orders:counts_agree"


@dg.asset
def orders() -> None:
    """An asset to check."""


@dg.asset_check(asset=orders)
def counts_agree() -> dg.AssetCheckResult:
    """Never run here: the tests report its results."""
    return dg.AssetCheckResult(passed=True)


@dg.asset_check(asset=orders)
def no_duplicates() -> dg.AssetCheckResult:
    """Never run here either."""
    return dg.AssetCheckResult(passed=True)


@dg.job
def broken() -> None:
    @dg.op
    def fail() -> None:
        raise dg.Failure("the stream did not start: ClickHouse cannot be reached")

    fail()


@dg.asset
def others() -> None:
    """An asset of somebody else."""


@dg.asset_check(asset=others)
def others_check() -> dg.AssetCheckResult:
    """Never run here either."""
    return dg.AssetCheckResult(passed=True)


@dataclass
class Refusing:
    """A channel that accepts nothing, or whatever it is sent."""

    name: str = "refusing"
    accepts: bool = False
    tried: list[str] = field(default_factory=list)

    def send(self, alert: Alert) -> None:
        self.tried.append(alert.subject)
        if not self.accepts:
            raise AlertUndelivered("refusing: no", may_accept_others=True)


def definitions(*channels: Any) -> dg.Definitions:
    own = build_alert_sensors("shop", [orders.key], ["broken"], channels, dg.DefaultSensorStatus.RUNNING)
    return dg.Definitions(
        assets=[orders, others], asset_checks=[counts_agree, no_duplicates, others_check], jobs=[broken], sensors=own
    )


@dataclass
class Webhook:
    """A real HTTP server that records alerts; `status` is its response to alerts whose subject contains `refused`."""

    received: list[dict[str, Any]] = field(default_factory=list)
    refused: str = ""
    status: int = 400

    def take_received(self) -> list[tuple[str, str]]:
        """Return and clear the received alerts: (subject, state)."""
        found = [(body["subject"].rpartition(":")[2], body["state"]) for body in self.received]
        self.received.clear()
        return found


@pytest.fixture
def webhook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Webhook]:
    hook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            hook.received.append(body)
            self.send_response(hook.status if hook.refused and hook.refused in body["subject"] else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setenv("GLASSFLOW_ALERT_WEBHOOK", f"http://127.0.0.1:{server.server_port}/hook")
        yield hook
        server.shutdown()


class AlertSensor:
    """The alert sensor on a Dagster instance of its own; each `tick` is one evaluation, as by the daemon."""

    def __init__(self, instance: dg.DagsterInstance, *channels: Any) -> None:
        self.instance = instance
        self.cursor: str | None = None
        self.repository = definitions(*channels).get_repository_def()

    def report(self, name: str, *, passed: bool, key: dg.AssetKey = KEY.asset_key) -> None:
        """Report a result of a check."""
        self.instance.report_runless_asset_event(
            dg.AssetCheckEvaluation(key, name, passed=passed, metadata={}, description="4 rows missing")
        )

    def tick(self) -> str:
        """Evaluate the sensor once; return its skip message."""
        context = dg.build_sensor_context(instance=self.instance, repository_def=self.repository, cursor=self.cursor)
        found = self.repository.get_sensor_def("shop__alerts").evaluate_tick(context)
        self.cursor = found.cursor
        return str(found.skip_message)

    def fail_run(self) -> str:
        """Run a job that fails, and the run failure sensor; return the run's id."""
        result = broken.execute_in_process(instance=self.instance, raise_on_error=False)
        context = dg.build_run_status_sensor_context(
            "shop__run_failures",
            dagster_event=result.get_run_failure_event(),
            dagster_instance=self.instance,
            dagster_run=result.dagster_run,
        ).for_run_failure()
        sensor = self.repository.get_sensor_def("shop__run_failures")
        sensor(context)  # type: ignore[operator]
        return result.run_id

    def tag(self, run_id: str) -> str:
        """Return the alert tag of a run."""
        run = self.instance.get_run_by_id(run_id)
        assert run
        return run.tags[alert_tag("shop")]


@pytest.fixture
def sensor() -> Iterator[AlertSensor]:
    with dg.instance_for_test() as instance:
        yield AlertSensor(instance, EnvironmentWebhook())


def test_an_alert_is_sent_when_a_check_turns_red_once_and_when_it_is_green_again(
    webhook: Webhook, sensor: AlertSensor
) -> None:
    sent = []
    for passed in (True, False, False, True):
        sensor.report("counts_agree", passed=passed)
        sensor.tick()
        sent.append([(body["subject"], body["text"]) for body in webhook.received])
        webhook.received.clear()
    assert sent == [[], [(NAME, f"ERROR: {NAME}: 4 rows missing")], [], [(NAME, f"RESOLVED: {NAME}: 4 rows missing")]]


def test_an_alert_that_the_webhook_refuses_holds_up_no_other_and_is_tried_again_until_it_is_given_up(
    webhook: Webhook, sensor: AlertSensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "FIRST_RETRY", 0.0)
    monkeypatch.setattr(sensors, "MAX_TRIES", 3)
    webhook.refused = "counts_agree"
    sensor.report("counts_agree", passed=False)
    sensor.report("no_duplicates", passed=False)
    run = sensor.fail_run()

    assert sensor.tick() == "2 checks have results; 1 alerts wait"
    received = webhook.take_received()
    assert sorted(received) == sorted([("counts_agree", "ERROR"), ("no_duplicates", "ERROR"), (f"run {run}", "FAILED")])
    assert sensor.tag(run) == "sent"
    assert sensor.tick() == "2 checks have results; 1 alerts wait"
    assert sensor.tick() == "2 checks have results"
    assert webhook.take_received() == [("counts_agree", "ERROR")] * 2
    sensor.tick()
    assert webhook.take_received() == []
    # After giving up, the next failure of the check is a new alert.
    webhook.refused = ""
    sensor.report("counts_agree", passed=True)
    sensor.tick()
    assert webhook.take_received() == [("counts_agree", "RESOLVED")]


def test_a_webhook_that_asks_for_a_pause_gets_one_and_then_every_alert_once(
    webhook: Webhook, sensor: AlertSensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook.refused, webhook.status = "orders", 429
    sensor.report("counts_agree", passed=False)
    sensor.report("no_duplicates", passed=False)
    sensor.tick()
    assert webhook.take_received() == [("counts_agree", "ERROR")]
    webhook.refused = ""
    # The alert that was tried is not due yet; the other one was not tried at all.
    sensor.tick()
    assert webhook.take_received() == [("no_duplicates", "ERROR")]
    monkeypatch.setattr(sensors.time, "time", lambda: 4e9)
    assert sensor.tick() == "2 checks have results"
    assert webhook.take_received() == [("counts_agree", "ERROR")]


def test_a_check_that_is_well_before_anybody_was_told_is_no_news(
    webhook: Webhook, sensor: AlertSensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "FIRST_RETRY", 0.0)
    webhook.refused = "counts_agree"
    sensor.report("counts_agree", passed=False)
    sensor.tick()
    sensor.report("counts_agree", passed=True)
    sensor.tick()
    assert webhook.take_received() == [("counts_agree", "ERROR")]


def test_a_red_check_that_is_being_run_again_is_no_news(
    webhook: Webhook, sensor: AlertSensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    sensor.report("counts_agree", passed=False)
    sensor.tick()
    webhook.received.clear()
    # While it runs, Dagster has no result of a check.
    monkeypatch.setattr(sensors, "latest_results", lambda *_: {})
    sensor.tick()
    assert load_cursor(sensor.cursor).channels["log"].reported == {NAME: "ERROR"}
    assert webhook.received == []


def test_a_warning_that_becomes_an_error_is_news() -> None:
    assert due_alerts({NAME: "WARN"}, {NAME: ("ERROR", "why")}) == [Alert(NAME, "ERROR", "why")]


def test_a_first_red_result_is_news_and_a_first_green_one_is_not() -> None:
    assert due_alerts({}, {NAME: ("WARN", "why")}) == [Alert(NAME, "WARN", "why")]
    assert due_alerts({}, {NAME: ("PASSED", "fine")}) == []


def test_a_failed_run_is_reported_with_its_reason(webhook: Webhook, sensor: AlertSensor) -> None:
    run = sensor.fail_run()
    assert sensor.tag(run) == "waiting"
    sensor.tick()
    sensor.tick()
    (body,) = webhook.received
    assert (body["subject"], body["state"]) == (f"run {run}", "FAILED")
    assert body["reason"] == "the stream did not start: ClickHouse cannot be reached"
    assert sensor.tag(run) == "sent"


def test_without_a_webhook_an_alert_goes_to_the_log(
    monkeypatch: pytest.MonkeyPatch, sensor: AlertSensor, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("GLASSFLOW_ALERT_WEBHOOK", raising=False)
    sensor.report("counts_agree", passed=False)
    assert sensor.tick() == "1 checks have results"
    sensor.tick()
    assert capfd.readouterr().err.count(f"ERROR: {NAME}: 4 rows missing") == 1


def test_each_channel_gets_each_alert_and_one_that_refuses_holds_up_no_other(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "FIRST_RETRY", 0.0)
    refusing = Refusing()
    with dg.instance_for_test() as instance:
        sensor = AlertSensor(instance, refusing, EnvironmentWebhook())
        sensor.report("counts_agree", passed=False)
        run = sensor.fail_run()
        assert sensor.tick() == "1 checks have results; 2 alerts wait"
        assert sorted(webhook.take_received()) == sorted([("counts_agree", "ERROR"), (f"run {run}", "FAILED")])
        assert sensor.tag(run) == "waiting"
        refusing.accepts = True
        assert sensor.tick() == "1 checks have results"
        assert sensor.tag(run) == "sent"
        assert webhook.take_received() == []
        assert sorted(refusing.tried) == sorted([NAME, f"run {run}"] * 2)


def test_a_run_whose_alert_a_channel_has_given_up_is_marked_so(
    webhook: Webhook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "MAX_TRIES", 1)
    with dg.instance_for_test() as instance:
        sensor = AlertSensor(instance, Refusing(), EnvironmentWebhook())
        run = sensor.fail_run()
        sensor.tick()
        assert sensor.tag(run) == "undelivered"
    assert webhook.take_received() == [(f"run {run}", "FAILED")]


def test_what_belongs_to_others_is_not_reported(webhook: Webhook, sensor: AlertSensor) -> None:
    sensor.report("others_check", passed=False, key=others.key)
    assert sensor.tick() == "0 checks have results"
    assert webhook.received == []
