"""The clock of windows: the time of arrival, or a field with the time of the event."""

import re

from glassflow_dagster.inference.draft import EventClock, Side
from glassflow_dagster.server.wizard.questions import Answers, Option, Question, When, given, refused

_CLOCKS = (
    Option("processing", "time of arrival", "when Spark reads the event"),
    Option("event", "time in the event", "windows do not depend on when an event is read"),
)
_UNITS = (
    Option("s", "seconds"),
    Option("ms", "milliseconds"),
    Option("us", "microseconds"),
    Option("ns", "nanoseconds"),
)
_KINDS = {"string", "int", "uint", "float"}
_TIME = re.compile(r"time|date|(?:^|[._])ts$|_at$", re.IGNORECASE)
OF_EVENT = When("clock", ("event",))


def clock_question(chosen: EventClock | None) -> Question:
    """Return the question for the clock."""
    return Question("clock", "Clock", "choice", "event" if chosen else "processing", _CLOCKS, advanced=True)


def time_questions(side: Side, prefix: str, chosen: EventClock | None) -> list[Question]:
    """Return the questions for the field with the time of a topic's events, and for its unit."""
    fields = [each for each in side.sample.fields if each.kind in _KINDS and each.required]
    likely = next((each.name for each in fields if _TIME.search(each.name)), "")
    # A field that is no time would make dead letters of all events: without a likely one, none is proposed.
    options: tuple[Option, ...] = () if likely else (Option("", "choose a field"),)
    options += tuple(Option(each.name, remark=", ".join((each.type, *each.examples[:1]))) for each in fields)
    return [
        Question(
            f"{prefix}time", f"Time of an event of {side.topic}", "choice", chosen.field if chosen else likely, options,
            "a number since 1970, or a text such as 2026-01-31T12:00:00Z; a field that each event has", advanced=True,
            when=OF_EVENT,
        ),
        Question(
            f"{prefix}unit", "Its unit", "choice", (chosen.unit if chosen else "") or "s", _UNITS,
            "of a number; a text has none", advanced=True, when=OF_EVENT,
        ),
    ]  # fmt: skip


def clock_of(side: Side, prefix: str, answers: Answers) -> EventClock | None:
    """Return the answered field with the time; None for the time of arrival. Raises `AnswerRefused`."""
    if given(answers, "clock") != "event":
        return None
    field = given(answers, f"{prefix}time")
    if field not in side.sample.kinds:
        raise refused(f"{prefix}time", "is missing; choose the field with the time of the event")
    is_text = side.sample.kinds[field] == "string"
    return EventClock(field, "" if is_text else given(answers, f"{prefix}unit") or "s")
