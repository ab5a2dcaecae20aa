"""The steps to a new pipeline. Each is a form; its answers are kept on the server until the pipeline is created."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request, Response

from glassflow_dagster.definition.problems import Problem
from glassflow_dagster.server.api.api_error import ApiError, not_found
from glassflow_dagster.server.api.guard import PAGES
from glassflow_dagster.server.api.services import Given, Services
from glassflow_dagster.server.ui.draft_store import KeptDraft
from glassflow_dagster.server.ui.forms import Form
from glassflow_dagster.server.ui.page_routes import ChangingPageRoute, PageRoute
from glassflow_dagster.server.ui.rendering import redirect, render
from glassflow_dagster.server.wizard.questions import AnswerRefused, Question
from glassflow_dagster.server.wizard.steps import after, before, columns, is_open, next_open, step_named, steps_of
from glassflow_dagster.server.wizard.steps.review import final_definition
from glassflow_dagster.server.wizard.steps.step import Step

_COLUMN = re.compile(r"(column|type)\.\d+")
reading = APIRouter(prefix="/new", route_class=PageRoute)
changing = APIRouter(prefix="/new", route_class=ChangingPageRoute)


@dataclass(frozen=True)
class _Refused:
    """Answers that were refused: they are shown again, with what is wrong."""

    answers: Mapping[str, str]
    problems: tuple[Problem, ...]


@reading.post("")
def begin(request: Request) -> Response:
    """Begin a new pipeline."""
    return redirect(f"/new/{request.app.state.pages.drafts.add()}/kafka")


@reading.get("/{draft_id}/{step_name}")
async def ask(draft_id: str, step_name: str, request: Request, services: Given) -> Response:
    """Show a step; where those before it are not answered, the first of these."""
    kept, step = _kept(request, draft_id), _step(step_name)
    if not step.applies(kept.draft) or not is_open(kept.draft, step):
        return redirect(f"/new/{draft_id}/{next_open(kept.draft).name}")
    return await services.slow.run(_form, request, draft_id, kept, step)


@reading.post("/{draft_id}/{step_name}")
async def answer(draft_id: str, step_name: str, request: Request, services: Given, form: Form) -> Response:
    """Examine the answers of a step, and show the next one; with `action=test` the same one, with what was found."""
    kept, step = _kept(request, draft_id), _step(step_name)
    refused, message = await services.slow.run(_answer, services, kept, step, form)
    if refused is not None or form.get("action") == "test":
        return await services.slow.run(_form, request, draft_id, kept, step, refused, message)
    following = after(kept.draft, step)
    return redirect(f"/new/{draft_id}/{following.name if following else step.name}")


@changing.post("/{draft_id}/review/deploy")
async def deploy(draft_id: str, request: Request, services: Given, form: Form) -> Response:
    """Write the definition and start the pipeline, as a request of the API that creates one."""
    kept, step = _kept(request, draft_id), _step("review")

    def create() -> tuple[str, _Refused | None]:
        with kept.lock:
            try:
                definition = final_definition(kept.draft, form)
                return services.pipelines.create(definition).pipeline_id, None
            except AnswerRefused as error:
                return "", _Refused(form, error.problems)
            except ApiError as error:
                return "", _Refused(form, error.problems or (Problem("", _text(error)),))

    pipeline_id, refused = await services.slow.run(create)
    if refused is not None:
        return await services.slow.run(_form, request, draft_id, kept, step, refused)
    request.state.audit = {"pipeline_id": pipeline_id}
    request.app.state.pages.drafts.remove(draft_id)
    return redirect(f"/pipelines/{pipeline_id}")


def _text(error: ApiError) -> str:
    """Return an error with its details, where these say more."""
    detail = (error.details or {}).get("error")
    return f"{error.message}: {detail}" if detail and detail != error.message else error.message


def _kept(request: Request, draft_id: str) -> KeptDraft:
    kept: KeptDraft = request.app.state.pages.drafts.get(draft_id)
    return kept


def _step(name: str) -> Step:
    step = step_named(name)
    if step is None:
        raise not_found(f"there is no step {name[:50]!r}; begin a new pipeline")
    return step


def _answer(services: Services, kept: KeptDraft, step: Step, form: Mapping[str, str]) -> tuple[_Refused | None, str]:
    """Examine answers; return what is wrong with them, or what was found."""
    with kept.lock:
        kept.draft.writers = services.catalog.writers()
        try:
            message = step.answer(kept.draft, form)
        except AnswerRefused as error:
            return _Refused(form, error.problems), ""
        except ApiError as error:
            return _Refused(form, error.problems or (Problem("", str(error)),)), ""
        kept.found[step.name] = message
    return None, message


def _form(  # noqa: PLR0913, PLR0917 - the last two are of answers only
    request: Request, draft_id: str, kept: KeptDraft, step: Step, refused: _Refused | None = None, message: str = ""
) -> Response:
    draft, services = kept.draft, request.app.state.services
    draft.writers = services.catalog.writers()
    questions = step.ask(draft)
    previous = before(draft, step)
    steps = steps_of(draft)
    values: dict[str, Any] = {
        "draft": draft, "base": f"{PAGES}new/{draft_id}", "live": f"{PAGES}live/{draft_id}",
        "step": step, "steps": steps, "number": steps.index(step) + 1,
        "found": kept.found, "previous": previous, "questions": [_again(each, refused) for each in questions],
        "problems": _by_question(refused), "others": _of_no_question(questions, refused), "message": message,
        "extra": {},
    }  # fmt: skip
    if step.name == "columns":
        values["extra"] = _columns(kept, refused)
    status = HTTPStatus.OK if refused is None else HTTPStatus.UNPROCESSABLE_ENTITY
    return render(request, f"steps/{step.name}.html", status, **values)


def _again(question: Question, refused: _Refused | None) -> Question:
    """Return a question with the refused answer, so that it need not be written again; not a password."""
    if refused is None or question.is_secret:
        return question
    return replace(question, value=refused.answers.get(question.name, ""))


def _by_question(refused: _Refused | None) -> dict[str, str]:
    texts: dict[str, list[str]] = {}
    for problem in refused.problems if refused else ():
        texts.setdefault(problem.path, []).append(problem.text)
    return {name: "\n".join(each) for name, each in texts.items()}


def _of_no_question(questions: list[Question], refused: _Refused | None) -> list[Problem]:
    """Return the problems that are shown above the form; those of a column are at its row."""
    names = {question.name for question in questions}
    found = refused.problems if refused else ()
    return [each for each in found if each.path not in names and not _COLUMN.fullmatch(each.path)]


def _columns(kept: KeptDraft, refused: _Refused | None) -> dict[str, Any]:
    """Return the rows of the mapping, each with its problems, and what else is known of the table."""
    draft = kept.draft
    mapping = (
        columns.mapping_of(draft, refused.answers) if refused else tuple(row.mapped for row in columns.rows(draft))
    )
    found = refused.problems if refused else tuple(columns.problems(draft, mapping, draft.order_by))
    marked: dict[int, list[str]] = {}
    for problem in found:
        _, dot, index = problem.path.partition(".")
        if dot and index.isdecimal():
            marked.setdefault(int(index), []).append(problem.text)
    return {
        "rows": [(row, mapped) for row, mapped in zip(columns.rows(draft), mapping, strict=True)],
        "marked": marked,
        "unfilled": columns.unfilled(draft.target, mapping),
        "existing": draft.target.columns if draft.target else None,
    }
