"""A step of the wizard."""

from collections.abc import Callable
from dataclasses import dataclass

from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.questions import Answers, Question


@dataclass(frozen=True)
class Step:
    """A step.

    why: what it decides, for people.
    ask: returns its questions, with proposals.
    answer: puts the answers into the draft and returns a line on what was found, or raises `AnswerRefused`; the draft
        is then as before.
    applies: whether the draft needs the step.
    """

    name: str
    title: str
    why: str
    ask: Callable[[Draft], list[Question]]
    answer: Callable[[Draft, Answers], str]
    applies: Callable[[Draft], bool] = lambda _: True
