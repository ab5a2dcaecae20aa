"""Asks single questions in a terminal; Ctrl-C ends the command."""

from collections.abc import Callable
from typing import Any, Protocol

import questionary

from glassflow_dagster.cli.options import show
from glassflow_dagster.runtime.safe_text import one_line
from glassflow_dagster.server.wizard.questions import YES, Option, Question


class Asks(Protocol):
    """Asks a person, and tells what was found."""

    def answer(self, question: Question) -> str:
        """Return the answer to a question; several chosen options are separated by line ends (see `Answers`)."""

    def confirm(self, text: str, *, default: bool) -> bool:
        """Return whether the person agrees."""

    def tell(self, text: str) -> None:
        """Show a text."""


class Terminal:
    """Asks by questionary."""

    def answer(self, question: Question) -> str:
        """Return the answer to a question; a list of choices is searched by typing."""
        if question.help:
            self.tell(f"  {question.help}")
        return _ASK[question.kind](question)

    def confirm(self, text: str, *, default: bool) -> bool:
        """Return whether the person agrees."""
        return bool(_asked(questionary.confirm(text, default=default)))

    def tell(self, text: str) -> None:
        """Print a text."""
        show(text)


def _asked(prompt: questionary.Question) -> Any:
    # It raises KeyboardInterrupt at Ctrl-C, as any command does.
    return prompt.unsafe_ask()


def _text(question: Question) -> str:
    return str(_asked(questionary.text(question.label, default=question.value)))


def _password(question: Question) -> str:
    return str(_asked(questionary.password(question.label)))


def _lines(question: Question) -> str:
    # Of a single line, Enter ends it; of several, Escape and Enter do.
    several = "\n" in question.value
    return str(_asked(questionary.text(question.label, default=question.value, multiline=several)))


def _suggest(question: Question) -> str:
    options = [option.value for option in question.options]
    if not options:
        return _text(question)
    return str(_asked(questionary.autocomplete(question.label, options, default=question.value)))


def _choice(question: Question) -> str:
    choices = [questionary.Choice(_line(option), option.value) for option in question.options]
    if not choices:
        return ""
    proposed = question.value if any(option.value == question.value for option in question.options) else None
    return str(_asked(questionary.select(question.label, choices, default=proposed)))


def _choices(question: Question) -> str:
    choices = [
        questionary.Choice(_line(option), option.value, checked=option.value in question.values)
        for option in question.options
    ]
    return "\n".join(_asked(questionary.checkbox(question.label, choices))) if choices else ""


def _check(question: Question) -> str:
    return YES if _asked(questionary.confirm(question.label, default=bool(question.value))) else ""


def _line(option: Option) -> str:
    return one_line(f"{option.text} ({option.remark})" if option.remark else option.text)


_ASK: dict[str, Callable[[Question], str]] = {
    "text": _text, "password": _password, "lines": _lines, "suggest": _suggest, "choice": _choice,
    "choices": _choices, "check": _check, "secret_lines": _password,
}  # fmt: skip
