"""What the operators say of an application, as the state of its stream."""

from collections.abc import Mapping
from typing import Any

from glassflow_dagster.control.status import StreamState

_STARTING, _RUNNING, _FAILED, _STOPPED = (
    StreamState.STARTING, StreamState.RUNNING, StreamState.FAILED, StreamState.STOPPED,
)  # fmt: skip

_KUBEFLOW = {
    "": (_STARTING, "the operator has not seen it yet; is it installed, and does it watch this namespace?"),
    "SUBMITTED": (_STARTING, "its driver's pod is being started"),
    "RUNNING": (_RUNNING, "its driver's pod runs"),
    "PENDING_RERUN": (_STARTING, "its driver is about to be started again"),
    "INVALIDATING": (_STARTING, "its driver is being replaced"),
    "RESUMING": (_STARTING, "it is being resumed"),
    # With restartPolicy Always, the operator starts it again after each of these.
    "SUCCEEDING": (_STARTING, "its driver has ended, and is about to be started again"),
    "FAILING": (_STARTING, "its driver has failed, and is about to be started again"),
    "SUSPENDING": (_STOPPED, "it is being suspended"),
    "SUSPENDED": (_STOPPED, "it is suspended"),
    "COMPLETED": (_STOPPED, "its driver has ended"),
    "FAILED": (_FAILED, "its driver has failed"),
    "SUBMISSION_FAILED": (_FAILED, "the operator could not start its driver"),
    "UNKNOWN": (_FAILED, "the operator has lost sight of its driver"),
}
_APACHE = {
    "": (_STARTING, "the operator has not seen it yet; is it installed, and does it watch this namespace?"),
    "Submitted": (_STARTING, "it is submitted"),
    "ScheduledToRestart": (_STARTING, "its driver is about to be started again"),
    "DriverRequested": (_STARTING, "its driver's pod is being started"),
    "DriverStarted": (_STARTING, "its driver's pod is being started"),
    "DriverReady": (_RUNNING, "its driver's pod runs"),
    "InitializedBelowThresholdExecutors": (_RUNNING, "its driver's pod runs, with fewer executors than asked for"),
    "RunningHealthy": (_RUNNING, "its driver's pod runs"),
    "RunningWithBelowThresholdExecutors": (_RUNNING, "its driver's pod runs, with fewer executors than asked for"),
    "RunningWithPartialCapacity": (_RUNNING, "its driver's pod runs, with fewer executors than asked for"),
    # The operator starts it again after each of these, as its restartPolicy is Always.
    "DriverEvicted": (_STARTING, "its driver's pod was evicted, and is about to be started again"),
    "DriverStartTimedOut": (_STARTING, "its driver's pod did not start in time"),
    "DriverReadyTimedOut": (_STARTING, "its driver was not ready in time"),
    "ExecutorsStartTimedOut": (_STARTING, "its executors did not start in time"),
    "Failed": (_STARTING, "its driver has failed, and is about to be started again"),
    "Succeeded": (_STARTING, "its driver has ended, and is about to be started again"),
    "SchedulingFailure": (_FAILED, "its pods could not be created"),
    "ResourceReleased": (_STOPPED, "its pods are gone"),
    "TerminatedWithoutReleaseResources": (_STOPPED, "its driver has ended"),
}


def state_of(application: Mapping[str, Any]) -> tuple[StreamState, str]:
    """Return the state of a stream from the status of its application, in either dialect, and what that means."""
    status = application.get("status") or {}
    if str(application.get("apiVersion", "")).startswith("spark.apache.org/"):
        current = status.get("currentState") or {}
        word, reason = str(current.get("currentStateSummary") or ""), current.get("message")
        state, meaning = _APACHE.get(word, (_FAILED, f"the operator says {word}"))
    else:
        current = status.get("applicationState") or {}
        word, reason = str(current.get("state") or ""), current.get("errorMessage")
        state, meaning = _KUBEFLOW.get(word, (_FAILED, f"the operator says {word}"))
    first = (str(reason).strip().splitlines() or [""])[0] if reason else ""
    return state, f"{meaning}: {first}" if first and state is not _RUNNING else meaning
