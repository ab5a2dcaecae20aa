"""Secrets in answers: one that was given before stays, as long as it goes to the same server."""

from collections.abc import Mapping, Sequence
from typing import Any

from glassflow_dagster.server.wizard.questions import Answers, refused


def kept_help(known: Any, other: str = "") -> str:
    """Return the help of a question for a secret. known: the one that was given before, empty for none."""
    return "; ".join(filter(None, (other, "empty: the one that was given before" if known else "")))


def is_same(before: Mapping[str, Any], now: Mapping[str, Any], keys: Sequence[str]) -> bool:
    """Return whether two connections have the same values of these keys, which say where a secret is sent."""
    return all(before.get(key) == now.get(key) for key in keys)


def secret(answers: Answers, name: str, known: Any, *, same_server: bool) -> str:
    """Return a secret, empty for none: a new one, or the known one; raises `AnswerRefused` for another server."""
    new = answers.get(name, "")
    if new.strip() or not known:
        return new
    if not same_server:
        raise refused(name, "was given for another server; give it again")
    return str(known)
