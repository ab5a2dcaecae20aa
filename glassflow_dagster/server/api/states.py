"""GlassFlow's statuses of a pipeline, and which of them a request may change.

The names, codes and texts are those of GlassFlow's own API. A pipeline of a file that has never run is Stopped, so that
it can be resumed. One that Failed may be terminated, too: then Dagster does not start it again.
"""

from enum import StrEnum
from http import HTTPStatus

from glassflow_dagster.control.status import StreamState
from glassflow_dagster.server.api.api_error import ApiError


class Status(StrEnum):
    """The status of a pipeline."""

    CREATED = "Created"
    RUNNING = "Running"
    RESUMING = "Resuming"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    TERMINATING = "Terminating"
    FAILED = "Failed"


# A driver that is stalled or stale runs, and can be stopped.
OF_STREAM = {
    StreamState.RUNNING: Status.RUNNING,
    StreamState.WAITING: Status.RUNNING,
    StreamState.STALLED: Status.RUNNING,
    StreamState.STALE: Status.RUNNING,
    StreamState.STARTING: Status.RESUMING,
    StreamState.FAILED: Status.FAILED,
    StreamState.STOPPED: Status.STOPPED,
}
_NEXT: dict[Status, tuple[Status, ...]] = {
    Status.CREATED: (Status.RUNNING, Status.TERMINATING, Status.FAILED),
    Status.RUNNING: (Status.STOPPING, Status.TERMINATING, Status.FAILED),
    Status.RESUMING: (Status.RUNNING, Status.TERMINATING, Status.FAILED),
    Status.STOPPING: (Status.STOPPED, Status.TERMINATING, Status.FAILED),
    Status.STOPPED: (Status.RESUMING, Status.FAILED),
    Status.TERMINATING: (Status.STOPPED, Status.FAILED),
    Status.FAILED: (Status.RESUMING, Status.TERMINATING),
}
_IN_TRANSITION = frozenset({Status.RESUMING, Status.STOPPING, Status.TERMINATING})
# What can be edited, and deleted.
AT_REST = frozenset({Status.STOPPED, Status.FAILED})


def require_transition(pipeline_id: str, current: Status, requested: Status) -> None:
    """Raise `ApiError` where a pipeline cannot change from its status to another."""
    if current is requested:
        raise _refused(
            pipeline_id, current, requested, "PIPELINE_ALREADY_IN_STATE", f"Pipeline is already in {requested} state"
        )
    if current in _IN_TRANSITION and requested is not Status.TERMINATING:
        text = f"Pipeline is currently transitioning from {current} state, cannot perform {requested} operation"
        raise _refused(pipeline_id, current, requested, "PIPELINE_IN_TRANSITION", text)
    if requested not in _NEXT[current]:
        text = f"Invalid status transition from {current} to {requested}"
        raise _refused(pipeline_id, current, requested, "INVALID_STATUS_TRANSITION", text)


def require_at_rest(pipeline_id: str, current: Status, status: int = HTTPStatus.BAD_REQUEST) -> None:
    """Raise `ApiError`, with this HTTP status, where a pipeline cannot be edited now."""
    if current not in AT_REST:
        raise ApiError(
            status, "PIPELINE_NOT_STOPPED_FOR_EDIT",
            f"Pipeline must be stopped before editing, current status: {current}",
            {"pipeline_id": pipeline_id, "current_status": current, "requested_status": ""},
        )  # fmt: skip


def _refused(pipeline_id: str, current: Status, requested: Status, code: str, message: str) -> ApiError:
    details = {
        "pipeline_id": pipeline_id, "current_status": current, "requested_status": requested,
        "valid_transitions": list(_NEXT[current]),
    }  # fmt: skip
    return ApiError(HTTPStatus.BAD_REQUEST, code, message, details)
