"""How the events of two topics find each other."""

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from glassflow_dagster.definition.problems import Problem
from glassflow_dagster.inference.draft import JoinChoice, Side
from glassflow_dagster.inference.topic_sample import is_id, read_values
from glassflow_dagster.server.api.connections import registry_of
from glassflow_dagster.server.wizard.checking import problems_of
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.questions import AnswerRefused, Answers, Option, Question, given, required
from glassflow_dagster.server.wizard.steps.clock import clock_of, clock_question, time_questions
from glassflow_dagster.server.wizard.steps.key import WINDOW_HELP, key_of, key_options, window
from glassflow_dagster.server.wizard.steps.step import Step

_TYPES = (
    Option("left", "kept, without those fields", "after the window its row is written with NULLs"),
    Option("inner", "left out", "and counted as unmatched"),
)
_MATCHES = (
    Option("latest", "with the latest match", "at most one row for an event"),
    Option("all", "with every match", "a row for each pair"),
)
_PAIRS_SHOWN = 3
_KEY_KINDS = {"string", "int", "uint", "float", "bool", "decimal", "bigint", "ubigint"}


@dataclass(frozen=True)
class Matches:
    """The events of two samples that match. pairs: some of them, left and right event."""

    left: int
    matched: int
    right: int
    pairs: tuple[tuple[dict[str, Any], dict[str, Any]], ...]


def _ask(draft: Draft) -> list[Question]:
    left, right = draft.source, draft.right
    assert right is not None
    join = draft.join or proposed(left, right)
    return [
        Question("left_key", f"Field of {left.topic}", "choice", join.left_key, _options(left)),
        Question("right_key", f"equals the field of {right.topic}", "choice", join.right_key, _options(right)),
        Question(
            "window", "Window", value=join.window,
            help="how long events wait for each other, at most 7d",
        ),
        Question("type", f"An event of {left.topic} without a match is", "choice", join.type, _TYPES),
        Question("match", "An event is joined", "choice", join.match, _MATCHES, advanced=True),
        Question(
            "right_dedup", f"Key of {right.topic}", "choices", "\n".join(right.key), key_options(right),
            f"against duplicates in {right.topic}; none: all of its events count", advanced=True,
        ),
        Question("right_window", f"Window of duplicates in {right.topic}", value=right.window, help=WINDOW_HELP,
                 advanced=True),
        clock_question(join.left_clock),
        *time_questions(left, "left_", join.left_clock),
        *time_questions(right, "right_", join.right_clock),
    ]  # fmt: skip


def proposed(left: Side, right: Side) -> JoinChoice:
    """Return the keys that probably match: fields of one name and kind, ids before others."""
    common = [name for name, kind in left.sample.kinds.items() if right.sample.kinds.get(name) == kind]
    # The id of an event itself is in no other event.
    own = {*left.key, *right.key}
    ranked = sorted(common, key=lambda name: (not is_id(name), name in own))
    if ranked:
        return JoinChoice(ranked[0], ranked[0])
    first = next((name for name in left.sample.kinds if is_id(name) and name not in own), left.sample.fields[0].name)
    return JoinChoice(first, right.key[0] if right.key else right.sample.fields[0].name)


def sample_matches(draft: Draft, left_key: str, right_key: str) -> Matches:
    """Return how many events of a new sample of the left topic have a match in one of the right; raises errors."""
    left, right = draft.source, draft.right
    assert right is not None
    connection = draft.kafka_connection
    by_key = defaultdict(list)
    partners = read_values(connection, right.topic, registry_of(right.registry), [right_key])
    for (value,), event in partners:
        if value is not None:
            by_key[_comparable(value)].append(event)
    events = read_values(connection, left.topic, registry_of(left.registry), [left_key])
    pairs = [(event, by_key[_comparable(value)][-1]) for (value,), event in events if _comparable(value) in by_key]
    return Matches(len(events), len(pairs), len(partners), tuple(pairs[:_PAIRS_SHOWN]))


def _comparable(value: Any) -> Hashable:
    """Return what is equal for equal keys only: numbers, which Python compares exactly, and texts of other values."""
    return value if isinstance(value, int | float) and not isinstance(value, bool) else repr(value)


def _answer(draft: Draft, answers: Answers) -> str:
    right = draft.right
    assert right is not None
    choice = JoinChoice(
        required(answers, "left_key", "choose one"), required(answers, "right_key", "choose one"),
        window(answers, "window"), given(answers, "type") or "left", given(answers, "match") or "latest",
        clock_of(draft.source, "left_", answers), clock_of(right, "right_", answers),
    )  # fmt: skip
    key = key_of(right, answers, "right_dedup")
    right_window = window(answers, "right_window")
    before = (draft.join, right.key, right.window, draft.mapping)
    if choice != draft.join:
        draft.mapping = ()
    draft.join, right.key, right.window = choice, key, right_window
    # Of the definition, what a join decides: the rest is answered later.
    problems = [_named(each) for each in problems_of(draft) if each.path.startswith(("join", "sources", "transforms"))]
    if problems:
        draft.join, right.key, right.window, draft.mapping = before
        raise AnswerRefused(problems)
    if draft.mapping == ():
        draft.forget("columns")
    draft.answered("join")
    return f"{draft.source.topic}.{choice.left_key} = {right.topic}.{choice.right_key} within {choice.window}."


def _named(problem: Problem) -> Problem:
    """Return a problem of the definition as one of the question that decides its path."""
    names = {
        f"join.{side}_source.{key}": f"{side}_{name}"
        for side in ("left", "right")
        for key, name in (("key", "key"), ("event_time", "time"), ("event_time_unit", "unit"))
    }
    return Problem(
        names.get(problem.path, ""), problem.text if problem.path in names else f"{problem.path}: {problem.text}"
    )


def _options(side: Side) -> tuple[Option, ...]:
    return tuple(
        Option(field.name, remark=f"{field.type}, such as {', '.join(field.examples[:2])}")
        for field in side.sample.fields
        if field.kind in _KEY_KINDS
    )


STEP = Step(
    "join", "Join", "Which events belong together, and what becomes of one without a partner.", _ask, _answer,
    lambda draft: draft.right is not None,
)  # fmt: skip
