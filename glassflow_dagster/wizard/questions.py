"""What a step asks, for front ends that show it as a form or ask it line by line."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from glassflow_dagster.config.problems import Problem

# A question's name -> the answer. A box that is not ticked has none; several chosen options are separated by line ends.
Answers = Mapping[str, str]
YES = "yes"


@dataclass(frozen=True)
class Option:
    """A choice. value: the answer; remark: what speaks for or against it."""

    value: str
    label: str = ""
    remark: str = ""

    @property
    def text(self) -> str:
        """The choice as people read it."""
        return self.label or self.value


@dataclass(frozen=True)
class Question:
    """One question. value: the answer that is proposed.

    kind: text, password (never shown again), choice (one option), choices (any number of options), check (`YES` or
    nothing), lines (text of several lines), suggest (text, with options as suggestions).
    """

    name: str
    label: str
    kind: Literal["text", "password", "choice", "choices", "check", "lines", "suggest"] = "text"
    value: str = ""
    options: tuple[Option, ...] = ()
    help: str = ""
    # Few need these: a form folds them.
    advanced: bool = False

    @property
    def values(self) -> tuple[str, ...]:
        """The proposed answers of `choices`."""
        return tuple(self.value.splitlines())


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
