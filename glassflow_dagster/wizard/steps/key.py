"""The key of deduplication, and its window."""

from glassflow_dagster.config.model.durations import parse_duration
from glassflow_dagster.config.model.transforms import MAX_DEDUP_WINDOW
from glassflow_dagster.inference.keys import Key
from glassflow_dagster.wizard.draft import Draft, Side
from glassflow_dagster.wizard.questions import Answers, Option, Question, given, refused
from glassflow_dagster.wizard.steps.step import Step

WINDOW_HELP = "how long a producer may take to send an event again, at most 7d: 30m, 1h, 2d"


def key_options(side: Side) -> tuple[Option, ...]:
    """Return the fields that may be the key, the likeliest first, with what the sample says of each."""
    by_name = {key.name: _remark(key) for key in side.sample.keys}
    others = [f.name for f in side.sample.fields if f.name not in by_name and f.kind not in {"array", "map", "any"}]
    return (
        *(Option(name, remark=remark) for name, remark in by_name.items()),
        *map(Option, others),
    )


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
    ]  # fmt: skip


def _answer(draft: Draft, answers: Answers) -> str:
    side = draft.source
    key, length = key_of(side, answers, "key"), window(answers, "window")
    if key != side.key and draft.mapping:
        draft.order_by = ""
    side.key, side.window = key, length
    draft.answered("key")
    return f"The first event of each {', '.join(key)} within {length} is kept." if key else "Every event is written."


STEP = Step("key", "Duplicates", "Events that are sent twice are written once.", _ask, _answer)
