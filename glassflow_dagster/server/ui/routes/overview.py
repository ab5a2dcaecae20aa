"""All pipelines, and help on the keys of a definition."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request, Response

from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.api_error import ApiError
from glassflow_dagster.server.api.metrics_summary import metrics_summary
from glassflow_dagster.server.api.services import Given, Services
from glassflow_dagster.server.ui.page_routes import PageRoute
from glassflow_dagster.server.ui.rendering import render
from glassflow_dagster.server.wizard.keys_help import find_keys

router = APIRouter(route_class=PageRoute)


@dataclass(frozen=True)
class _Row:
    """A pipeline with its figures; none where it has never run."""

    entry: dict[str, Any]
    figures: dict[str, Any]


def _rows(services: Services) -> Iterator[_Row]:
    for entry in services.catalog.entries():
        try:
            figures = metrics_summary(services.catalog, entry["pipeline_id"])
        except (ApiError, GlassflowError):
            # The entry has the error.
            figures = {}
        yield _Row(entry, figures)


@router.get("/")
def show(request: Request, services: Given) -> Response:
    """Show all pipelines."""
    return render(request, "overview.html", rows=[*_rows(services)], folder=services.catalog.files.folder)


@router.get("/parts/pipelines")
def table(request: Request, services: Given) -> Response:
    """Return the table of the pipelines."""
    return render(request, "parts/pipelines.html", rows=[*_rows(services)])


@router.get("/parts/keys")
def keys(request: Request, q: str = "") -> Response:
    """Return the keys of a definition whose path or description has a word."""
    return render(request, "parts/keys.html", keys=find_keys(q), query=q)
