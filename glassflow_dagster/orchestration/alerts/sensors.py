"""The sensors that send alerts for asset checks and failed runs.

A failed check that does not block leaves its run successful, so a run status sensor does not notice it. The sensor
`<name>__alerts` compares each check's last result with the last reported state and sends an alert only when the state
changes: once when the check fails, once when it passes again.

Each channel (log, webhook, Slack, e-mail) delivers each alert independently. One that a channel does not accept does
not delay the others; it is retried at growing intervals for about a day. What each channel has reported is in the
sensor's cursor. Dagster saves the cursor only after a successful tick, so an undelivered alert does not fail the tick,
and the tick ends before Dagster's time limit. Failed runs are detected by the sensor `<name>__run_failures`, whose
cursor Dagster manages; it only tags them, and `<name>__alerts` sends their alerts.
"""

import logging
import time
from collections.abc import Collection, Iterator, Mapping, Sequence

import dagster as dg
from pydantic import BaseModel

from glassflow_dagster.orchestration.alerts.alert import Alert, AlertChannel, AlertUndelivered
from glassflow_dagster.orchestration.cursors import parse_cursor
from glassflow_dagster.runtime.safe_text import from_markdown

ALERT_INTERVAL = 30  # seconds
PASSED = "PASSED"
WAITING, SENT, UNDELIVERED = "waiting", "sent", "undelivered"
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


class ChannelState(BaseModel):
    """What a channel has reported (subject -> state), and the alerts that it has to send again, by subject.

    given_up: the subjects among the reported ones whose alert was dropped.
    """

    reported: dict[str, str] = {}
    retries: dict[str, Retry] = {}
    given_up: set[str] = set()


class Cursor(BaseModel):
    """The sensor's cursor: the state of each channel, by its name."""

    channels: dict[str, ChannelState] = {}


def alert_tag(name: str) -> str:
    """Return the tag of failed runs with the state of their alerts: waiting, then sent or undelivered."""
    return f"glassflow/alert_{name}"


def build_alert_sensors(
    name: str,
    assets: Collection[dg.AssetKey],
    jobs: Collection[str],
    channels: Sequence[AlertChannel],
    status: dg.DefaultSensorStatus,
) -> list[dg.SensorDefinition]:
    """Build the sensors that send alerts. assets, jobs: whose checks and failed runs are reported."""
    own_assets, own_jobs = frozenset(assets), frozenset(jobs)

    @dg.sensor(
        name=f"{name}__alerts",
        description="Sends an alert when an asset check turns red or yellow, when it recovers, and for failed runs.",
        minimum_interval_seconds=ALERT_INTERVAL,
        default_status=status,
    )
    def alerts(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        results = latest_results(context, own_assets)
        runs = _runs_to_report(context.instance, name)
        states, started = load_cursor(context.cursor).channels, time.monotonic()
        cursor = Cursor()
        for channel in (_Log(context.log), *channels):
            outbox = Outbox(channel, context.log, states.get(channel.name, ChannelState()))
            cursor.channels[channel.name] = outbox.deliver(results, runs, started + TICK_SECONDS)
        for run_id, outcome in _finished(runs, cursor):
            context.instance.add_run_tags(run_id, {alert_tag(name): outcome})
        context.update_cursor(cursor.model_dump_json())
        waiting = sum(len(state.retries) for state in cursor.channels.values())
        return dg.SkipReason(f"{len(results)} checks have results" + (f"; {waiting} alerts wait" if waiting else ""))

    @dg.run_failure_sensor(
        name=f"{name}__run_failures",
        description=f"Marks failed runs, such as one whose stream did not start, for {name}__alerts to report.",
        default_status=status,
    )
    def run_failures(context: dg.RunFailureSensorContext) -> None:
        run = context.dagster_run
        if run.job_name in own_jobs or own_assets & frozenset(run.asset_selection or ()):
            context.instance.add_run_tags(run.run_id, {alert_tag(name): WAITING})

    return [alerts, run_failures]


def load_cursor(cursor: str | None) -> Cursor:
    """Parse the sensor's cursor; one of another version is discarded: checks that are red now are reported again."""
    return parse_cursor(Cursor, cursor)


class _Log:
    """The channel that every sensor has: Dagster's log of the sensor's ticks."""

    name = "log"

    def __init__(self, log: logging.Logger) -> None:
        self._log = log

    def send(self, alert: Alert) -> None:
        """Log an alert: as an error when something failed, else as a warning."""
        self._log.log(logging.ERROR if alert.state in ("ERROR", "FAILED") else logging.WARNING, alert.line)


class Outbox:
    """Delivers the alerts of one channel. state: after the last tick."""

    def __init__(self, channel: AlertChannel, log: logging.Logger, state: ChannelState) -> None:
        self._channel, self._log, self._state = channel, log, state

    def deliver(self, results: Mapping[str, tuple[str, str]], runs: Mapping[str, Alert], until: float) -> ChannelState:
        """Send the alerts that are due, until a time (monotonic seconds); return the channel's new state.

        results: check -> (state, reason).
        runs: the alert of each failed run that is not finished, by the run's id.
        Alerts that were rejected before come last, so that they do not delay others. After the channel was unreachable
        or the time is over, the remaining alerts wait for the next tick.
        """
        old = self._state
        alerts = [
            *due_alerts(old.reported, results),
            *(alert for alert in runs.values() if alert.subject not in old.reported),
        ]
        new = ChannelState()
        now, reachable = time.time(), True
        for alert in sorted(alerts, key=lambda alert: self._retry(alert).tries):
            retry = self._retry(alert)
            if retry.due > now or not reachable or time.monotonic() > until:
                new.retries[alert.subject] = retry
                continue
            try:
                self._channel.send(alert)
            except AlertUndelivered as error:
                reachable = error.may_accept_others
                if next_retry := self._next_retry(alert, retry.tries + 1, error):
                    new.retries[alert.subject] = next_retry
                else:
                    new.given_up.add(alert.subject)
        subjects = {alert.subject for alert in runs.values()}
        # The reported state of a check that is being run now, and so has no result, is kept.
        new.reported = {
            **{subject: state for subject, state in old.reported.items() if _is_check(subject) or subject in subjects},
            **{subject: state for subject, (state, _) in results.items()},
            **{alert.subject: alert.state for alert in alerts if not _is_check(alert.subject)},
        }
        for subject in new.retries:
            # An undelivered change counts as not reported, so that it is due again in the next tick.
            if subject in old.reported:
                new.reported[subject] = old.reported[subject]
            else:
                new.reported.pop(subject, None)
        new.given_up |= old.given_up & subjects
        return new

    def _retry(self, alert: Alert) -> Retry:
        """Return the alert's retry of the last tick; a new one when its state has changed since."""
        retry = self._state.retries.get(alert.subject)
        return retry if retry and retry.state == alert.state else Retry(state=alert.state)

    def _next_retry(self, alert: Alert, tries: int, error: AlertUndelivered) -> Retry | None:
        """Log a failed attempt and return the next one; None after the last."""
        if tries >= MAX_TRIES:
            self._log.error("%s: %s; dropped after %d tries", alert.subject, error, tries)
            return None
        wait = min(LONGEST_RETRY, FIRST_RETRY * 2 ** (tries - 1))
        self._log.error(
            "%s: %s; it is sent again in %.0f s (try %d of %d)", alert.subject, error, wait, tries, MAX_TRIES
        )
        return Retry(state=alert.state, tries=tries, due=time.time() + wait)


def latest_results(context: dg.SensorEvaluationContext, assets: Collection[dg.AssetKey]) -> dict[str, tuple[str, str]]:
    """Return the last result of each check of the assets, as (state, reason).

    Without checks that never ran or are running now.
    """
    if context.repository_def is None:
        return {}
    results: dict[str, tuple[str, str]] = {}
    graph = context.repository_def.asset_graph
    keys = [key for key in sorted(graph.asset_check_keys) if key.asset_key in assets]
    # Not public in Dagster 1.13, but one query for all checks, and it also returns externally reported results.
    records = context.instance.event_log_storage.get_latest_asset_check_execution_by_key(keys)
    for key in keys:
        record = records.get(key)
        evaluation = record.event.asset_check_evaluation if record and record.event else None
        if evaluation:
            state = PASSED if evaluation.passed else evaluation.severity.value
            results[key.to_user_string()] = (state, from_markdown(evaluation.description or ""))
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


def _runs_to_report(instance: dg.DagsterInstance, name: str) -> dict[str, Alert]:
    """Return the alerts of failed runs that are not finished, by the run's id; the newest first."""
    runs = instance.get_runs(dg.RunsFilter(tags={alert_tag(name): WAITING}), limit=RUNS_A_TICK)
    return {run.run_id: _run_alert(instance, run.run_id) for run in runs}


def _finished(runs: Mapping[str, Alert], cursor: Cursor) -> Iterator[tuple[str, str]]:
    """Yield the id of each run whose alert no channel has to send any more, and whether all have delivered it."""
    states = cursor.channels.values()
    for run_id, alert in runs.items():
        if not any(alert.subject in state.retries for state in states):
            yield run_id, UNDELIVERED if any(alert.subject in state.given_up for state in states) else SENT


def _run_subject(run_id: str) -> str:
    return f"run {run_id}"


def _is_check(subject: str) -> bool:
    """Return whether an alert's subject is a check and not a run."""
    return not subject.startswith(_run_subject(""))


def _run_alert(instance: dg.DagsterInstance, run_id: str) -> Alert:
    """Build the alert of a failed run.

    Its text is the errors of the failed steps; without any, Dagster's messages on the failure.
    """
    entries = instance.all_logs(run_id, of_type={dg.DagsterEventType.STEP_FAILURE, dg.DagsterEventType.RUN_FAILURE})
    events = [entry.dagster_event for entry in entries if entry.dagster_event]
    step_errors = [text for event in events if event.is_step_failure and (text := _step_error(event))]
    messages = [event.message for event in events if event.is_failure and event.message]
    return Alert(_run_subject(run_id), "FAILED", "; ".join(step_errors) or " ".join(messages) or "unknown reason")


def _step_error(event: dg.DagsterEvent) -> str | None:
    """Return the description of a failed step's `dg.Failure`, else its exception's message, else None."""
    failure = event.step_failure_data
    if failure.user_failure_data and failure.user_failure_data.description:
        return failure.user_failure_data.description
    return failure.error.message.strip() if failure.error else None
