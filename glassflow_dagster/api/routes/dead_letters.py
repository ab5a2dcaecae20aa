"""The requests on a pipeline's dead letters."""

import logging
import uuid
from http import HTTPStatus
from threading import Thread
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from glassflow_dagster.api.bodies import Body
from glassflow_dagster.api.dead_letter_queue import DeadLetterQueue
from glassflow_dagster.api.errors import bad_request, conflict
from glassflow_dagster.api.routes.audited import AuditedRoute
from glassflow_dagster.api.services import Given, Services
from glassflow_dagster.api.states import Status
from glassflow_dagster.config.model.pipeline import PipelineConfig
from glassflow_dagster.dead_letters.replay import replay
from glassflow_dagster.errors import GlassflowError

_PREFIX = "/api/v1/pipeline/{pipeline_id}/dlq"
_MOST_IDS = 1000
BatchSize = Annotated[int, Query(ge=1, le=_MOST_IDS)]
_log = logging.getLogger(__name__)
reading = APIRouter(prefix=_PREFIX, tags=["dead letters"])
changing = APIRouter(prefix=_PREFIX, tags=["dead letters"], route_class=AuditedRoute)


class Selection(Body):
    """Which dead letters: all that wait, or those with these ids."""

    mode: Literal["all", "selected"]
    message_ids: list[Annotated[str, Field(max_length=2000)]] = Field(default=[], max_length=_MOST_IDS)

    @property
    def ids(self) -> list[str] | None:
        """The ids; None for all. Raises `ApiError` where there are none to select."""
        if self.mode == "selected" and not self.message_ids:
            raise bad_request("message_ids must be non-empty when mode is selected")
        return self.message_ids if self.mode == "selected" else None


def _queue(services: Services, pipeline_id: str) -> DeadLetterQueue:
    services.catalog.stored(pipeline_id, f'dlq for pipeline_id "{pipeline_id}" does not exist')
    return DeadLetterQueue(services.catalog.config(pipeline_id), services.catalog.files.consumed_folder)


@reading.get("/state")
async def get_state(pipeline_id: str, services: Given) -> dict[str, Any]:
    """Get the numbers of dead letters, and the times of the last one and of the last consumer."""
    return await services.slow.run(lambda: _queue(services, pipeline_id).state())


@reading.get("/list")
async def list_page(
    pipeline_id: str,
    services: Given,
    batch_size: BatchSize = 100,
    cursor: str | None = None,
    component: str | None = None,
) -> dict[str, Any]:
    """List dead letters that wait, the oldest first, a page at a time; nothing changes."""
    return await services.slow.run(lambda: _queue(services, pipeline_id).page(batch_size, cursor, component))


# It changes the position of consumers.
@changing.get("/consume", response_model=None)
async def consume(
    pipeline_id: str, services: Given, batch_size: BatchSize = _MOST_IDS
) -> list[dict[str, Any]] | Response:
    """Get the oldest dead letters that no consumer has got yet; 204 without one. They can still be listed."""
    found = await services.slow.run(lambda: _queue(services, pipeline_id).consume(batch_size))
    return found or Response(status_code=HTTPStatus.NO_CONTENT)


@changing.post("/purge", status_code=HTTPStatus.NO_CONTENT)
async def purge(pipeline_id: str, services: Given) -> None:
    """Delete all dead letters."""
    await services.slow.run(lambda: _queue(services, pipeline_id).purge())


@changing.post("/discard")
async def discard(pipeline_id: str, selection: Selection, services: Given) -> dict[str, Any]:
    """Delete dead letters that wait, all or some."""
    ids = selection.ids
    count = await services.slow.run(lambda: _queue(services, pipeline_id).discard(ids))
    return {"request_id": f"dlq-discard-{uuid.uuid4()}", "discarded_count": count}


@changing.post("/reprocess", status_code=HTTPStatus.ACCEPTED)
async def reprocess(pipeline_id: str, selection: Selection, services: Given, request: Request) -> dict[str, Any]:
    """Send dead letters that wait to the running pipeline again, each once; the audit log says what became of it."""
    ids = selection.ids

    def begin() -> tuple[str, list[str]]:
        queue = _queue(services, pipeline_id)
        status = services.catalog.status(pipeline_id)
        if status is not Status.RUNNING:
            text = "pipeline must be in the Running state to reprocess dead letters"
            raise conflict(text, pipeline_id=pipeline_id, current_status=status)
        conditions, missing = queue.replay_conditions(ids)
        request_id = f"dlq-reprocess-{uuid.uuid4()}"
        work = (services, queue.config, conditions, request_id)
        Thread(target=_replay, args=work, name=request_id, daemon=True).start()
        return request_id, missing

    request_id, missing = await services.slow.run(begin)
    request.state.audit = {"reprocess": request_id}
    return {
        "request_id": request_id, "status": "accepted", **({"missing_message_ids": missing} if missing else {}),
    }  # fmt: skip


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
