"""The requests on the API itself: health, platform, documentation."""

from http import HTTPStatus
from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from glassflow_dagster.server.api.api_error import ApiError
from glassflow_dagster.server.api.docs_page import docs_page
from glassflow_dagster.server.api.services import Given

router = APIRouter(tags=["service"])


@router.get("/api/v1/healthz")
def healthz() -> Response:
    """Answer 200."""
    return Response()


@router.get("/api/v2/healthz")
def healthz_v2() -> dict[str, str]:
    """Answer that the API works."""
    return {"status": "ok"}


@router.get("/api/v1/platform")
def platform() -> dict[str, str]:
    """Say what starts the pipelines, and the version of this API's package."""
    return {"orchestrator": "local", "api_version": version("glassflow-dagster")}


@router.get("/api/v1/pipeline/{pipeline_id}/streams", tags=["pipelines"])
def streams(pipeline_id: str, services: Given) -> dict[str, Any]:
    """Answer 501: there are no NATS streams."""
    services.catalog.stored(pipeline_id)
    raise ApiError(
        HTTPStatus.NOT_IMPLEMENTED, "not_implemented", "feature not implemented for this version",
        {"pipeline_id": pipeline_id, "error": "pipelines read Kafka topics; there are no NATS streams"},
    )  # fmt: skip


@router.get("/api/v1/docs", include_in_schema=False)
def docs(request: Request) -> HTMLResponse:
    """Show the requests of this API, without any other server's help."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    return HTMLResponse(docs_page(request.app.openapi()), headers={"content-security-policy": policy})


@router.get("/", include_in_schema=False)
def root() -> RedirectResponse:
    """Lead to the documentation."""
    return RedirectResponse("/api/v1/docs")
