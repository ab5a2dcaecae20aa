"""The topic, its format, and where to begin."""

from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.questions import Answers, Option, Question, given, required
from glassflow_dagster.server.wizard.steps.reading import found, read_side, registry_questions, topic_options
from glassflow_dagster.server.wizard.steps.step import Step

_STARTS = (Option("earliest", "its first event"), Option("latest", "new events only"))


def _ask(draft: Draft) -> list[Question]:
    return [
        Question("topic", "Topic", "choice", draft.left.topic if draft.left else "", topic_options(draft)),
        Question("start", "Begin with", "choice", draft.left.start if draft.left else "earliest", _STARTS),
        *registry_questions(draft.left),
    ]


def _answer(draft: Draft, answers: Answers) -> str:
    side = read_side(draft, required(answers, "topic", "choose one"), answers, draft.left)
    side.start = given(answers, "start") or "earliest"
    old = draft.left
    if old is not None and (old.topic, old.registry) == (side.topic, side.registry):
        side.key, side.window, side.filter, side.clock = old.key, old.window, old.filter, old.clock
    else:
        draft.computed, draft.right, draft.join, draft.mapping, draft.pipeline_id = (), None, None, (), ""
        draft.forget("key", "transform", "partner", "join", "table", "columns", "review")
    draft.left = side
    draft.answered("topic")
    return found(side)


STEP = Step("topic", "Topic", "Which events. Nothing is consumed: no offset is committed.", _ask, _answer)
