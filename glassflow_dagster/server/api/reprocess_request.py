"""A request to send dead letters of a pipeline to it again."""

import uuid
from collections.abc import Sequence

from glassflow_dagster.server.api.api_error import conflict
from glassflow_dagster.server.api.dead_letter_queue import DeadLetterQueue
from glassflow_dagster.server.api.services import Services
from glassflow_dagster.server.api.states import Status


def queue_of(services: Services, pipeline_id: str) -> DeadLetterQueue:
    """Return the dead letters of a pipeline; raises `ApiError`."""
    services.catalog.stored(pipeline_id, f'dlq for pipeline_id "{pipeline_id}" does not exist')
    return DeadLetterQueue(services.catalog.config(pipeline_id), services.catalog.files.consumed_folder)


def begin_reprocess(services: Services, pipeline_id: str, ids: Sequence[str] | None) -> tuple[str, list[str]]:
    """Accept a request to send dead letters that wait to the running pipeline again; raises `ApiError`.

    It is done after the earlier ones. ids: None for all that wait now. Return the id of the request in the audit log,
    which says what became of it, and the ids of those that do not wait any more.
    """
    queue = queue_of(services, pipeline_id)
    status = services.catalog.status(pipeline_id)
    if status is not Status.RUNNING:
        text = "pipeline must be in the Running state to reprocess dead letters"
        raise conflict(text, pipeline_id=pipeline_id, current_status=status)
    conditions, missing = queue.replay_conditions(ids)
    request_id = f"dlq-reprocess-{uuid.uuid4()}"
    services.replays.add(pipeline_id, request_id, conditions)
    return request_id, missing
