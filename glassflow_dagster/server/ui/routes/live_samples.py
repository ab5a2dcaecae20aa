"""Parts of the wizard's steps that are renewed while one answers: events, previews, matches, tables, problems."""

from fastapi import APIRouter, Request, Response

from glassflow_dagster.definition.problems import Problem
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.topic_sample import newest_records
from glassflow_dagster.server.api.api_error import ApiError
from glassflow_dagster.server.api.services import Given
from glassflow_dagster.server.ui.draft_store import KeptDraft
from glassflow_dagster.server.ui.forms import Form
from glassflow_dagster.server.ui.page_routes import PageRoute
from glassflow_dagster.server.ui.rendering import render
from glassflow_dagster.server.wizard.evaluating import evaluate
from glassflow_dagster.server.wizard.questions import AnswerRefused, given
from glassflow_dagster.server.wizard.steps import columns, transform
from glassflow_dagster.server.wizard.steps.join import sample_matches
from glassflow_dagster.server.wizard.steps.review import check
from glassflow_dagster.server.wizard.steps.table import tables_of
from glassflow_dagster.stores.kafka.records import Record

router = APIRouter(prefix="/live/{draft_id}", route_class=PageRoute)
_SHOWN = 5


def _kept(request: Request, draft_id: str) -> KeptDraft:
    kept: KeptDraft = request.app.state.pages.drafts.get(draft_id)
    return kept


@router.get("/events")
async def events(draft_id: str, request: Request, services: Given, topic: str = "") -> Response:
    """Return the newest events of a topic."""
    kept = _kept(request, draft_id)
    if not topic:
        return render(request, "parts/events.html", topic="", records=(), error="")
    records: tuple[Record, ...] = ()
    error = ""
    try:
        records = await services.slow.run(newest_records, kept.draft.kafka_connection, topic, _SHOWN)
    except GlassflowError as problem:
        error = str(problem)
    return render(request, "parts/events.html", topic=topic, records=records[::-1], error=error)


@router.post("/expressions")
def check_expressions(draft_id: str, request: Request, form: Form) -> Response:
    """Return what is wrong with a filter and computed fields; at once, as it needs no Spark."""
    problems: tuple[Problem, ...] = ()
    try:
        transform.parse(_kept(request, draft_id).draft, form)
    except AnswerRefused as error:
        problems = error.problems
    return render(request, "parts/expressions.html", problems=problems)


@router.post("/transform")
async def preview(draft_id: str, request: Request, services: Given, form: Form) -> Response:
    """Return what a filter and computed fields make of the sample; of invalid ones only that they are."""
    draft = _kept(request, draft_id).draft
    evaluation, error = None, ""
    try:
        condition, computed = transform.parse(draft, form)
        evaluation = await services.evaluations.run(evaluate, draft, condition, computed, services.session)
    except AnswerRefused:
        error = "There is a preview as soon as the expressions are valid."
    except (ApiError, GlassflowError) as problem:
        error = str(problem)
    return render(request, "parts/evaluation.html", evaluation=evaluation, error=error)


@router.post("/join")
async def matches(draft_id: str, request: Request, services: Given, form: Form) -> Response:
    """Return how many events of the samples match by these keys."""
    draft = _kept(request, draft_id).draft
    found, error = None, ""
    try:
        found = await services.slow.run(sample_matches, draft, given(form, "left_key"), given(form, "right_key"))
    except GlassflowError as problem:
        error = str(problem)
    return render(request, "parts/matches.html", draft=draft, found=found, error=error)


@router.get("/tables")
async def tables(draft_id: str, request: Request, services: Given, database: str = "") -> Response:
    """Return the tables of a database."""
    draft = _kept(request, draft_id).draft
    found = await services.slow.run(tables_of, draft, database)
    return render(request, "parts/tables.html", tables=found, database=database, known=database in draft.databases)


@router.post("/columns")
async def mapping(draft_id: str, request: Request, services: Given, form: Form) -> Response:
    """Return what is wrong with a mapping."""
    draft = _kept(request, draft_id).draft

    def examine() -> list[Problem]:
        found = columns.mapping_of(draft, form)
        names = {index: each.field for index, each in enumerate(found)}
        return [_of_field(each, names) for each in columns.problems(draft, found, given(form, "order_by"))]

    return render(request, "parts/problems.html", problems=await services.slow.run(examine), warnings=())


@router.post("/review")
async def definition(draft_id: str, request: Request, services: Given, form: Form) -> Response:
    """Return what is wrong with the edited definition."""
    kept = _kept(request, draft_id)
    problems: tuple[Problem, ...] = ()
    warnings: list[str] = []
    try:
        warnings = await services.slow.run(check, kept.draft, form)
    except AnswerRefused as error:
        problems = error.problems
    return render(request, "parts/problems.html", problems=problems, warnings=warnings)


def _of_field(problem: Problem, names: dict[int, str]) -> Problem:
    """Return a problem of a row with the name of its field."""
    _, dot, index = problem.path.partition(".")
    return Problem(names[int(index)], problem.text) if dot and index.isdecimal() else problem
