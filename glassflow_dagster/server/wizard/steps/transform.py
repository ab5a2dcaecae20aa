"""The filter and computed fields."""

from collections.abc import Iterator, Mapping

from glassflow_dagster.definition.model.types import FieldKind
from glassflow_dagster.definition.problems import Problem
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.inference.draft import Computed
from glassflow_dagster.server.wizard.checking import computed_kind, filter_problem
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.questions import AnswerRefused, Answers, Question, given
from glassflow_dagster.server.wizard.steps.step import Step


def _ask(draft: Draft) -> list[Question]:
    return [
        Question(
            "filter", "Keep an event if", "lines", draft.source.filter,
            help='an expression such as amount > 0 and status in ["paid", "sent"]; empty: all are kept',
        ),
        Question(
            "computed", "Computed fields", "lines", "\n".join(f"{c.name} = {c.expression}" for c in draft.computed),
            help="one on each line: total = amount * price",
        ),
    ]  # fmt: skip


def _answer(draft: Draft, answers: Answers) -> str:
    condition, computed = parse(draft, answers)
    if computed != draft.computed:
        draft.mapping = ()
        draft.forget("columns")
    draft.source.filter, draft.computed = condition, computed
    draft.answered("transform")
    kept = "Only events that the filter keeps are read on" if condition else "All events are kept"
    return f"{kept}; {len(computed)} computed field{'s' if len(computed) != 1 else ''}."


def parse(draft: Draft, answers: Answers) -> tuple[str, tuple[Computed, ...]]:
    """Return the filter's condition and the computed fields; raises `AnswerRefused` with every mistake."""
    kinds = draft.source.sample.kinds
    condition = given(answers, "filter")
    problems = []
    if condition and (problem := filter_problem(condition, kinds)):
        problems.append(Problem("filter", problem))
    computed = []
    for number, name, expression in _lines(answers.get("computed", "")):
        try:
            computed.append(_computed(name, expression, kinds))
        except GlassflowError as error:
            problems.append(Problem("computed", f"line {number}: {error}"))
    if problems:
        raise AnswerRefused(problems)
    return condition, tuple(computed)


def _computed(name: str, expression: str, kinds: Mapping[str, FieldKind]) -> Computed:
    if not name or not expression:
        raise GlassflowError("write NAME = EXPRESSION")
    return Computed(name, expression, computed_kind(expression, kinds))


def _lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield number, name and expression of each line that is not empty."""
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            name, _, expression = line.partition("=")
            yield number, name.strip(), expression.strip()


STEP = Step(
    "transform", "Filter and fields", "Leave events out, and compute fields. Both may stay empty.", _ask, _answer
)
