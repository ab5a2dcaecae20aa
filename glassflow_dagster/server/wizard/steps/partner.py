"""The topic to join with, if any."""

from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.questions import Answers, Option, Question, given, refused
from glassflow_dagster.server.wizard.steps.reading import found, read_side, registry_questions, topic_options
from glassflow_dagster.server.wizard.steps.step import Step

_NONE = Option("", "no join", "events of this topic only")


def _ask(draft: Draft) -> list[Question]:
    others = topic_options(draft, without=draft.source.topic)
    chosen = draft.right.topic if draft.right else ""
    return [Question("topic", "Join with", "choice", chosen, (_NONE, *others)), *registry_questions(draft.right)]


def _answer(draft: Draft, answers: Answers) -> str:
    topic = given(answers, "topic")
    if not topic:
        if draft.right is not None:
            draft.right, draft.join, draft.mapping = None, None, ()
            draft.forget("join", "columns")
        draft.answered("partner")
        return "No join."
    if draft.source.clock is not None:
        raise refused(
            "topic", "before a join, the clock of duplicates is the time of arrival; choose that in Duplicates first"
        )
    side = read_side(draft, topic, answers, draft.right)
    if draft.right is None or draft.right.topic != topic:
        draft.join, draft.mapping = None, ()
        draft.forget("join", "columns")
    else:
        side.key, side.window = draft.right.key, draft.right.window
    draft.right = side
    draft.answered("partner")
    return found(side)


STEP = Step(
    "partner", "Join partner",
    "Add the fields of another topic's events, such as the user of an order. This step may be left out.",
    _ask, _answer,
)  # fmt: skip
