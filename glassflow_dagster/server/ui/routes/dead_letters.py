"""The dead letters of a pipeline: browse, filter, replay, discard."""

from typing import Any

from fastapi import APIRouter, Request, Response

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.api_error import ApiError, bad_request
from glassflow_dagster.server.api.reprocess_request import begin_reprocess, queue_of
from glassflow_dagster.server.api.services import Given, Services
from glassflow_dagster.server.ui.forms import Form
from glassflow_dagster.server.ui.page_routes import ChangingPageRoute, PageRoute
from glassflow_dagster.server.ui.rendering import redirect, render
from glassflow_dagster.server.ui.routes.pipeline import head_of

reading = APIRouter(prefix="/pipelines/{pipeline_id}/dead-letters", route_class=PageRoute)
changing = APIRouter(prefix="/pipelines/{pipeline_id}/dead-letters", route_class=ChangingPageRoute)
_AT_ONCE = 50
# GlassFlow's words for the stages, and what they mean here.
COMPONENTS = {
    "ingestor": "decode", "dedup": "filter, transform, dedup", "join": "join", "sink": "mapping, insert",
}  # fmt: skip


@reading.get("")
async def show(  # noqa: PLR0913, PLR0917 - the parts of an address
    pipeline_id: str, request: Request, services: Given, component: str = "", reason: str = "", cursor: str = "",
    replayed: int | None = None,
) -> Response:  # fmt: skip
    """Show dead letters that wait, the oldest first, a page at a time."""
    head = head_of(request, services, pipeline_id)
    page, state, error = await services.slow.run(_page, services, pipeline_id, component, reason, cursor)
    return render(
        request, "dead_letters.html", head=head, page=page, state=state, error=error, components=COMPONENTS,
        component=component, reason=reason, replayed=replayed,
    )  # fmt: skip


@changing.post("/replay")
async def replay(pipeline_id: str, request: Request, services: Given, form: Form) -> Response:
    """Send dead letters that wait to the running pipeline again: the chosen ones, or all."""
    request_id, _ = await services.slow.run(begin_reprocess, services, pipeline_id, _ids(form))
    request.state.audit = {"reprocess": request_id}
    return redirect(f"/pipelines/{pipeline_id}/dead-letters?replayed=1")


@changing.post("/discard")
async def discard(pipeline_id: str, services: Given, form: Form) -> Response:
    """Delete dead letters that wait: the chosen ones."""
    ids = _ids(form)
    if ids is None:
        raise bad_request("choose the dead letters to delete; all of them: glassflow-dagster dead-letters purge")
    await services.slow.run(lambda: queue_of(services, pipeline_id).discard(ids))
    return redirect(f"/pipelines/{pipeline_id}/dead-letters")


def _ids(form: dict[str, str]) -> list[str] | None:
    """Return the ids of the chosen dead letters; None for all. Raises `ApiError` where none is chosen."""
    if form.get("which") == "all":
        return None
    ids = form.get("id", "").splitlines()
    if not ids:
        raise bad_request("no dead letter is chosen; tick some, or replay all")
    return ids


def _page(
    services: Services, pipeline_id: str, component: str, reason: str, cursor: str
) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Return a page of dead letters, their numbers, and why there is none."""
    empty: dict[str, Any] = {"messages": [], "has_more": False}
    try:
        queue = queue_of(services, pipeline_id)
        return queue.page(_AT_ONCE, cursor or None, component or None, reason), queue.state(), ""
    except (ApiError, GlassflowError) as error:
        return empty, {}, str(error)
