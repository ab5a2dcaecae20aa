"""Adds the pages to the application of the API."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.resources import files

from fastapi import FastAPI, Request, Response
from fastapi.responses import RedirectResponse
from starlette.routing import Route

from glassflow_dagster.server.api.api_error import not_found
from glassflow_dagster.server.api.guard import PAGES
from glassflow_dagster.server.api.services import Services
from glassflow_dagster.server.ui.draft_store import DraftStore
from glassflow_dagster.server.ui.page_routes import error_page
from glassflow_dagster.server.ui.recent import Recent
from glassflow_dagster.server.ui.routes import dead_letters, definition, live_samples, overview, pipeline, wizard

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_CACHED = {"cache-control": "max-age=3600"}


@dataclass(frozen=True)
class PageState:
    """What the pages have besides the API's services. dagster: the address of Dagster's page, empty for none."""

    recent: Recent
    dagster: str
    drafts: DraftStore = field(default_factory=DraftStore)


def pages(dagster: str = "") -> Callable[[FastAPI], None]:
    """Return a function that adds the pages to an application. dagster: the address of Dagster's page, if any."""

    def add(app: FastAPI) -> None:
        services: Services = app.state.services
        recent = Recent(services.catalog)
        app.state.pages = PageState(recent, dagster.rstrip("/"))
        # Before the API's own answer to "/", which leads to its documentation.
        app.router.routes.insert(0, Route("/", _home))
        for router in (
            overview.router, wizard.reading, wizard.changing, live_samples.router, pipeline.reading, pipeline.changing,
            definition.reading, definition.changing, dead_letters.reading, dead_letters.changing,
        ):  # fmt: skip
            app.include_router(router, prefix=PAGES.rstrip("/"), include_in_schema=False)
        app.add_api_route(f"{PAGES}static/{{name}}", _static, include_in_schema=False)
        app.add_api_route(f"{PAGES}{{path:path}}", _unknown, include_in_schema=False)
        recent.start()

    return add


async def _home(_request: Request) -> Response:
    return RedirectResponse(PAGES)


async def _static(name: str, request: Request) -> Response:
    """Answer with a file of this package."""
    file = next(
        (each for each in files("glassflow_dagster.server.ui").joinpath("static").iterdir() if each.name == name), None
    )
    kind = _TYPES.get(name.rpartition(".")[2])
    if file is None or kind is None:
        return error_page(request, not_found("there is no such file"))
    return Response(file.read_bytes(), media_type=kind, headers=_CACHED)


async def _unknown(path: str, request: Request) -> Response:
    return error_page(request, not_found(f"there is no page /{path}"))
