"""The definition as YAML, its name, and what the rules say of it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from glassflow_dagster.definition.definition_text import parse_definition
from glassflow_dagster.definition.load import warnings
from glassflow_dagster.definition.model.pipeline import PipelineConfig
from glassflow_dagster.definition.problems import BUILT, DefinitionError
from glassflow_dagster.definition.shared_tables import Writer, sharing_problems
from glassflow_dagster.inference.definition import definition_of, proposed_id
from glassflow_dagster.server.wizard.checking import load, public_text, with_secrets
from glassflow_dagster.server.wizard.draft import Draft
from glassflow_dagster.server.wizard.questions import AnswerRefused, Answers, Question, given
from glassflow_dagster.server.wizard.steps.step import Step


def _ask(draft: Draft) -> list[Question]:
    return [
        Question(
            "pipeline_id", "Id", value=draft.pipeline_id or proposed_id(draft),
            help="5 to 100 letters, digits, - and _; the name of the file",
        ),
        Question("name", "Name", value=draft.name, help="for people; may be empty"),
        Question("text", "Definition", "lines", public_text(draft)),
    ]  # fmt: skip


def final_definition(draft: Draft, answers: Answers) -> dict[str, Any]:
    """Return the definition that the answers mean, secrets included; raises `AnswerRefused` with every mistake.

    The draft keeps an edited text, and the id and the name.
    """
    edited, definition = _meant(draft, answers)
    draft.text = edited
    draft.pipeline_id, draft.name = str(definition.get("pipeline_id") or ""), str(definition.get("name") or "")
    _load(definition, draft)
    return definition


def check(draft: Draft, answers: Answers) -> list[str]:
    """Return warnings on the definition that the answers mean; raises `AnswerRefused`. The draft stays as it is."""
    return warnings(_load(_meant(draft, answers)[1], draft))


def _load(definition: dict[str, Any], draft: Draft) -> PipelineConfig:
    """Load a definition; raises `AnswerRefused` with every mistake, and for a table that another one writes to."""
    config = load(definition)
    if found := sharing_problems(Writer.of(config), draft.writers):
        raise AnswerRefused(found)
    return config


def _meant(draft: Draft, answers: Answers) -> tuple[str | None, dict[str, Any]]:
    """Return the edited text (None where it was not edited), and the definition that the answers mean.

    Of an id or a name that was changed both in the text and above it, that above counts.
    """
    shown = {"pipeline_id": draft.pipeline_id or proposed_id(draft), "name": draft.name}
    changed = {name: text for name in shown if name in answers and (text := given(answers, name)) != shown[name]}
    text = answers.get("text", "").strip()
    edited = text if text and text != public_text(draft).strip() else draft.text
    if edited is None:
        named = {**shown, **changed}
        return None, definition_of(replace(draft, pipeline_id=named["pipeline_id"], name=named["name"]))
    return edited, {**with_secrets(_parsed(edited), draft), **changed}


def _answer(draft: Draft, answers: Answers) -> str:
    found = warnings(_load(final_definition(draft, answers), draft))
    draft.done.add("review")
    return "\n".join(["The definition is valid.", *found])


def _parsed(text: str) -> dict[str, Any]:
    try:
        return parse_definition(Path(BUILT), text)
    except DefinitionError as error:
        raise AnswerRefused(error.problems) from None


STEP = Step("review", "Review", "The definition is a file: this is what will be in it.", _ask, _answer)
