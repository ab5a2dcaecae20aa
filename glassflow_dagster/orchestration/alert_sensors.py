"""Alerts on what Dagster itself stays silent about, and on failed runs.

A failed check that does not block leaves its run a success, so no run status tells of it. The sensor compares each
check's last result with the one that was told before and speaks up at the edges only: once when a check turns, once
when it is well again.

Each alert is delivered by itself. One that the webhook does not take holds up no other: it is tried again, ever more
seldom, for about a day. What was told is in the sensor's cursor, which Dagster keeps only of a tick that succeeds, so a
tick does not fail for an alert, and ends before Dagster would end it. Failed runs come to another sensor, whose cursor
goes on whatever happens; it marks them with a tag, and they are told with the rest.
"""

import logging
import time
from collections.abc import Iterator, Mapping

import dagster as dg
from pydantic import BaseModel

from glassflow_dagster.resources.webhook import Alert, AlertResource, AlertUndelivered, log_alert

ALERT_INTERVAL = 30  # seconds
PASSED = "PASSED"
# What has become of the alert for a failed run, as a tag of the run.
ALERT_TAG = "glassflow/alert"
WAITING = "waiting"
FIRST_RETRY = 30.0  # seconds; doubled with each try
LONGEST_RETRY = 3600.0  # seconds
MAX_TRIES = 30  # about a day
# Dagster ends a tick after 60 s and forgets what it has told; an alert may take 10 of them.
TICK_SECONDS = 30.0
# The newest come first: runs whose alerts the webhook refuses hold up none of those behind them.
RUNS_A_TICK = 100


class Retry(BaseModel):
    """An alert that was not delivered: the state it tells, how often it was tried, and when it is due again."""

    state: str
    tries: int = 0
    due: float = 0.0


class _Cursor(BaseModel):
    """The state of each check that was told last, and what is to be told again."""

    told: dict[str, str] = {}
    retries: dict[str, Retry] = {}


@dg.sensor(
    name="data_quality_alerts",
    description="Sends an alert when an asset check turns red or yellow, when it is green again, and for failed runs.",
    minimum_interval_seconds=ALERT_INTERVAL,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def data_quality_alerts(context: dg.SensorEvaluationContext, alerts: AlertResource) -> dg.SkipReason:
    """Send the alerts that are due; one that the webhook does not take is sent again in a later tick."""
    cursor = _Cursor.model_validate_json(context.cursor or "{}")
    results = latest_results(context)
    runs = {_run_subject(run.run_id): run.run_id for run in _runs_to_tell(context.instance)}
    due = [*due_alerts(cursor.told, results), *(_run_alert(context.instance, run) for run in runs.values())]
    outbox = Outbox(alerts, context.log, cursor.retries)
    # A check that is just being run has no result for a moment; what it had before is not forgotten for that.
    told = cursor.told | {subject: state for subject, (state, _) in results.items()}
    for alert, outcome in outbox.deliver(due):
        if alert.subject in runs:
            context.instance.add_run_tags(runs[alert.subject], {ALERT_TAG: outcome})
    for subject in outbox.waiting.keys() & results.keys():
        told[subject] = cursor.told.get(subject, PASSED)
    context.update_cursor(_Cursor(told=told, retries=outbox.waiting).model_dump_json())
    waiting = f"; {len(outbox.waiting)} alerts wait for the webhook" if outbox.waiting else ""
    return dg.SkipReason(f"{len(results)} checks have results{waiting}")


@dg.run_failure_sensor(
    name="run_failure_alerts",
    description="Marks failed runs, such as one whose stream did not start, for data_quality_alerts to tell.",
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def run_failure_alerts(context: dg.RunFailureSensorContext) -> None:
    """Mark one failed run."""
    context.instance.add_run_tags(context.dagster_run.run_id, {ALERT_TAG: WAITING})


class Outbox:
    """Delivers alerts one by one; `waiting` are those to be tried again, by subject."""

    def __init__(self, alerts: AlertResource, log: logging.Logger, retries: Mapping[str, Retry]) -> None:
        self.waiting: dict[str, Retry] = {}
        self._alerts = alerts
        self._log = log
        self._retries = retries

    def deliver(self, due: list[Alert]) -> Iterator[tuple[Alert, str]]:
        """Give each alert that is done with as it is: `sent`, or `undelivered` when it was tried often enough.

        Those that were refused before come last, so that they hold up nothing. A webhook that cannot be reached is not
        asked again in this tick.
        """
        start, now, reachable = time.monotonic(), time.time(), True
        for alert in sorted(due, key=lambda alert: self._retry(alert).tries):
            retry = self._retry(alert)
            if alert.subject not in self._retries or retry.state != self._retries[alert.subject].state:
                log_alert(alert, self._log)
            if retry.due > now or not reachable or time.monotonic() - start > TICK_SECONDS:
                self.waiting[alert.subject] = retry
                continue
            try:
                self._alerts.send(alert)
            except AlertUndelivered as error:
                reachable = error.reached
                if self._failed(alert, retry.tries + 1, error):
                    yield alert, "undelivered"
            else:
                yield alert, "sent"

    def _retry(self, alert: Alert) -> Retry:
        known = self._retries.get(alert.subject)
        return known if known and known.state == alert.state else Retry(state=alert.state)

    def _failed(self, alert: Alert, tries: int, error: AlertUndelivered) -> bool:
        """Say what is wrong, and when the alert is tried again; gives whether it is given up."""
        if tries >= MAX_TRIES:
            self._log.error("%s: %s; it was tried %d times and is given up", alert.subject, error, tries)
            return True
        wait = min(LONGEST_RETRY, FIRST_RETRY * 2 ** (tries - 1))
        again = f"it is sent again in {wait:.0f} s (try {tries} of {MAX_TRIES})"
        self._log.error("%s: %s; %s", alert.subject, error, again)
        self.waiting[alert.subject] = Retry(state=alert.state, tries=tries, due=time.time() + wait)
        return False


def latest_results(context: dg.SensorEvaluationContext) -> dict[str, tuple[str, str]]:
    """Give each check's last result as (state, reason); checks that never ran, or are being run, are left out."""
    if context.repository_def is None:
        return {}
    results: dict[str, tuple[str, str]] = {}
    for key in sorted(context.repository_def.asset_graph.asset_check_keys):
        # Not marked public in Dagster 1.13; it is the only place that also knows results reported from outside.
        record = context.instance.get_latest_asset_check_evaluation_record(key)
        evaluation = record.event.asset_check_evaluation if record and record.event else None
        if evaluation:
            state = PASSED if evaluation.passed else evaluation.severity.value
            results[key.to_user_string()] = (state, evaluation.description or "")
    return results


def due_alerts(told: Mapping[str, str], results: Mapping[str, tuple[str, str]]) -> list[Alert]:
    """Give the alerts for what changed since it was `told` (check -> state); a first pass is no news."""
    return [
        Alert(subject, "RESOLVED" if state == PASSED else state, text)
        for subject, (state, text) in results.items()
        if told.get(subject, PASSED) != state
    ]


def _runs_to_tell(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    return list(instance.get_runs(dg.RunsFilter(tags={ALERT_TAG: WAITING}), limit=RUNS_A_TICK))


def _run_subject(run_id: str) -> str:
    return f"run {run_id}"


def _run_alert(instance: dg.DagsterInstance, run_id: str) -> Alert:
    entries = instance.all_logs(run_id, of_type={dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE})
    events = [entry.dagster_event for entry in entries if entry.dagster_event]
    causes = [cause for event in events if event.is_step_failure and (cause := _cause(event))]
    said = [event.message for event in events if event.is_failure and event.message]
    return Alert(_run_subject(run_id), "FAILED", "; ".join(causes) or " ".join(said) or "no reason is known")


def _cause(event: dg.DagsterEvent) -> str | None:
    failure = event.step_failure_data
    if failure.user_failure_data and failure.user_failure_data.description:
        return failure.user_failure_data.description
    return failure.error.message.strip() if failure.error else None
