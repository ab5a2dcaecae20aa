"""Renders templates to answers."""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from importlib.resources import files
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from glassflow_dagster.server.api.guard import PAGES

_HEADERS = {
    # Only what this server serves: no page of ours needs anything else, and none may be in a frame.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    # With the API's `no-referrer`, browsers send forms with `Origin: null`, which the guard cannot tell from others.
    "referrer-policy": "same-origin",
}
_UNKNOWN = "\N{EN DASH}"
_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def render(request: Request, template: str, status: int = HTTPStatus.OK, **values: Any) -> HTMLResponse:
    """Return the answer with a template; it may use `request`, and `pages` (`PageState`)."""
    pages = request.app.state.pages
    text = _ENVIRONMENT.get_template(template).render(request=request, pages=pages, root=PAGES.rstrip("/"), **values)
    return HTMLResponse(text, status_code=status, headers=_HEADERS)


def redirect(path: str) -> RedirectResponse:
    """Return the answer that leads a browser to another page. path: below the root of the pages."""
    return RedirectResponse(f"{PAGES.rstrip('/')}{path}", status_code=HTTPStatus.SEE_OTHER, headers=_HEADERS)


def _number(value: float | None, digits: int = 0) -> str:
    return _UNKNOWN if value is None else f"{value:,.{digits}f}"


def _seconds(value: float | None) -> str:
    """Return a duration as people read it."""
    if value is None:
        return _UNKNOWN
    if value < 1:
        return f"{value * 1000:,.0f} ms"
    return f"{value:,.1f} s" if value < 120 else f"{value / 60:,.0f} min"  # noqa: PLR2004 - two minutes


def _size(value: float | None) -> str:
    if value is None:
        return _UNKNOWN
    return next((f"{value / size:,.1f} {unit}" for unit, size in _UNITS if value >= size), f"{value:,.0f} B")


def _time(milliseconds: float) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _shown(value: bytes | None, length: int = 600) -> str:
    """Return a record's value as text, JSON in lines."""
    if value is None:
        return "(no value)"
    try:
        text = json.dumps(json.loads(value), indent=1, ensure_ascii=False)
    except (ValueError, RecursionError):
        text = value.decode(errors="replace")
    return text if len(text) <= length else f"{text[:length]} …"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


_FILTERS: Mapping[str, Any] = {
    "number": _number, "seconds": _seconds, "size": _size, "time": _time, "shown": _shown, "as_json": _json,
}  # fmt: skip


def _assets() -> str:
    """Return a text that is another one when a static file is; browsers keep these files."""
    contents = sorted(file.read_bytes() for file in files("glassflow_dagster.server.ui").joinpath("static").iterdir())
    return hashlib.sha256(b"".join(contents)).hexdigest()[:8]


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("glassflow_dagster.server.ui"), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(_FILTERS)
    environment.globals["assets"] = _assets()
    return environment


_ENVIRONMENT = _environment()
