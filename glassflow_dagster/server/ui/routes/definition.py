"""The definition of a pipeline: its text and versions, and edits with what they mean for the checkpoint."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request, Response

from glassflow_dagster.definition.definition_text import parse_definition
from glassflow_dagster.definition.load import warnings
from glassflow_dagster.definition.problems import BUILT, DefinitionError, Problem
from glassflow_dagster.definition.yaml_text import write_yaml
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.api_error import ApiError, bad_request, unprocessable
from glassflow_dagster.server.api.catalog import v3_of
from glassflow_dagster.server.api.edit_effect import EditEffect, edit_effect
from glassflow_dagster.server.api.files import Stored
from glassflow_dagster.server.api.secrets import masked
from glassflow_dagster.server.api.services import Given, Services
from glassflow_dagster.server.ui.forms import Form
from glassflow_dagster.server.ui.page_routes import ChangingPageRoute, PageRoute
from glassflow_dagster.server.ui.rendering import redirect, render
from glassflow_dagster.server.ui.routes.pipeline import head_of

reading = APIRouter(prefix="/pipelines/{pipeline_id}/definition", route_class=PageRoute)
changing = APIRouter(prefix="/pipelines/{pipeline_id}/definition", route_class=ChangingPageRoute)


@dataclass(frozen=True)
class Edit:
    """An edit that is not saved yet.

    difference: lines of a unified diff.
    effect: None for an invalid definition.
    """

    difference: tuple[str, ...]
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...] = ()
    effect: EditEffect | None = None

    @property
    def can_be_saved(self) -> bool:
        """Whether the pipeline would go on with it."""
        return self.effect is not None and self.effect.allowed and bool(self.difference)


@reading.get("")
def show(pipeline_id: str, request: Request, services: Given) -> Response:
    """Show the definition and its versions."""
    stored = services.catalog.stored(pipeline_id)
    return render(
        request, "definition.html", head=head_of(request, services, pipeline_id), text=_text(stored),
        file=stored.file, versions=services.catalog.history(pipeline_id),
    )  # fmt: skip


@reading.get("/versions/{number}")
def version(pipeline_id: str, number: int, request: Request, services: Given) -> Response:
    """Show how an earlier version differs from the current one."""
    stored = services.catalog.stored(pipeline_id)
    _, earlier = services.catalog.version(pipeline_id, number)
    current = services.catalog.definition(pipeline_id)[1]
    return render(
        request, "version.html", head=head_of(request, services, pipeline_id), number=number,
        difference=_difference(write_yaml(current), write_yaml(earlier)), etag=stored.etag,
    )  # fmt: skip


@reading.get("/edit")
def edit(pipeline_id: str, request: Request, services: Given) -> Response:
    """Show the definition in a form."""
    stored = services.catalog.stored(pipeline_id)
    head = head_of(request, services, pipeline_id)
    return render(request, "edit.html", head=head, text=_text(stored), etag=stored.etag, edit=None)


@reading.get("/edit/save")
def save_button(pipeline_id: str, request: Request, services: Given) -> Response:
    """Return the button that saves an edit; while the pipeline runs, the one that stops it."""
    return render(request, "parts/save.html", head=head_of(request, services, pipeline_id))


@reading.post("/edit")
async def review(pipeline_id: str, request: Request, services: Given, form: Form) -> Response:
    """Show what an edit changes, and what it means for the checkpoint; nothing is written."""
    text = form.get("text", "")
    found = await services.slow.run(_review, services, pipeline_id, text)
    head = head_of(request, services, pipeline_id)
    return render(request, "edit.html", head=head, text=text, etag=form.get("etag", ""), edit=found)


@changing.post("/save")
async def save(pipeline_id: str, services: Given, form: Form) -> Response:
    """Replace the definition and resume the pipeline, unless its checkpoint could not go on."""

    def work() -> None:
        found = _review(services, pipeline_id, form.get("text", ""))
        if found.problems:
            raise unprocessable("the definition is invalid", problems=found.problems)
        if found.effect and not found.effect.allowed:
            raise bad_request(found.effect.reason)
        services.pipelines.edit(pipeline_id, _parsed(form.get("text", "")), form.get("etag"))

    await services.slow.run(work)
    return redirect(f"/pipelines/{pipeline_id}")


@changing.post("/rollback")
async def rollback(pipeline_id: str, services: Given, form: Form) -> Response:
    """Make an earlier version the current one, and resume the pipeline."""
    number = form.get("version", "")
    if not number.isdecimal():
        raise bad_request("the form names no version; go back and choose one")
    await services.slow.run(services.pipelines.rollback, pipeline_id, int(number), form.get("etag"))
    return redirect(f"/pipelines/{pipeline_id}")


def _review(services: Services, pipeline_id: str, text: str) -> Edit:
    stored = services.catalog.stored(pipeline_id)
    try:
        sent = _parsed(text)
        difference = _difference(_text(stored), write_yaml(dict(sent)))
        if sent.get("pipeline_id") != pipeline_id:
            return Edit(difference, (Problem("pipeline_id", "cannot be changed; make a new pipeline with another id"),))
        config = services.pipelines.load_sent(sent)
        services.pipelines.require_own_tables(config)
    except ApiError as error:
        return Edit(_difference(_text(stored), text), error.problems or (Problem("", str(error)),))
    try:
        old = services.catalog.load(stored)
    except ApiError:
        old = None
    try:
        effect = edit_effect(old, config, services.catalog.state)
    except GlassflowError as error:
        effect = EditEffect("refused", str(error))
    return Edit(difference, (), tuple(warnings(config)), effect)


def _parsed(text: str) -> Mapping[str, Any]:
    try:
        return parse_definition(Path(BUILT), text)
    except DefinitionError as error:
        raise unprocessable("the text is no definition", problems=error.problems) from None


def _text(stored: Stored) -> str:
    """Return a definition as YAML, with masks for its secrets."""
    return write_yaml(masked(v3_of(stored.raw, stored.file)))


def _difference(old: str, new: str) -> tuple[str, ...]:
    """Return the lines of a diff, without the names of files."""
    return tuple(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=2))[2:]
