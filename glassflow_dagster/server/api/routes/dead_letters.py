"""The requests on a pipeline's dead letters."""

import uuid
from http import HTTPStatus
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from glassflow_dagster.server.api.api_error import bad_request
from glassflow_dagster.server.api.bodies import Body
from glassflow_dagster.server.api.reprocess_request import begin_reprocess, queue_of
from glassflow_dagster.server.api.routes.audited import AuditedRoute
from glassflow_dagster.server.api.services import Given

_PREFIX = "/api/v1/pipeline/{pipeline_id}/dlq"
_MOST_IDS = 1000
BatchSize = Annotated[int, Query(ge=1, le=_MOST_IDS)]
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


@reading.get("/state")
async def get_state(pipeline_id: str, services: Given) -> dict[str, Any]:
    """Get the numbers of dead letters, and the times of the last one and of the last consumer."""
    return await services.slow.run(lambda: queue_of(services, pipeline_id).state())


@reading.get("/list")
async def list_page(
    pipeline_id: str,
    services: Given,
    batch_size: BatchSize = 100,
    cursor: str | None = None,
    component: str | None = None,
) -> dict[str, Any]:
    """List dead letters that wait, the oldest first, a page at a time; nothing changes."""
    return await services.slow.run(lambda: queue_of(services, pipeline_id).page(batch_size, cursor, component))


# It changes the position of consumers.
@changing.get("/consume", response_model=None)
async def consume(
    pipeline_id: str, services: Given, batch_size: BatchSize = _MOST_IDS
) -> list[dict[str, Any]] | Response:
    """Get the oldest dead letters that no consumer has got yet; 204 without one. They can still be listed."""
    found = await services.slow.run(lambda: queue_of(services, pipeline_id).consume(batch_size))
    return found or Response(status_code=HTTPStatus.NO_CONTENT)


@changing.post("/purge", status_code=HTTPStatus.NO_CONTENT)
async def purge(pipeline_id: str, services: Given) -> None:
    """Delete all dead letters."""
    await services.slow.run(lambda: queue_of(services, pipeline_id).purge())


@changing.post("/discard")
async def discard(pipeline_id: str, selection: Selection, services: Given) -> dict[str, Any]:
    """Delete dead letters that wait, all or some."""
    ids = selection.ids
    count = await services.slow.run(lambda: queue_of(services, pipeline_id).discard(ids))
    return {"request_id": f"dlq-discard-{uuid.uuid4()}", "discarded_count": count}


@changing.post("/reprocess", status_code=HTTPStatus.ACCEPTED)
async def reprocess(pipeline_id: str, selection: Selection, services: Given, request: Request) -> dict[str, Any]:
    """Send dead letters that wait to the running pipeline again, each once; the audit log says what became of it."""
    ids = selection.ids
    request_id, missing = await services.slow.run(begin_reprocess, services, pipeline_id, ids)
    request.state.audit = {"reprocess": request_id}
    return {
        "request_id": request_id, "status": "accepted", **({"missing_message_ids": missing} if missing else {}),
    }  # fmt: skip
