"""The sensors that send alerts for asset checks and failed runs.

A failed check that does not block leaves its run successful, so a run status sensor does not notice it. The sensor
`data_quality_alerts` compares each check's last result with the last reported state and sends an alert only when the
state changes: once when the check fails, once when it passes again.

Each alert is delivered independently. One that the webhook does not accept does not delay the others; it is retried at
growing intervals for about a day. The reported states are in the sensor's cursor. Dagster saves the cursor only after a
successful tick, so an undelivered alert does not fail the tick, and the tick ends before Dagster's time limit. Failed
runs are detected by the sensor `run_failure_alerts`, whose cursor Dagster manages; it only tags them, and
`data_quality_alerts` sends their alerts.
"""

import logging
import time
from collections.abc import Iterator, Mapping

import dagster as dg
from pydantic import BaseModel

from glassflow_dagster.resources.webhook import Alert, AlertResource, AlertUndelivered, log_alert

ALERT_INTERVAL = 30  # seconds
PASSED = "PASSED"
# The tag of a failed run with the state of its alert: WAITING, then "sent" or "undelivered".
ALERT_TAG = "glassflow/alert"
WAITING = "waiting"
FIRST_RETRY = 30.0  # seconds; doubled with each try
LONGEST_RETRY = 3600.0  # seconds
MAX_TRIES = 30  # about a day
# Dagster aborts a tick after 60 s and then loses its cursor; sending one alert may take 10 s.
TICK_SECONDS = 30.0
# Failed runs per tick, the newest first, so that undeliverable alerts of old runs do not delay new ones.
RUNS_A_TICK = 100


class Retry(BaseModel):
    """An undelivered alert: its state, the number of attempts, and the time of the next one (seconds since 1970)."""

    state: str
    tries: int = 0
    due: float = 0.0


class _Cursor(BaseModel):
    """The sensor's cursor: the last reported state of each check (`told`), and the alerts to retry, by subject."""

    told: dict[str, str] = {}
    retries: dict[str, Retry] = {}


@dg.sensor(
    name="data_quality_alerts",
    description="Sends an alert when an asset check turns red or yellow, when it recovers, and for failed runs.",
    minimum_interval_seconds=ALERT_INTERVAL,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def data_quality_alerts(context: dg.SensorEvaluationContext, alerts: AlertResource) -> dg.SkipReason:
    """Send the alerts that are due; one that the webhook does not accept is sent again in a later tick."""
    cursor = _Cursor.model_validate_json(context.cursor or "{}")
    results = latest_results(context)
    runs = {_run_subject(run.run_id): run.run_id for run in _runs_to_report(context.instance)}
    due = [*due_alerts(cursor.told, results), *(_run_alert(context.instance, run) for run in runs.values())]
    outbox = Outbox(alerts, context.log, cursor.retries)
    # `|` keeps the reported state of a check that is being run now and so has no result.
    reported = cursor.told | {subject: state for subject, (state, _) in results.items()}
    for alert, outcome in outbox.deliver(due):
        if alert.subject in runs:
            context.instance.add_run_tags(runs[alert.subject], {ALERT_TAG: outcome})
    # An undelivered change counts as not reported, so that it is due again in the next tick.
    for subject in outbox.waiting.keys() & results.keys():
        reported[subject] = cursor.told.get(subject, PASSED)
    context.update_cursor(_Cursor(told=reported, retries=outbox.waiting).model_dump_json())
    waiting = f"; {len(outbox.waiting)} alerts are waiting for the webhook" if outbox.waiting else ""
    return dg.SkipReason(f"{len(results)} checks have results{waiting}")


@dg.run_failure_sensor(
    name="run_failure_alerts",
    description="Marks failed runs, such as one whose stream did not start, for data_quality_alerts to report.",
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def run_failure_alerts(context: dg.RunFailureSensorContext) -> None:
    """Tag a failed run, so that `data_quality_alerts` sends its alert."""
    context.instance.add_run_tags(context.dagster_run.run_id, {ALERT_TAG: WAITING})


class Outbox:
    """Delivers alerts one by one; `waiting` collects those to retry, by subject. `retries`: those of the last tick."""

    def __init__(self, alerts: AlertResource, log: logging.Logger, retries: Mapping[str, Retry]) -> None:
        self.waiting: dict[str, Retry] = {}
        self._alerts = alerts
        self._log = log
        self._retries = retries

    def deliver(self, due: list[Alert]) -> Iterator[tuple[Alert, str]]:
        """Send the alerts; yield each finished one with `sent`, or `undelivered` after the last attempt.

        Alerts that were rejected before come last, so that they do not delay others. After the webhook was unreachable
        or the tick's time is over, the remaining alerts only go to `waiting`.
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
                reachable = error.may_accept_others
                if self._give_up(alert, retry.tries + 1, error):
                    yield alert, "undelivered"
            else:
                yield alert, "sent"

    def _retry(self, alert: Alert) -> Retry:
        """Return the alert's retry of the last tick; a new one when its state has changed since."""
        retry = self._retries.get(alert.subject)
        return retry if retry and retry.state == alert.state else Retry(state=alert.state)

    def _give_up(self, alert: Alert, tries: int, error: AlertUndelivered) -> bool:
        """Log a failed attempt; return True after the last one, else schedule the next one and return False."""
        if tries >= MAX_TRIES:
            self._log.error("%s: %s; dropped after %d tries", alert.subject, error, tries)
            return True
        wait = min(LONGEST_RETRY, FIRST_RETRY * 2 ** (tries - 1))
        again = f"it is sent again in {wait:.0f} s (try {tries} of {MAX_TRIES})"
        self._log.error("%s: %s; %s", alert.subject, error, again)
        self.waiting[alert.subject] = Retry(state=alert.state, tries=tries, due=time.time() + wait)
        return False


def latest_results(context: dg.SensorEvaluationContext) -> dict[str, tuple[str, str]]:
    """Return each check's last result as (state, reason), without checks that never ran or are running now."""
    if context.repository_def is None:
        return {}
    results: dict[str, tuple[str, str]] = {}
    for key in sorted(context.repository_def.asset_graph.asset_check_keys):
        # Not public in Dagster 1.13, but the only function that also returns externally reported results.
        record = context.instance.get_latest_asset_check_evaluation_record(key)
        evaluation = record.event.asset_check_evaluation if record and record.event else None
        if evaluation:
            state = PASSED if evaluation.passed else evaluation.severity.value
            results[key.to_user_string()] = (state, evaluation.description or "")
    return results


def due_alerts(reported: Mapping[str, str], results: Mapping[str, tuple[str, str]]) -> list[Alert]:
    """Return an alert for each check whose state differs from the one that was `reported` (check -> state).

    A check that was not reported yet counts as passed.
    """
    return [
        Alert(subject, "RESOLVED" if state == PASSED else state, text)
        for subject, (state, text) in results.items()
        if reported.get(subject, PASSED) != state
    ]


def _runs_to_report(instance: dg.DagsterInstance) -> list[dg.DagsterRun]:
    """Return the failed runs whose alerts are waiting, the newest first."""
    return list(instance.get_runs(dg.RunsFilter(tags={ALERT_TAG: WAITING}), limit=RUNS_A_TICK))


def _run_subject(run_id: str) -> str:
    return f"run {run_id}"


def _run_alert(instance: dg.DagsterInstance, run_id: str) -> Alert:
    """Build the alert of a failed run; its text is the causes of the failed steps, else Dagster's messages."""
    entries = instance.all_logs(run_id, of_type={dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE})
    events = [entry.dagster_event for entry in entries if entry.dagster_event]
    causes = [cause for event in events if event.is_step_failure and (cause := _cause(event))]
    messages = [event.message for event in events if event.is_failure and event.message]
    return Alert(_run_subject(run_id), "FAILED", "; ".join(causes) or " ".join(messages) or "unknown reason")


def _cause(event: dg.DagsterEvent) -> str | None:
    """Return the description of a step's `dg.Failure`, else the message of its exception."""
    failure = event.step_failure_data
    if failure.user_failure_data and failure.user_failure_data.description:
        return failure.user_failure_data.description
    return failure.error.message.strip() if failure.error else None
