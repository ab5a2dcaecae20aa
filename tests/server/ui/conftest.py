"""The pages, served by this process."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from glassflow_dagster.server.ui.application import PageState, pages
from tests.server.api.conftest import Api, no_drivers, serve

__all__ = ["no_drivers", "serve"]


@dataclass
class Site(Api):
    """A running API with pages, and what these keep."""

    pages: PageState


@pytest.fixture
def site(serve: Callable[..., Api], no_drivers: None) -> Iterator[Site]:  # noqa: ARG001 - it patches
    kept: list[PageState] = []

    def extend(app: FastAPI) -> None:
        pages("http://127.0.0.1:3000")(app)
        kept.append(app.state.pages)

    api = serve(extend=extend)
    yield Site(**vars(api), pages=kept[0])
    api.wait_for_starts()


def send_form(api: Api, path: str, **fields: str) -> httpx.Response:
    """Send a form as a browser does from a page of the server."""
    return api.request("POST", path, data=fields, headers={"origin": api.url})


def send_to(api: Api, path: str, **how: Any) -> httpx.Response:
    return api.request("POST", path, **how)
