"""The steps of the wizard as questions, one after the other."""

from dataclasses import replace

from glassflow_dagster.cli.prompts import Asks
from glassflow_dagster.errors import GlassflowError
from glassflow_dagster.server.api.api_error import ApiError
from glassflow_dagster.server.api.files import Stored
from glassflow_dagster.server.api.services import Services
from glassflow_dagster.server.wizard.checking import public_text
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.evaluating import evaluate
from glassflow_dagster.server.wizard.questions import YES, AnswerRefused, Option, Question, applies
from glassflow_dagster.server.wizard.steps import columns, next_open, review
from glassflow_dagster.server.wizard.steps.step import Step
from glassflow_dagster.stores.dead_letters.store import readable

_SHOWN = 3
_DONE = "(all columns are right)"


def make_pipeline(services: Services, person: Asks) -> None:
    """Ask until the pipeline is made; raises `GlassflowError` where it is not wanted, or does not start."""
    draft = Draft()
    while (step := next_open(draft)) is not review.STEP:
        draft.writers = services.catalog.writers()
        person.tell(f"\n{step.title}: {step.why}")
        _answer_step(draft, step, person)
        _show(draft, step, services, person)
    _finish(draft, services, person)


def _answer_step(draft: Draft, step: Step, person: Asks) -> None:
    """Ask the questions of a step until the answers can be right."""
    answers: dict[str, str] = {}
    while True:
        questions = step.ask(draft)
        proposed = [_again(each, answers) for each in questions]
        answers = _asked(proposed, person)
        if step is columns.STEP:
            answers |= _columns(draft, person)
        try:
            person.tell(f"  {step.answer(draft, answers)}")
        except (AnswerRefused, ApiError) as error:
            person.tell(f"  {error}")
        else:
            return


def _again(question: Question, answers: dict[str, str]) -> Question:
    """Return a question with the refused answer as its proposal; not a password."""
    if question.is_secret or question.name not in answers:
        return question
    return replace(question, value=answers[question.name])


def _asked(questions: list[Question], person: Asks) -> dict[str, str]:
    """Return the answers; of settings that few need the proposals, unless the person wants to see them."""
    answers = {each.name: person.answer(each) for each in questions if not each.advanced}
    advanced = [each for each in questions if each.advanced]
    # Those that depend on another answer are named when it is given.
    named = ", ".join(each.label for each in advanced if each.when is None)
    wanted = bool(advanced) and person.confirm(f"More settings ({named})?", default=False)
    for each in advanced:
        asks = wanted and applies(each, questions, answers)
        answers[each.name] = person.answer(each) if asks else each.value
    return answers


def _columns(draft: Draft, person: Asks) -> dict[str, str]:
    """Return the mapping as answers: the proposed one, with what the person changes."""
    rows = [*columns.rows(draft)]
    answers: dict[str, str] = {}
    for index, row in enumerate(rows):
        mapped = row.mapped
        answers |= {f"column.{index}": mapped.column, f"type.{index}": mapped.type}
        answers[f"use.{index}"] = YES if mapped.used else ""
    while True:
        options = [
            Option(str(index), f"{row.mapped.field} -> {_shown(index, answers)}") for index, row in enumerate(rows)
        ]
        chosen = person.answer(Question("change", "Change", "choice", "", (Option("", _DONE), *options)))
        if not chosen:
            return answers
        index = int(chosen)
        used = Question("used", f"Write {rows[index].mapped.field}", "check", answers[f"use.{index}"])
        answers[f"use.{index}"] = person.answer(used)
        if answers[f"use.{index}"]:
            for key, label in (("column", "Column"), ("type", "Type")):
                answers[f"{key}.{index}"] = person.answer(Question(key, label, value=answers[f"{key}.{index}"]))


def _shown(index: int, answers: dict[str, str]) -> str:
    if not answers[f"use.{index}"]:
        return "not written"
    return f"{answers[f'column.{index}']} {answers[f'type.{index}']}"


def _show(draft: Draft, step: Step, services: Services, person: Asks) -> None:
    """Show what a step has led to: events of a topic, a preview of a filter and of computed fields."""
    if step.name == "topic":
        for record in draft.source.sample.records[-_SHOWN:]:
            person.tell(f"  {readable(record.value)}")
    has_work = step.name == "transform" and (draft.source.filter or draft.computed)
    if has_work and person.confirm("Try it on the sample? It starts Spark, which takes some seconds.", default=True):
        try:
            found = evaluate(draft, draft.source.filter, draft.computed, services.session)
        except (AnswerRefused, GlassflowError) as error:
            person.tell(f"  {error}")
        else:
            person.tell(f"  {found.summary}")
            for each in found.records[:_SHOWN]:
                person.tell(f"  {each.outcome}: {each.reason or each.values}")


def _finish(draft: Draft, services: Services, person: Asks) -> None:
    """Show the definition, and create the pipeline if the person wants it; wait until it runs."""
    while (stored := _create(draft, services, person)) is None:
        if not person.confirm("Ask for the id and the name again?", default=True):
            raise GlassflowError("no pipeline was made")
    operations = services.catalog.operations
    if thread := operations.thread(stored.pipeline_id):
        thread.join()
    if failure := operations.failure(stored.pipeline_id):
        raise GlassflowError(f"{stored.file} is written, but the pipeline does not run: {failure}")
    person.tell(f"{stored.pipeline_id} runs; its definition is {stored.file}. Next: glassflow-dagster status --watch")


def _create(draft: Draft, services: Services, person: Asks) -> Stored | None:
    """Ask for id and name, and create the pipeline; None where they cannot be."""
    answers = {each.name: person.answer(each) for each in review.STEP.ask(draft) if each.name != "text"}
    try:
        definition = review.final_definition(draft, answers)
        person.tell(f"\n{public_text(draft)}")
        if not person.confirm(f"Write {draft.pipeline_id}.yaml and start the pipeline?", default=True):
            raise GlassflowError("no pipeline was made")
        return services.pipelines.create(definition)
    except (AnswerRefused, ApiError) as error:
        person.tell(f"  {error}")
        return None
