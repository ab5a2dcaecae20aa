"""Sends the dead letters of a pipeline to it again, in a thread: they may be many."""

import logging
import uuid
from collections.abc import Sequence
from threading import Thread

from glassflow_dagster.api.dead_letter_queue import DeadLetterQueue
from glassflow_dagster.api.errors import conflict
from glassflow_dagster.api.services import Services
from glassflow_dagster.api.states import Status
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.dead_letters.replay import replay
from glassflow_dagster.errors import GlassflowError

_log = logging.getLogger(__name__)


def queue_of(services: Services, pipeline_id: str) -> DeadLetterQueue:
    """Return the dead letters of a pipeline; raises `ApiError`."""
    services.catalog.stored(pipeline_id, f'dlq for pipeline_id "{pipeline_id}" does not exist')
    return DeadLetterQueue(services.catalog.config(pipeline_id), services.catalog.files.consumed_folder)


def begin_reprocess(services: Services, pipeline_id: str, ids: Sequence[str] | None) -> tuple[str, list[str]]:
    """Begin to send dead letters that wait to the running pipeline again; raises `ApiError`.

    ids: None for all. Return the id of the request in the audit log, which says what became of it, and the ids of those
    that do not wait any more.
    """
    queue = queue_of(services, pipeline_id)
    status = services.catalog.status(pipeline_id)
    if status is not Status.RUNNING:
        text = "pipeline must be in the Running state to reprocess dead letters"
        raise conflict(text, pipeline_id=pipeline_id, current_status=status)
    conditions, missing = queue.replay_conditions(ids)
    request_id = f"dlq-reprocess-{uuid.uuid4()}"
    work = (services, queue.config, conditions, request_id)
    Thread(target=_replay, args=work, name=request_id, daemon=True).start()
    return request_id, missing


def _replay(services: Services, config: PipelineConfig, conditions: list[str], request_id: str) -> None:
    """Replay dead letters; what became of it goes to the audit log, and to who started the API."""
    outcome: list[str] = []
    try:
        for condition in conditions:
            outcome += replay(config, condition, lambda _: None).lines(config.dead_letters.max_attempts)
    except GlassflowError as error:
        outcome.append(str(error))
        services.pipelines.report(f"{config.pipeline_id}: reprocess: {error}")
    except Exception as error:  # noqa: BLE001 - it would end only this thread
        _log.exception("%s: reprocess", config.pipeline_id)
        outcome.append(type(error).__name__)
    services.audit.end(request_id, pipeline_id=config.pipeline_id, outcome=outcome or ["no dead letter waits"])
