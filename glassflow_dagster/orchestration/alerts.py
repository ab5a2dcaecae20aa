"""Alerts on what Dagster itself stays silent about, and on failed runs.

A failed check that does not block leaves its run a success, so no run status tells of it. The sensor compares each
check's last result with the one it saw before and speaks up at the edges only: once when a check turns, once when it
is well again.
"""

import json
from collections.abc import Mapping

import dagster as dg

from glassflow_dagster.resources.alerts import Alert, AlertResource

ALERT_INTERVAL = 30  # seconds
PASSED = "PASSED"


@dg.sensor(
    name="data_quality_alerts",
    description="Sends an alert when an asset check turns red or yellow, and when it is green again.",
    minimum_interval_seconds=ALERT_INTERVAL,
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def data_quality_alerts(context: dg.SensorEvaluationContext, alerts: AlertResource) -> dg.SkipReason:
    """Send the alerts that are due. When one can't be sent the tick fails, and the next one tries again."""
    seen: dict[str, str] = json.loads(context.cursor) if context.cursor else {}
    results = latest_results(context)
    for alert in due_alerts(seen, results):
        alerts.send(alert, context.log)
    # A check that is just being run has no result for a moment; what it had before is not forgotten for that.
    context.update_cursor(json.dumps(seen | {subject: state for subject, (state, _) in results.items()}))
    return dg.SkipReason(f"{len(results)} checks have results")


@dg.run_failure_sensor(
    name="run_failure_alerts",
    description="Sends an alert when a run failed, such as one whose stream did not start.",
    default_status=dg.DefaultSensorStatus.RUNNING,
)
def run_failure_alerts(context: dg.RunFailureSensorContext, alerts: AlertResource) -> None:
    """Send the alert for one failed run."""
    causes = [cause for event in context.get_step_failure_events() if (cause := _cause(event))]
    text = "; ".join(causes) or context.failure_event.message or "no reason is known"
    alerts.send(Alert(f"run {context.dagster_run.run_id}", "FAILED", text), context.log)


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


def due_alerts(seen: Mapping[str, str], results: Mapping[str, tuple[str, str]]) -> list[Alert]:
    """Give the alerts for what changed since `seen` (check -> state); a first pass is no news."""
    return [
        Alert(subject, "RESOLVED" if state == PASSED else state, text)
        for subject, (state, text) in results.items()
        if seen.get(subject, PASSED) != state
    ]


def _cause(event: dg.DagsterEvent) -> str | None:
    failure = event.step_failure_data
    if failure.user_failure_data and failure.user_failure_data.description:
        return failure.user_failure_data.description
    return failure.error.message.strip() if failure.error else None
