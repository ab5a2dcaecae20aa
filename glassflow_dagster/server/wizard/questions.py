"""What a step asks, for front ends that show it as a form or ask it line by line."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from glassflow_dagster.definition.problems import Problem

# A question's name -> the answer. A box that is not ticked has none; several chosen options are separated by line ends.
Answers = Mapping[str, str]
YES = "yes"


@dataclass(frozen=True)
class Option:
    """A choice.

    value: the answer.
    remark: what speaks for or against it.
    """

    value: str
    label: str = ""
    remark: str = ""

    @property
    def text(self) -> str:
        """The choice as people read it."""
        return self.label or self.value


@dataclass(frozen=True)
class When:
    """A question applies where the answer to another one, a choice, is one of these."""

    question: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """One question.

    value: the answer that is proposed.
    when: on which other answer it depends, None for none.
    kind: text, password (never shown again), secret_lines (the same, of several lines), choice (one option), choices
        (any number of options), check (`YES` or nothing), lines (text of several lines), suggest (text, with options as
        suggestions).
    """

    name: str
    label: str
    kind: Literal["text", "password", "secret_lines", "choice", "choices", "check", "lines", "suggest"] = "text"
    value: str = ""
    options: tuple[Option, ...] = ()
    help: str = ""
    # Few need these: a form folds them.
    advanced: bool = False
    when: When | None = None

    @property
    def is_secret(self) -> bool:
        """Whether its answer is not shown again."""
        return self.kind in {"password", "secret_lines"}

    @property
    def values(self) -> tuple[str, ...]:
        """The proposed answers of `choices`."""
        return tuple(self.value.splitlines())


def applies(question: Question, questions: Sequence[Question], answers: Answers) -> bool:
    """Return whether a question is to be answered, given the answers to those before it."""
    if question.when is None:
        return True
    other = next(each for each in questions if each.name == question.when.question)
    return applies(other, questions, answers) and answers.get(other.name, other.value) in question.when.answers


class AnswerRefused(Exception):
    """Answers that cannot be right; the path of a problem is the name of its question, or empty."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(f"{each.path}: {each.text}" if each.path else each.text for each in self.problems))


def refused(name: str, text: str) -> AnswerRefused:
    """Return the error for the answer to one question."""
    return AnswerRefused([Problem(name, text)])


def given(answers: Answers, name: str) -> str:
    """Return an answer without surrounding space; empty for none."""
    return answers.get(name, "").strip()


def required(answers: Answers, name: str, what: str) -> str:
    """Return an answer; raises `AnswerRefused` for none. what: to give, for the error."""
    answer = given(answers, name)
    if not answer:
        raise refused(name, f"is missing; {what}")
    return answer
