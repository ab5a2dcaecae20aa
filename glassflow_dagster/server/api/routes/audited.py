"""Routes that change something: each request has its lines in the audit log."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.api_error import ApiError
from glassflow_dagster.server.api.services import Services

_log = logging.getLogger(__name__)


class AuditedRoute(APIRoute):
    """A route whose requests are in the audit log of the application (`Services.audit`)."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of a request, which writes a line before and after."""
        handle = super().get_route_handler()

        async def audited(request: Request) -> Response:
            services: Services = request.app.state.services
            log = services.audit
            request_id = await run_in_threadpool(
                log.begin,
                client=request.client.host if request.client else "",
                method=request.method,
                path=request.url.path,
                query=request.url.query,
                user_agent=request.headers.get("user-agent", ""),
            )
            status, etag, reason = 500, "", ""
            try:
                response = await handle(request)
                status, etag = response.status_code, response.headers.get("etag", "")
            except ApiError as error:
                status, reason = int(error.status), error.message
                raise
            except RequestValidationError:
                status = 422
                raise
            else:
                return response
            finally:
                # What the handler knows, such as the id of a new pipeline.
                facts: dict[str, Any] = getattr(request.state, "audit", {})
                try:
                    await run_in_threadpool(log.end, request_id, status=status, etag=etag, reason=reason, **facts)
                except GlassflowError as error:
                    # It is done, and its first line is there.
                    _log.error("%s", error)

        return audited
