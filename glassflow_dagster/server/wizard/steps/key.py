"""The key of deduplication, and its window."""

from dataclasses import replace

from glassflow_dagster.definition.model.durations import parse_duration
from glassflow_dagster.definition.model.transforms import MAX_DEDUP_WINDOW
from glassflow_dagster.definition.problems import Problem
from glassflow_dagster.inference.draft import EventClock, Side
from glassflow_dagster.inference.keys import Key
from glassflow_dagster.server.wizard.checking import problems_of
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.questions import AnswerRefused, Answers, Option, Question, given, refused
from glassflow_dagster.server.wizard.steps.clock import OF_EVENT, clock_of, clock_question, time_questions
from glassflow_dagster.server.wizard.steps.step import Step

_LATE = (
    Option("drop", "left out", "and counted"),
    Option("dead_letter", "a dead letter"),
    Option("keep", "written", "if its key is not known any more"),
)
WINDOW_HELP = "how long a producer may take to send an event again, at most 7d: 30m, 1h, 2d"


def key_options(side: Side) -> tuple[Option, ...]:
    """Return the fields that may be the key, the likeliest first, with what the sample says of each."""
    by_name = {key.name: _remark(key) for key in side.sample.keys}
    others = [f.name for f in side.sample.fields if f.name not in by_name and f.kind not in {"array", "map", "any"}]
    return (*(Option(name, remark=remark) for name, remark in by_name.items()), *map(Option, others))


def window(answers: Answers, name: str) -> str:
    """Return a window; raises `AnswerRefused` for one that is none, or too long."""
    text = given(answers, name) or "1h"
    try:
        duration = parse_duration(text)
    except ValueError as error:
        raise refused(name, str(error)) from None
    if not 0 < duration.total_seconds() <= MAX_DEDUP_WINDOW.total_seconds():
        raise refused(name, "is not between 1ms and 7 days; choose another")
    return text


def key_of(side: Side, answers: Answers, name: str) -> tuple[str, ...]:
    """Return the fields of a key; raises `AnswerRefused` for one that the events do not have."""
    fields = tuple(line.strip() for line in answers.get(name, "").splitlines() if line.strip())
    unknown = [each for each in fields if each not in side.sample.kinds]
    if unknown:
        raise refused(name, f"{unknown[0]!r} is no field of {side.topic}; choose another")
    return fields


def _remark(key: Key) -> str:
    repeats = key.events - key.values
    if not key.events:
        return ""
    if not key.is_unique:
        return f"shared by different events: {key.text}"
    share = f"{repeats / key.events:.1%} repeats" if repeats else "no repeats"
    return f"{share}: {key.text}"


def _ask(draft: Draft) -> list[Question]:
    side = draft.source
    return [
        Question(
            "key", "Key", "choices", "\n".join(side.key), key_options(side),
            "the fields that an event has again when it is sent again; none: every event is written",
        ),
        Question("window", "Window", value=side.window, help=WINDOW_HELP),
        clock_question(side.clock),
        *time_questions(side, "event_", side.clock),
        Question(
            "late", "A late event is", "choice", (side.clock.late if side.clock else "") or "drop", _LATE,
            advanced=True, when=OF_EVENT,
        ),
        Question(
            "lateness", "How late an event may be", value=side.clock.lateness if side.clock else "",
            help="behind the newest event: 10m, 1h; empty: the window", advanced=True, when=OF_EVENT,
        ),
    ]  # fmt: skip


def _answer(draft: Draft, answers: Answers) -> str:
    side = draft.source
    key, length = key_of(side, answers, "key"), window(answers, "window")
    clock = _clock(draft, answers) if key else None
    before = (side.key, side.window, side.clock)
    side.key, side.window, side.clock = key, length, clock
    if clock and (problems := _clock_problems(draft)):
        side.key, side.window, side.clock = before
        raise AnswerRefused(problems)
    if key != before[0] and draft.mapping:
        draft.order_by = ""
    draft.answered("key")
    if not key:
        return "Every event is written."
    by = f" by {clock.field}" if clock else ""
    return f"The first event of each {', '.join(key)} within {length}{by} is kept."


def _clock(draft: Draft, answers: Answers) -> EventClock | None:
    clock = clock_of(draft.source, "event_", answers)
    if clock is None:
        return None
    if draft.right is not None:
        raise refused("clock", "before a join it is the time of arrival; choose that, or leave the join out")
    return replace(clock, late=given(answers, "late"), lateness=given(answers, "lateness"))


def _clock_problems(draft: Draft) -> list[Problem]:
    """Return the mistakes that a clock makes in the definition, at their questions."""
    names = {"event_time": "event_time", "event_time_unit": "event_unit", "allowed_lateness": "lateness"}
    return [
        Problem(names.get(each.path.rpartition(".")[2], "clock"), each.text)
        for each in problems_of(draft)
        if each.path.startswith("transforms") and ".config" in each.path
    ]


STEP = Step("key", "Duplicates", "Events that are sent twice are written once.", _ask, _answer)
