"""The size of batches, and their delay."""

from glassflow_dagster.definition.model.durations import parse_duration
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.questions import Answers, Question, refused, required
from glassflow_dagster.server.wizard.steps.step import Step


def _ask(draft: Draft) -> list[Question]:
    return [
        Question(
            "rows", "Rows of one insert, at most", value=str(draft.rows), help="10,000 to 100,000 suit ClickHouse"
        ),
        Question(
            "delay", "Longest delay", value=draft.delay, help="after this time a smaller batch is written: 1s, 500ms"
        ),
    ]


def _answer(draft: Draft, answers: Answers) -> str:
    text = required(answers, "rows", "10000 by default").replace(",", "")
    if not text.isdecimal() or int(text) == 0:
        raise refused("rows", f"{text!r} is no positive number; correct it")
    delay = required(answers, "delay", "1s by default")
    try:
        seconds = parse_duration(delay).total_seconds()
    except ValueError as error:
        raise refused("delay", str(error)) from None
    if seconds <= 0:
        raise refused("delay", "is not longer than 0; correct it")
    draft.rows, draft.delay = int(text), delay
    draft.answered("batching")
    return f"A batch is written when {draft.rows:,} events wait, or after {delay}."


STEP = Step("batching", "Batching", "Larger batches are cheaper, smaller ones sooner in the table.", _ask, _answer)
