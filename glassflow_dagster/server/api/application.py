"""The ASGI application: routes, and errors in GlassFlow's form."""

from collections.abc import Callable
from http import HTTPStatus
from importlib.metadata import version

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from glassflow_dagster.definition.problems import Problem
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.api_error import ApiError, bad_request, unavailable, unprocessable
from glassflow_dagster.server.api.guard import Guard, Rules
from glassflow_dagster.server.api.routes import dead_letters, evaluations, pipelines, servers, service
from glassflow_dagster.server.api.services import Services

_DESCRIPTION = "Pipelines from Kafka to ClickHouse: GlassFlow's API v1, and what this project adds."


def make_application(services: Services, rules: Rules, extend: Callable[[FastAPI], None] | None = None) -> Guard:
    """Return the application, which answers what the rules let through. extend: adds further routes, such as pages."""
    app = make_api()
    app.state.services = services
    if extend:
        extend(app)
    return Guard(app, rules)


def make_api() -> FastAPI:
    """Return the API, which works once its state has `services`."""
    app = FastAPI(
        title="glassflow-dagster", version=version("glassflow-dagster"), description=_DESCRIPTION,
        openapi_url="/api/v1/openapi.json", docs_url=None, redoc_url=None,
    )  # fmt: skip
    for router in (
        pipelines.reading, pipelines.changing, dead_letters.reading, dead_letters.changing, servers.router,
        evaluations.router, service.router,
    ):  # fmt: skip
        app.include_router(router)
    app.add_exception_handler(ApiError, _of_api)
    app.add_exception_handler(GlassflowError, _of_server)
    app.add_exception_handler(RequestValidationError, _of_body)
    app.add_exception_handler(HTTPException, _of_route)
    app.add_exception_handler(Exception, _of_defect)
    return app


def _answer(error: ApiError) -> JSONResponse:
    return JSONResponse(error.body, status_code=error.status)


async def _of_api(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return _answer(error)


async def _of_server(_request: Request, error: Exception) -> JSONResponse:
    """Answer for a server, a file or another part of the surroundings that fails; the text says which, and a remedy."""
    assert isinstance(error, GlassflowError)
    return _answer(unavailable(error))


async def _of_body(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    errors = error.errors()
    if any(each["type"] == "json_invalid" for each in errors):
        return _answer(bad_request("invalid json: " + str(errors[0].get("ctx", {}).get("error", "not readable"))))
    problems = [Problem(".".join(map(str, each["loc"])), str(each["msg"])) for each in errors]
    return _answer(unprocessable("validation failed", problems=problems))


async def _of_route(request: Request, error: Exception) -> JSONResponse:
    """Answer for an unknown path, or another method."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    text = {
        HTTPStatus.NOT_FOUND: f"{request.url.path} is not served; see /api/v1/docs",
        HTTPStatus.METHOD_NOT_ALLOWED: f"{request.method} {request.url.path} is not served; see /api/v1/docs",
    }.get(status, str(error.detail))
    code = status.phrase.lower().replace(" ", "_")
    return JSONResponse(ApiError(status, code, text).body, status_code=status, headers=error.headers)


async def _of_defect(_request: Request, _error: Exception) -> JSONResponse:
    return _answer(ApiError(HTTPStatus.INTERNAL_SERVER_ERROR, "internal_error", "Internal server error"))
