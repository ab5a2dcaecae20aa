"""The steps of the wizard, in order."""

from collections.abc import Sequence

from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.steps import (
    batching,
    clickhouse,
    columns,
    join,
    kafka,
    key,
    partner,
    review,
    table,
    topic,
    transform,
)
from glassflow_dagster.server.wizard.steps.step import Step

STEPS: Sequence[Step] = (
    kafka.STEP, topic.STEP, key.STEP, transform.STEP, partner.STEP, join.STEP, clickhouse.STEP, table.STEP,
    columns.STEP, batching.STEP, review.STEP,
)  # fmt: skip
_BY_NAME = {step.name: step for step in STEPS}


def step_named(name: str) -> Step | None:
    """Return a step; None for an unknown name."""
    return _BY_NAME.get(name)


def steps_of(draft: Draft) -> list[Step]:
    """Return the steps that a draft needs."""
    return [step for step in STEPS if step.applies(draft)]


def next_open(draft: Draft) -> Step:
    """Return the first step that is not answered; the last one where all are."""
    steps = steps_of(draft)
    return next((step for step in steps if step.name not in draft.done), steps[-1])


def is_open(draft: Draft, step: Step) -> bool:
    """Return whether a step can be answered: all before it are."""
    before = steps_of(draft)[: steps_of(draft).index(step)] if step.applies(draft) else STEPS
    return all(each.name in draft.done for each in before)


def after(draft: Draft, step: Step) -> Step | None:
    """Return the step after another one; None after the last."""
    steps = steps_of(draft)
    index = steps.index(step) + 1
    return steps[index] if index < len(steps) else None


def before(draft: Draft, step: Step) -> Step | None:
    """Return the step before another one; None before the first."""
    steps = steps_of(draft)
    index = steps.index(step)
    return steps[index - 1] if index else None
