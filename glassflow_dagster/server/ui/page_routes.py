"""Routes whose errors are pages for people, not JSON."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.api_error import ApiError, bad_request, unavailable
from glassflow_dagster.server.api.routes.audited import AuditedRoute
from glassflow_dagster.server.ui.rendering import render

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class PageRoute(APIRoute):
    """A page, or a part of one."""

    def get_route_handler(self) -> _Handler:
        """Return the handler, which answers errors with a page."""
        return _explained(super().get_route_handler())


class ChangingPageRoute(AuditedRoute):
    """A form that changes something: it has its lines in the audit log."""

    def get_route_handler(self) -> _Handler:
        """Return the handler, which answers errors with a page."""
        return _explained(super().get_route_handler())


def _explained(handle: _Handler) -> _Handler:
    async def handler(request: Request) -> Response:
        try:
            return await handle(request)
        except ApiError as error:
            return error_page(request, error)
        except GlassflowError as error:
            return error_page(request, unavailable(error))
        except RequestValidationError:
            return error_page(request, bad_request("the address or the form has a value that cannot be; go back"))

    return handler


def error_page(request: Request, error: ApiError) -> Response:
    """Return the page of an error; for a part of a page only the text."""
    is_part = request.headers.get("hx-request") == "true"
    return render(request, "parts/error.html" if is_part else "error.html", int(error.status), error=error)
